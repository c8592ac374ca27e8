"""Views of services: what a plugin may do through them, what it cannot see or change, and when they stop."""

from __future__ import annotations

import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from documentation.platform import interfaces
from helpers.forwarding import overriding
from helpers.issued_contexts import issued_by as by
from helpers.repetition import Failures
from plugin_maker import KEEP_CONTEXT, context_of, contextual, host_with, make_plugin, module_of, problems_of

from tavern_host import LLM, PLUGINS, WORKFLOW_MANAGER, Host
from tavern_host.contracts.errors import (
    InvalidInput,
    NotFound,
    PermissionDenied,
    PluginFailure,
    ServiceUnavailable,
    TavernError,
)
from tavern_host.contracts.services import ServiceInterface, ServiceKey, interface_methods, reads
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import ChatMessage, LlmRequest

ALLOWED = {"services": {"use": ["workflowManager:save"]}}


# --- what may be called ------------------------------------------------------------------------------


class Other(ServiceInterface, name="other"):
    @reads
    async def look(self) -> str:
        """Look."""


class Sly(ServiceInterface, name="workflowManager"):
    """A forged interface of another service."""

    @reads
    async def save(self, workflow_id: str, workflow: Workflow) -> None:
        """Pretend that this only reads."""

    @reads
    async def _path(self, workflow_id: str) -> str:
        """Reach for what is private."""


async def test_a_refused_call_names_the_missing_permission(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path), contextual(tmp_path, "two")) as host:
        services, others = context_of().services, context_of("two").services
        workflows, forged = services.get(WORKFLOW_MANAGER), services.get(ServiceKey(Sly))
        with pytest.raises(PermissionDenied) as caught:
            await workflows.save("new", Workflow(name="New"))
        assert str(caught.value) == (
            "acme may not call workflowManager.save: it needs the permission services.use: workflowManager:save"
        )
        details = caught.value.info.details
        assert (details["service"], details["method"]) == ("workflowManager", "save")
        assert "workflowManager:save" in str(details["permission"])
        assert caught.value.info.plugin == "acme"
        with pytest.raises(ServiceUnavailable, match="acme needs the service other"):
            services.get(ServiceKey(Other))

        assert not hasattr(forged, "_path")
        with pytest.raises(PermissionDenied, match=r"workflowManager\.save"):
            await forged.save("new", Workflow(name="New"))
        assert await workflows.list_workflows()

        assert services.get(WORKFLOW_MANAGER) is workflows is not others.get(WORKFLOW_MANAGER)
        assert type(workflows) is not type(others.get(WORKFLOW_MANAGER)), "each plugin has its own view"
        view = host.services.get(WORKFLOW_MANAGER)
    assert not (project / "workflows" / "new.json").exists()
    with pytest.raises(ServiceUnavailable, match="no plugin provides the service workflowManager any more"):
        await view.get("tale")  # after the host has stopped nothing answers
    with pytest.raises(PermissionDenied):
        await workflows.get("tale")
    with pytest.raises(ServiceUnavailable):
        host.services.get(WORKFLOW_MANAGER)


async def test_a_service_that_nobody_provides_is_unavailable(
    project: Path, tmp_path: Path, operator_folders: Path
) -> None:
    (operator_folders / "config").mkdir(parents=True)
    (operator_folders / "config" / "host.yaml").write_text("disabled: [tavern-llm]\n")
    async with host_with(project, contextual(tmp_path)) as host:
        services = context_of().services
        assert not services.has(LLM)
        assert services.has(WORKFLOW_MANAGER)
        with pytest.raises(ServiceUnavailable, match="acme needs the service llm, which no plugin provides"):
            services.get(LLM)
        with pytest.raises(ServiceUnavailable, match="needs the service llm"):
            host.services.get(LLM)


# --- what is there to see ----------------------------------------------------------------------------


