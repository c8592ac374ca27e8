"""Views of services: what a plugin may do through them, what it cannot see or change, and when they stop."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest
from plugin_maker import KEEP_CONTEXT, context_of, contextual, host_with, make_plugin, module_of, problems_of

from tavern_host import EXECUTION_ENGINE, LLM, PLUGINS, TOOL_MANAGER, WORKFLOW_MANAGER, Host
from tavern_host.contracts.calls import CallContext, Principal, system_call
from tavern_host.contracts.catalogue import interfaces
from tavern_host.contracts.errors import (
    InvalidInput,
    NotFound,
    PermissionDenied,
    PluginFailure,
    ServiceUnavailable,
    TavernError,
)
from tavern_host.contracts.llm import ChatMessage, LlmRequest
from tavern_host.contracts.services import ServiceInterface, ServiceKey, interface_methods, reads
from tavern_host.contracts.workflows import Workflow

ALLOWED = {"services": {"use": ["workflowManager:save"]}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with one workflow, `tale`."""
    root = tmp_path / "project"
    (root / "workflows").mkdir(parents=True)
    (root / "tavern.yaml").write_text("name: stories\n")
    (root / "workflows" / "tale.json").write_text('{"name": "Tale", "nodes": [], "edges": []}')
    return root


def by(kind: Any, name: str) -> CallContext:
    return CallContext(principal=Principal(kind=kind, id=name))


# --- what may be called ------------------------------------------------------------------------------


async def test_reading_needs_no_permission(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path)):
        services = context_of().services
        assert (await services.get(WORKFLOW_MANAGER).get("tale")).workflow.name == "Tale"
        assert await services.get(PLUGINS).list_plugins()
        assert (await services.get(EXECUTION_ENGINE).queue()).running == []


async def test_acting_needs_the_permission_and_the_refusal_says_which(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path)):
        workflows = context_of().services.get(WORKFLOW_MANAGER)
        with pytest.raises(PermissionDenied) as caught:
            await workflows.save("new", Workflow(name="New"))
        assert str(caught.value) == (
            "acme may not call workflowManager.save: it needs the permission services.use: workflowManager:save"
        )
        details = caught.value.info.details
        assert (details["service"], details["method"]) == ("workflowManager", "save")
        assert "workflowManager:save" in str(details["permission"])
        assert caught.value.info.plugin == "acme"
    assert not (project / "workflows" / "new.json").exists()


@pytest.mark.parametrize("use", ["workflowManager:save", "*"])
async def test_with_the_permission_it_may_act(project: Path, tmp_path: Path, use: str) -> None:
    folder = contextual(tmp_path, permissions={"services": {"use": [use]}})
    async with host_with(project, folder):
        await context_of().services.get(WORKFLOW_MANAGER).save("new", Workflow(name="New"))
    assert (project / "workflows" / "new.json").exists()


@pytest.mark.parametrize("interface", list(interfaces().values()), ids=lambda i: i.service_name)
async def test_every_acting_method_of_every_service_is_refused_without_permission(
    project: Path, tmp_path: Path, interface: type[ServiceInterface]
) -> None:
    async with host_with(project, contextual(tmp_path)):
        view = context_of().services.get(ServiceKey(interface))
        for name, info in interface_methods(interface).items():
            if info.permission is None:
                continue
            wanted = [p for p in inspect.signature(getattr(view, name)).parameters.values() if p.default is p.empty]
            with pytest.raises(PermissionDenied, match=f"acme may not call {interface.service_name}.{name}: "):
                named = {p.name: None for p in wanted if p.kind is p.KEYWORD_ONLY}
                result = getattr(view, name)(*[None for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD], **named)
                await (anext(aiter(result)) if hasattr(result, "__aiter__") else result)


async def test_the_operators_view_has_all_permissions(project: Path) -> None:
    async with Host(project) as host:
        await host.services.get(WORKFLOW_MANAGER).save("new", Workflow(name="New"))
    assert (project / "workflows" / "new.json").exists()


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


