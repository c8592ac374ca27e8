"""Calls through a view: when they end, in whose name they are made, and what a refusal shows of the host."""

from __future__ import annotations

import dataclasses
import functools
import sys
import traceback
import types
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from escape_scene import scene
from helpers.folder_plugins import write_plugin
from helpers.issued_contexts import issued_by
from helpers.repetition import Failures

from tavern_host import AUDIT, EXECUTION_ENGINE, LLM, WORKFLOW_MANAGER, CallContext, Host, Principal
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.errors import InvalidInput, PermissionDenied, TavernError
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import ChatMessage, LlmRequest

SAVE = ["workflowManager:save"]


def by(kind: Any, name: str) -> CallContext:
    return CallContext(principal=Principal(kind=kind, id=name))


# --- when they end -----------------------------------------------------------------------------------


def rebuilt(method: Any) -> Any:
    """Return a new function of the same code over the same cells."""
    return types.FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__
    )


def by_reference(method: weakref.ref[Any]) -> Any:
    found = method()
    return found("tale")


KEPT: dict[str, Callable[[Any], Any]] = {
    "the view": lambda view: lambda: view.get("tale"),
    "a method": lambda view: functools.partial(view.get, "tale"),
    "a method by its type": lambda view: functools.partial(type(view).get, "tale"),
    "a weak reference": lambda view: functools.partial(by_reference, weakref.ref(view.get)),
    "a method of a copy of its own": lambda view: functools.partial(type(view)().get, "tale"),
    "a function rebuilt from its parts": lambda view: functools.partial(rebuilt(view.get), "tale"),
}