async def test_a_view_has_only_its_interfaces_methods(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = {"extensions.tavern-postgres.url": "postgresql:///none", "extensions.tavern-dask.scheduler": "tcp://[::1]:9"}
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps(used))
    async with host_with(project, contextual(tmp_path)):
        for interface in interfaces().values():
            view = context_of().services.get(ServiceKey(interface))
            public = {name for name in dir(view) if not name.startswith("_")}
            assert public == set(interface_methods(interface))
            assert {n for n in dir(view) if n.startswith("_") and not n.startswith("__")} == set()
            for name in public:
                declared = inspect.signature(getattr(interface, name))
                assert list(inspect.signature(getattr(view, name)).parameters) == list(declared.parameters)[1:]
                assert getattr(view, name).__doc__ == getattr(interface, name).__doc__


# --- for whom ----------------------------------------------------------------------------------------

BODY = """
    async def complete(self, request, *, call=None):
        SEEN.append(call)
        if request.model == "broken":
            raise KeyError("mine")
        return LlmResponse(text="hello", model="x")

    async def stream(self, request, *, call=None):
        raise KeyError("mine")
        yield
"""
PROVIDER = overriding("LLM", BODY, head="from tavern_llm.api.llm import LlmResponse\nSEEN = []")
USES_LLM = {"services": {"use": ["llm:complete"]}}


def provider(parent: Path) -> Path:
    """Write an override of `llm` that keeps the calls that it gets."""
    return make_plugin(parent, "provider", PROVIDER, permissions={"services": {"override": ["llm"]}})


def asking(model: str | None = None) -> LlmRequest:
    return LlmRequest(model=model, messages=[ChatMessage(role="user", content="hi")])


async def test_calls_reach_the_provider_and_errors_name_it(project: Path, tmp_path: Path) -> None:
    async with host_with(project, provider(tmp_path), contextual(tmp_path, permissions=USES_LLM)) as host:
        llm, call = context_of().services.get(LLM), by("agent", "assistant").child(run_id="run_1")
        await llm.complete(asking(), call=call)
        (seen,) = module_of("provider").SEEN
        assert seen == call.model_copy(update={"id": seen.id, "parent_id": call.id, "via": "acme"})
        with pytest.raises(PluginFailure, match=r"provider failed in llm\.complete: KeyError: 'mine'") as caught:
            await llm.complete(asking("broken"))
        assert caught.value.info.plugin == "provider"
        with pytest.raises(PluginFailure, match=r"provider failed in llm\.stream"):
            await anext(aiter(llm.stream(asking("broken"))))
        assert len(problems_of(host, "provider")) == 2
        assert problems_of(host, "acme") == []


# --- when it ends ------------------------------------------------------------------------------------


async def test_a_revoked_plugin_starts_nothing_through_its_context(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path), trust=[]) as host:
        await host.grant("acme")
        context = context_of()
        await host.revoke("acme")
        for call in (
            context.services.invoke("workflowManager", "get", {"workflowId": "tale"}, call=by("system", "host")),
            context.hooks.collect("tavern_startup"),
        ):
            with pytest.raises(PermissionDenied):
                await call
        for start in (
            lambda: context.services.get(WORKFLOW_MANAGER),
            lambda: context.tasks.spawn(asyncio.sleep(0), name="late"),
            context.events.subscribe,
            lambda: context.events.publish("LATE", {}),
            context.http.session,
        ):
            with pytest.raises(PermissionDenied, match="acme is not loaded any more"):
                start()


async def test_views_obtained_during_shutdown_end_with_it(project: Path, tmp_path: Path) -> None:
    code = (
        KEEP_CONTEXT
        + """
import asyncio
from tavern_host import WORKFLOW_MANAGER

GOT = []

async def cling(context):
    try:
        await asyncio.sleep(3600)
    finally:
        GOT.append(context.services.get(WORKFLOW_MANAGER))

@hookimpl
async def tavern_shutdown(context):
    GOT.append(context.services.get(WORKFLOW_MANAGER))
    context.tasks.spawn(cling(context), name="cling")
    await asyncio.sleep(0)
"""
    )
    folder = make_plugin(tmp_path, "acme", code, hooked=["tavern_startup", "tavern_shutdown"], permissions=ALLOWED)
    async with host_with(project, folder, trust=[]) as host:
        await host.grant("acme")
        got = module_of().GOT
        await host.revoke("acme")
        assert got
        for view in got:
            with pytest.raises(TavernError):
                await view.save("newer", Workflow(name="Newer"))
    assert not (project / "workflows" / "newer.json").exists()