async def test_a_service_that_is_in_no_catalogue_is_unavailable(project: Path, tmp_path: Path) -> None:
    class Other(ServiceInterface, name="other"):
        @reads
        async def look(self) -> str:
            """Look."""

    async with host_with(project, contextual(tmp_path)):
        with pytest.raises(ServiceUnavailable, match="acme needs the service other"):
            context_of().services.get(ServiceKey(Other))


# --- what is there to see ----------------------------------------------------------------------------


async def test_a_view_has_the_methods_of_its_interface_and_nothing_else(project: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["_provider", "_context", "_target", "instance", "close", "save_all", "__dict__"])
async def test_private_and_unknown_names_do_not_exist(project: Path, tmp_path: Path, name: str) -> None:
    async with host_with(project, contextual(tmp_path)):
        with pytest.raises(AttributeError):
            getattr(context_of().services.get(WORKFLOW_MANAGER), name)


async def test_a_view_cannot_be_changed_copied_or_pickled(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path)):
        view: Any = context_of().services.get(WORKFLOW_MANAGER)
        for change in (
            lambda: setattr(view, "get", None),
            lambda: setattr(view, "new", 1),
            lambda: delattr(view, "get"),
            lambda: object.__setattr__(view, "get", None),
        ):
            with pytest.raises(AttributeError):
                change()
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                duplicate(view)


async def test_a_view_is_made_once_and_is_each_plugins_own(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path, "one"), contextual(tmp_path, "two")):
        one, two = context_of("one").services, context_of("two").services
        assert one.get(WORKFLOW_MANAGER) is one.get(WORKFLOW_MANAGER)
        assert one.get(WORKFLOW_MANAGER) is not two.get(WORKFLOW_MANAGER)
        assert type(one.get(WORKFLOW_MANAGER)) is not type(two.get(WORKFLOW_MANAGER))


async def test_what_is_done_to_a_result_reaches_nobody(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path)) as host:
        nodes = context_of().services.get(ServiceKey(interfaces()["nodeManager"]))
        first = await nodes.list_nodes()  # type: ignore[attr-defined]
        full_type, inputs = first[0].full_type, dict(first[0].inputs)
        first[0].inputs.clear()
        first.clear()
        assert (await nodes.get(full_type)).inputs == inputs  # type: ignore[attr-defined]
        plugins = await host.services.get(PLUGINS).list_plugins()
        plugins[0].permissions.clear()
        plugins.clear()
        assert (await host.services.get(PLUGINS).list_plugins())[0].permissions


async def test_a_key_of_a_plugins_own_making_gives_no_other_view(project: Path, tmp_path: Path) -> None:
    class Sly(ServiceInterface, name="workflowManager"):
        @reads
        async def save(self, workflow_id: str, workflow: Workflow) -> None:
            """Pretend that this only reads."""

        @reads
        async def _path(self, workflow_id: str) -> str:
            """Reach for what is private."""

    async with host_with(project, contextual(tmp_path)):
        services = context_of().services
        view = services.get(ServiceKey(Sly))
        assert not hasattr(view, "_path")
        with pytest.raises(PermissionDenied, match=r"workflowManager\.save"):
            await view.save("new", Workflow(name="New"))
        assert await services.get(WORKFLOW_MANAGER).list_workflows()


# --- for whom ----------------------------------------------------------------------------------------

PROVIDER = """
from tavern_host import LLM, hookimpl, service_info
from tavern_host.contracts.llm import Llm, LlmChunk, LlmResponse

SEEN = []

class Mine(Llm):
    async def models(self):
        return []

    async def complete(self, request, *, call=None):
        SEEN.append(call)
        if request.model == "broken":
            raise KeyError("mine")
        return LlmResponse(text="hello", model="x")

    async def stream(self, request, *, call=None):
        SEEN.append(call)
        try:
            for _ in range(3):
                if request.model == "broken":
                    raise KeyError("mine")
                yield LlmChunk(text="hello")
        finally:
            SEEN.append("closed")

@hookimpl
def tavern_override_services():
    return [service_info(LLM, Mine)]
"""
USES_LLM = {"services": {"use": ["llm:complete"]}}