async def test_nothing_kept_of_a_view_outlives_its_grant(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        every, plain = {name: keep(on.view) for name, keep in KEPT.items()}, on.plain.get
        for kept in every.values():
            assert (await kept()).id == "tale"
        await on.host.revoke("acme")
        with Failures() as failures:
            for name, kept in every.items():
                with (
                    failures.row(name),
                    pytest.raises(PermissionDenied, match=r"acme may not call workflowManager\.get"),
                ):
                    await kept()
        assert (await plain("tale")).id == "tale"


async def test_calls_prepared_before_a_revoke_are_refused(tmp_path: Path) -> None:
    async with scene(tmp_path, use=[*SAVE, "llm:complete", "executionEngine:interrupt"]) as on:
        workflow = Workflow(name="Mine")
        llm = on.context.services.get(LLM)
        request = LlmRequest(messages=[ChatMessage(role="user", content="hi")])
        engine = on.context.services.get(EXECUTION_ENGINE)
        plain = on.plain.save("mine", workflow)
        prepared = [on.view.save("mine", workflow), llm.complete(request), engine.interrupt("run_1")]
        stream = llm.stream(request)
        await on.host.revoke("acme")
        for call in prepared:
            with pytest.raises(PermissionDenied, match="acme may not call"):
                await call
        with pytest.raises(PermissionDenied, match="acme may not call"):
            await anext(aiter(stream))
        assert on.plain.calls == []
        await plain
        assert on.plain.calls == [None]


# --- in whose name -----------------------------------------------------------------------------------


async def test_a_plugin_cannot_lend_its_permission(tmp_path: Path) -> None:
    async with scene(tmp_path, use=[*SAVE, "llm:complete"]) as on:
        for call in (issued_by("plugin", "vault"), issued_by("plugin", "nobody-knows")):
            with pytest.raises(PermissionDenied, match=r"may not call workflowManager\.save") as refused:
                await on.view.save("mine", Workflow(name="Mine"), call=call)
            assert refused.value.info.plugin == call.principal.id
            stream = on.context.services.get(LLM).stream(LlmRequest(messages=[]), call=call)
            with pytest.raises(PermissionDenied, match=r"may not call llm\.stream"):
                await anext(aiter(stream))
        assert on.plain.calls == []


class SlyCall(CallContext):
    """A context that names itself at its first reading and another one later."""

    def __getattribute__(self, name: str) -> Any:
        if name != "principal":
            return super().__getattribute__(name)
        asked = self.__dict__["asked"] = self.__dict__.get("asked", 0) + 1
        return Principal(kind="plugin", id="acme" if asked == 1 else "vault")


class SlyPrincipal(Principal):
    """A principal that is equal to everyone."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = Principal.__hash__


SLY_CALLS: list[tuple[Any, str]] = [
    (SlyCall(principal=Principal(kind="plugin", id="acme")), "call must be a CallContext, found SlyCall"),
    (
        CallContext.model_construct(principal=SlyPrincipal(kind="plugin", id="vault")),
        "call.principal must be a Principal, found SlyPrincipal",
    ),
    ({"principal": {"kind": "user", "id": "operator"}}, "call must be a CallContext, found dict"),
    ("operator", "call must be a CallContext, found str"),
]


async def test_only_a_plain_call_context_is_accepted(tmp_path: Path) -> None:
    async with scene(tmp_path, use=SAVE) as on:
        for call, found in SLY_CALLS:
            with pytest.raises(InvalidInput, match=f"^workflowManager.save: {found}$"):
                await on.view.save("mine", Workflow(name="Mine"), call=call)
        assert on.plain.calls == []


PROVIDER = """
from tavern_host import ServiceInfo, ServiceOverride, hookimpl
from tavern_llm.api.llm import Llm

KEPT = []

class Mine(ServiceOverride[Llm]):
    pass

@hookimpl
def tavern_startup(context):
    KEPT.append(context)

@hookimpl
def tavern_override_services():
    return [ServiceInfo(service="llm", handler=f"{__name__}:Mine", version=Llm.service_version)]
"""


async def test_a_provider_records_under_plain_contexts_only(tmp_path: Path) -> None:
    permissions = {"services": {"override": ["llm"]}, "hooks": ["hook:server:host:startup"]}
    acme = write_plugin(tmp_path / "acme", {"__init__.py": PROVIDER}, permissions=permissions)
    async with Host(tmp_path / "p", plugins=[acme], trust=["acme"]) as host:
        assert host.plugin("acme").problems == []
        audit = sys.modules["tavern_plugins.acme"].KEPT[0].audit
        for call, found in SLY_CALLS:
            with pytest.raises(InvalidInput, match=f": {found}$"):
                audit.record("acme.tried", call=call)
        assert "acme.tried" not in [entry.action for entry in await host.services.get(AUDIT).tail(100)]


# --- what a refusal shows ----------------------------------------------------------------------------


def locals_of(error: BaseException) -> list[object]:
    """Return the values of all variables in all frames that an error and its causes passed, this file's apart."""
    found: list[object] = []
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is None:
            continue
        todo += [each.__cause__, each.__context__]
        frames = [frame for frame, _ in traceback.walk_tb(each.__traceback__)]
        found += [v for f in frames if f.f_code.co_filename != __file__ for v in f.f_locals.values()]
    return found


async def error_of(call: Awaitable[object]) -> TavernError:
    """Return the error with which a call ends."""
    with pytest.raises(TavernError) as caught:
        await call
    return caught.value


async def test_naming_another_principal_gives_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        assert on.plain in locals_of(await error_of(on.plain.get("broken")))
        others = (by("plugin", "vault"), by("plugin", "tavern-engine"), by("user", "operator"), system_call())
        for call in (None, *others):
            error = await error_of(on.view.save("mine", Workflow(name="Mine"), call=call))
            assert isinstance(error, PermissionDenied) and "acme may not call workflowManager.save" in str(error)
            values = locals_of(error)
            assert (error.__cause__, error.__context__) == (None, None)
            assert on.plain not in [getattr(value, "__self__", value) for value in values]
            kinds = {f"{type(value).__module__}.{type(value).__qualname__}" for value in values}
            assert not {kind for kind in kinds if kind.startswith("tavern_host.") and ".contracts." not in kind}
            with pytest.raises(PermissionDenied, match="acme may not call"):
                arguments = {"workflowId": "mine", "workflow": {"name": "Mine"}}
                await on.context.services.invoke("workflowManager", "save", arguments, call=call)
        assert on.plain.calls == []


# --- the context -------------------------------------------------------------------------------------


async def test_a_context_with_a_forced_name_gains_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        for name in ("plugin", "services", "events", "hooks"):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(on.context, name, "vault")
        vars(on.context)["plugin"] = "vault"
        object.__setattr__(on.context, "plugin", "vault")
        assert on.context.plugin == "vault"
        assert on.context.events.publish("acme.said", {}).plugin == "acme"
        with pytest.raises(PermissionDenied, match=r"acme may not call workflowManager\.save"):
            await on.context.services.get(WORKFLOW_MANAGER).save("mine", Workflow(name="Mine"))