# --- by name -----------------------------------------------------------------------------------------


async def test_methods_can_be_called_by_name_with_json(project: Path, tmp_path: Path) -> None:
    permissions = {"services": {"use": ["workflowManager:save", "llm:complete"]}}
    async with host_with(project, contextual(tmp_path, permissions=permissions)):
        invoke, call = context_of().services.invoke, by("user", "somebody")
        stored = await invoke("workflowManager", "get", {"workflowId": "tale"}, call=call)
        assert stored["workflow"]["name"] == "Tale"
        assert await invoke("workflowManager", "get", {"workflow_id": "tale"}, call=call) == stored
        workflow = {"name": "New", "nodes": [], "edges": []}
        arguments = {"workflowId": "new", "workflow": workflow, "expectedRevision": ""}
        saved = await invoke("workflowManager", "save", arguments, call=call)
        assert (saved["id"], type(saved["revision"])) == ("new", str)
        with Failures() as failures:
            for service, method, arguments, error, text in WRONG_CALLS:
                with failures.row(text), pytest.raises(error, match=text):
                    await invoke(service, method, arguments, call=call)


WRONG_CALLS: list[tuple[str, str, dict[str, Any], type[TavernError], str]] = [
    ("workflowMangr", "get", {}, NotFound, "there is no service 'workflowMangr'; did you mean workflowManager?"),
    ("workflowManager", "gt", {}, NotFound, "there is no method of workflowManager 'gt'; did you mean get?"),
    ("workflowManager", "__init__", {}, NotFound, "there is no method of workflowManager '__init__'"),
    ("workflowManager", "_read", {}, NotFound, "there is no method of workflowManager '_read'"),
    ("workflowManager", "get", {}, InvalidInput, "workflowManager.get: the argument 'workflow_id' is missing"),
    ("workflowManager", "get", {"id": "x"}, InvalidInput, "unknown argument 'id'"),
    ("workflowManager", "get", {"workflowId": 5}, InvalidInput, "workflowId: Input should be a valid string"),
    ("workflowManager", "get", {"self": 1, "workflowId": "tale"}, InvalidInput, "unknown argument 'self'"),
    ("workflowManager", "save", {"call": {}}, InvalidInput, "unknown argument 'call'.*'workflow_id' is missing"),
    ("workflowManager", "get", {"workflowId": "nope"}, NotFound, "nope"),
    ("executionEngine", "submit", {"request": {}}, PermissionDenied, "acme may not call executionEngine.submit"),
    ("llm", "stream", {"request": {"messages": []}}, InvalidInput, "llm.stream is a stream and cannot be called"),
]


async def test_a_plugin_may_revoke_itself(project: Path, tmp_path: Path) -> None:
    folder = contextual(tmp_path, permissions={"services": {"use": ["plugins:grant"]}})
    async with host_with(project, folder, trust=[]) as host:
        await host.grant("acme")
        context = context_of()

        async def leave() -> str:
            return (await context.services.get(PLUGINS).revoke("acme")).state.value

        async with asyncio.timeout(60):
            assert await context.tasks.spawn(leave(), name="leave") == "needs-review"
        assert host.plugin("acme").contributions == {}
        await host.grant("acme")
        assert host.plugin("acme").state.value == "started"


async def test_a_plugin_may_revoke_itself_at_startup(project: Path) -> None:
    code = """
from tavern_host import PLUGINS, hookimpl

@hookimpl
async def tavern_startup(context):
    await context.services.get(PLUGINS).revoke("acme")
"""
    permissions = {"services": {"use": ["plugins:grant"]}}
    make_plugin(project / "plugins", "acme", code, hooked=["tavern_startup"], permissions=permissions)
    first = Host(project)
    first.link()
    await first.grant("acme")
    async with asyncio.timeout(60), Host(project) as host:
        assert (host.plugin("acme").state.value, host.plugin("acme").contributions) == ("needs-review", {})