def provider(parent: Path) -> Path:
    """Write an override of `llm` that keeps the calls that it gets."""
    return make_plugin(parent, "provider", PROVIDER, permissions={"services": {"override": ["llm"]}})


def asking(model: str | None = None) -> LlmRequest:
    return LlmRequest(model=model, messages=[ChatMessage(role="user", content="hi")])


async def test_the_call_is_filled_in_with_the_plugin_that_calls(project: Path, tmp_path: Path) -> None:
    async with host_with(project, provider(tmp_path), contextual(tmp_path, permissions=USES_LLM)):
        llm = context_of().services.get(LLM)
        await llm.complete(asking())
        assert [chunk.text async for chunk in llm.stream(asking())] == ["hello"] * 3
        calls = [call for call in module_of("provider").SEEN if call != "closed"]
        assert [str(call.principal) for call in calls] == ["plugin:acme"] * 2
        assert calls[0].id != calls[1].id


async def test_a_call_that_is_passed_on_stays_what_it_is(project: Path, tmp_path: Path) -> None:
    async with host_with(project, provider(tmp_path), contextual(tmp_path, permissions=USES_LLM)):
        call = by("agent", "assistant").child(run_id="run_1")
        await context_of().services.get(LLM).complete(asking(), call=call)
        (seen,) = module_of("provider").SEEN
        assert seen == call


async def test_a_plugin_lends_its_permission_to_no_other_plugin(project: Path, tmp_path: Path) -> None:
    able = contextual(tmp_path, "able", permissions=USES_LLM)
    async with host_with(project, provider(tmp_path), able, contextual(tmp_path, "unable")):
        llm = context_of("able").services.get(LLM)
        refusal = r"unable may not call llm\.complete: it needs .*llm:complete"
        with pytest.raises(PermissionDenied, match=refusal) as caught:
            await llm.complete(asking(), call=by("plugin", "unable"))
        assert caught.value.info.plugin == "unable"
        with pytest.raises(PermissionDenied):
            await llm.complete(asking(), call=by("plugin", "nobody-knows"))
        with pytest.raises(PermissionDenied):
            await anext(aiter(llm.stream(asking(), call=by("plugin", "unable"))))
        assert module_of("provider").SEEN == []


async def test_saying_that_it_acts_for_somebody_gives_a_plugin_nothing(project: Path, tmp_path: Path) -> None:
    able = contextual(tmp_path, "able", permissions=USES_LLM)
    async with host_with(project, able, contextual(tmp_path, "unable")):
        for call in (by("user", "operator"), by("plugin", "able"), by("plugin", "tavern-engine"), system_call()):
            with pytest.raises(PermissionDenied, match=r"may not call llm\.complete: it needs"):
                await context_of("unable").services.get(LLM).complete(asking(), call=call)


# --- what a provider raises --------------------------------------------------------------------------


async def test_what_a_third_partys_provider_raises_is_a_plugin_error_in_its_name(project: Path, tmp_path: Path) -> None:
    async with host_with(project, provider(tmp_path), contextual(tmp_path, permissions=USES_LLM)) as host:
        llm = context_of().services.get(LLM)
        with pytest.raises(PluginFailure, match=r"provider failed in llm\.complete: KeyError: 'mine'") as caught:
            await llm.complete(asking("broken"))
        assert caught.value.info.plugin == "provider"
        with pytest.raises(PluginFailure, match=r"provider failed in llm\.stream"):
            await anext(aiter(llm.stream(asking("broken"))))
        assert len(problems_of(host, "provider")) == 2
        assert problems_of(host, "acme") == []


async def test_leaving_a_stream_closes_it_at_the_provider(project: Path, tmp_path: Path) -> None:
    async with host_with(project, provider(tmp_path), contextual(tmp_path, permissions=USES_LLM)):
        stream: Any = context_of().services.get(LLM).stream(asking())
        assert (await anext(stream)).text == "hello"
        await stream.aclose()
        assert module_of("provider").SEEN[-1] == "closed"


# --- when it ends ------------------------------------------------------------------------------------


async def test_a_revoked_plugin_reaches_nothing_through_what_it_kept(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path, permissions=ALLOWED), trust=[]) as host:
        await host.grant("acme")
        context = context_of()
        view = context.services.get(WORKFLOW_MANAGER)
        get, save = view.get, view.save
        await save("new", Workflow(name="New"))
        await host.revoke("acme")
        for call in (
            lambda: get("tale"),
            lambda: view.get("tale"),
            lambda: save("newer", Workflow(name="Newer")),
            lambda: context.services.get(WORKFLOW_MANAGER).get("tale"),
            lambda: context.services.invoke("workflowManager", "get", {"workflowId": "tale"}, call=system_call()),
            lambda: context.hooks.collect("tavern_startup"),
        ):
            with pytest.raises(TavernError) as caught:
                await call()
            assert caught.value.info.code == "permission_denied"
    assert not (project / "workflows" / "newer.json").exists()


async def test_a_revoked_plugin_starts_nothing_through_its_context(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path), trust=[]) as host:
        await host.grant("acme")
        context = context_of()
        await host.revoke("acme")
        for start in (
            lambda: context.tasks.spawn(asyncio.sleep(60), name="late"),
            context.events.subscribe,
            lambda: context.events.publish("LATE", {}),
            context.http.session,
        ):
            with pytest.raises(PermissionDenied, match="acme is not loaded any more"):
                start()


async def test_what_a_plugin_gets_while_it_is_closed_is_gone_with_it(project: Path, tmp_path: Path) -> None:
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


async def test_views_of_a_provider_that_goes_say_so_and_work_again_when_it_comes_back(
    project: Path, tmp_path: Path
) -> None:
    folders = [provider(tmp_path), contextual(tmp_path, permissions=USES_LLM)]
    async with host_with(project, *folders, trust=["acme"]) as host:
        await host.grant("provider")
        complete = context_of().services.get(LLM).complete
        assert (await complete(asking())).text == "hello"
        await host.revoke("provider")
        with pytest.raises(TavernError) as caught:
            await complete(asking("scripted-that-is-not-there"))
        assert caught.value.info.code != "permission_denied"
        await host.grant("provider")
        assert (await complete(asking())).text == "hello"


async def test_after_the_host_has_stopped_nothing_answers(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path)) as host:
        view, mine = host.services.get(WORKFLOW_MANAGER), context_of().services.get(WORKFLOW_MANAGER)
    with pytest.raises(ServiceUnavailable, match="no plugin provides the service workflowManager any more"):
        await view.get("tale")
    with pytest.raises(PermissionDenied):
        await mine.get("tale")
    with pytest.raises(ServiceUnavailable):
        host.services.get(WORKFLOW_MANAGER)


# --- by name -----------------------------------------------------------------------------------------


async def test_a_method_is_called_by_name_with_json_in_and_out(project: Path, tmp_path: Path) -> None:
    async with host_with(project, contextual(tmp_path, permissions=ALLOWED)):
        invoke, call = context_of().services.invoke, by("user", "somebody")
        stored = await invoke("workflowManager", "get", {"workflowId": "tale"}, call=call)
        assert stored["workflow"]["name"] == "Tale"
        same = await invoke("workflowManager", "get", {"workflow_id": "tale"}, call=call)
        assert same == stored
        saved = await invoke(
            "workflowManager",
            "save",
            {"workflowId": "new", "workflow": {"name": "New", "nodes": [], "edges": []}, "expectedRevision": ""},
            call=call,
        )
        assert saved["id"] == "new"
        assert isinstance(saved["revision"], str)


@pytest.mark.parametrize(
    ("service", "method", "arguments", "error", "text"),
    [
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
    ],
)
async def test_a_wrong_call_by_name_is_told(
    project: Path, tmp_path: Path, service: str, method: str, arguments: dict[str, Any], error: type, text: str
) -> None:
    permissions = {"services": {"use": ["workflowManager:save", "llm:complete"]}}
    async with host_with(project, contextual(tmp_path, permissions=permissions)):
        with pytest.raises(error, match=text):
            await context_of().services.invoke(service, method, arguments, call=by("user", "x"))


async def test_a_call_by_name_has_the_rights_of_plugin_and_principal(project: Path, tmp_path: Path) -> None:
    able = contextual(tmp_path, "able", permissions=ALLOWED)
    arguments = {"workflowId": "new", "workflow": {"name": "New"}}
    async with host_with(project, able, contextual(tmp_path, "unable")):
        with pytest.raises(PermissionDenied, match="unable may not call"):
            await context_of("able").services.invoke("workflowManager", "save", arguments, call=by("plugin", "unable"))
        with pytest.raises(PermissionDenied, match="unable may not call"):
            await context_of("unable").services.invoke("workflowManager", "save", arguments, call=by("plugin", "able"))
    assert not (project / "workflows" / "new.json").exists()


async def test_the_plugins_service_lists_shows_and_decides(project: Path, tmp_path: Path) -> None:
    manages = contextual(tmp_path, "manages", permissions={"services": {"use": ["plugins:grant"]}})
    managed = make_plugin(tmp_path, "managed", "")
    async with host_with(project, manages, managed, trust=["manages"]) as host:
        plugins = context_of("manages").services.get(PLUGINS)
        assert (await plugins.get("managed")).state.value == "needs-review"
        assert (await plugins.grant("managed")).state.value == "started"
        assert (await plugins.revoke("managed")).state.value == "needs-review"
        with pytest.raises(NotFound, match="did you mean managed"):
            await plugins.get("managd")
        assert {p.name for p in await plugins.list_plugins()} == {p.name for p in host.plugins()}


async def test_a_plugin_may_have_itself_taken_out(project: Path, tmp_path: Path) -> None:
    folder = contextual(tmp_path, permissions={"services": {"use": ["plugins:grant"]}})
    async with host_with(project, folder, trust=[]) as host:
        await host.grant("acme")
        context = context_of()

        async def leave() -> str:
            return (await context.services.get(PLUGINS).revoke("acme")).state.value

        async with asyncio.timeout(10):
            assert await context.tasks.spawn(leave(), name="leave") == "needs-review"
        assert host.plugin("acme").contributions == {}
        await host.grant("acme")
        assert host.plugin("acme").state.value == "started"


async def test_a_plugin_may_have_itself_taken_out_at_startup(project: Path, tmp_path: Path) -> None:
    code = """
from tavern_host import PLUGINS, hookimpl

@hookimpl
async def tavern_startup(context):
    await context.services.get(PLUGINS).revoke("acme")
"""
    make_plugin(
        project / "plugins",
        "acme",
        code,
        hooked=["tavern_startup"],
        permissions={"services": {"use": ["plugins:grant"]}},
    )
    first = Host(project)
    first.link()
    await first.grant("acme")
    async with asyncio.timeout(10), Host(project) as host:
        assert host.plugin("acme").state.value == "needs-review"
        assert host.plugin("acme").contributions == {}


async def test_tools_of_a_revoked_plugin_are_gone_on_the_next_call(project: Path, tmp_path: Path) -> None:
    code = """
from tavern_host import ToolDefinition, ToolImplementation, hookimpl

@hookimpl
def tavern_discover_tools():
    made = ToolImplementation(kind="service", service="workflowManager", method="list_workflows")
    return [ToolDefinition(id="acme:tales", description="Lists tales.", implementation=made)]
"""
    folder = make_plugin(tmp_path, "acme", code, hooked=["tavern_discover_tools"])
    async with host_with(project, folder, trust=[]) as host:
        tools = host.services.get(TOOL_MANAGER)
        before = await tools.list_tools()
        await host.grant("acme")
        now = await tools.list_tools()
        await host.revoke("acme")
        assert [t.id for t in await tools.list_tools()] == [t.id for t in before]
        assert len(now) == len(before) + 1, problems_of(host)
