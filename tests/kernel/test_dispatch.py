"""Calling hooks: policies, order, whose task it is, deadlines, and what one implementation may do to the others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from plugin_maker import context_of, contextual, host_with, make_plugin, module_of, problems_of

from tavern_host import Host
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.errors import Forbidden, Vetoed
from tavern_host.contracts.executions import RunRequest
from tavern_host.hooks import dispatch
from tavern_host.hooks.dispatch import Dispatcher
from tavern_host.runtime import threads

BEFORE = "tavern_before_execute"
HEAD = """
import asyncio, contextvars, sys, threading
from tavern_host import Veto, hookimpl
SEEN = []
"""


def dispatcher(host: Host) -> Dispatcher:
    """Return the kernel's own part that calls hooks; plugins reach it through `context.hooks` only."""
    return host._manager.dispatcher


def implementing(parent: Path, name: str, body: str, *, hook: str = BEFORE, mark: str = "", kind: str = "def") -> Path:
    """Write a plugin with one hook; in its body `value` is what it was given first."""
    first = "request" if hook == BEFORE else "node"
    lines = "\n    ".join(body.splitlines())
    code = f"{HEAD}\n@hookimpl{mark}\n{kind} {hook}({first}):\n    value = {first}\n    {lines}\n"
    return make_plugin(parent, name, code, hooked=[hook])


def saying(parent: Path, name: str, **options: str) -> Path:
    """Write a plugin that adds its name to the list `said` in the inputs of a run."""
    body = f"return value.model_copy(update={{'inputs': {{'said': [*value.inputs.get('said', []), {name!r}]}}}})"
    return implementing(parent, name, body, **options)


async def run_through(host: Host, request: RunRequest | None = None, call: CallContext | None = None) -> RunRequest:
    """Pass a request through all implementations of `tavern_before_execute`."""
    return await dispatcher(host).filter(BEFORE, request or RunRequest(), {"call": call or system_call()})


async def said(host: Host) -> Any:
    return (await run_through(host)).inputs.get("said")


# --- order -------------------------------------------------------------------------------------------


async def test_hooks_of_the_last_loaded_plugin_run_first(tmp_path: Path) -> None:
    folders = [saying(tmp_path, name) for name in ("a", "b", "c")]
    async with host_with(tmp_path / "p", *folders) as host:
        assert await said(host) == ["c", "b", "a"]
        order = [i.info.plugin for i in dispatcher(host).implementations("tavern_register_services")]
        assert order == [p.name for p in reversed(host.plugins()) if p.name in order]


async def test_tryfirst_and_trylast_move_an_implementation(tmp_path: Path) -> None:
    folders = [
        saying(tmp_path, "a", mark="(tryfirst=True)"),
        saying(tmp_path, "b"),
        saying(tmp_path, "c", mark="(trylast=True)"),
        saying(tmp_path, "d", mark="(tryfirst=True)"),
    ]
    async with host_with(tmp_path / "p", *folders) as host:
        assert await said(host) == ["d", "a", "b", "c"]


async def test_reloading_a_plugin_keeps_the_hook_order(tmp_path: Path) -> None:
    folders = [saying(tmp_path, name) for name in ("a", "b", "c")]
    async with host_with(tmp_path / "p", *folders, trust=["b", "c"]) as host:
        assert await said(host) == ["c", "b"]
        await host.grant("a")
        assert await said(host) == ["c", "b", "a"]
        await host.revoke("a")
        assert await said(host) == ["c", "b"]


async def test_a_hook_that_nobody_implements_costs_one_look(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p", saying(tmp_path, "a"), trust=[]) as host:
        request = RunRequest()
        assert not dispatcher(host).implemented(BEFORE)
        assert await run_through(host, request) is request
        before = dispatcher(host).revision
        await host.grant("a")
        assert dispatcher(host).implemented(BEFORE)
        assert dispatcher(host).revision > before


# --- filters and vetoes ------------------------------------------------------------------------------


async def test_sync_and_async_implementations_stand_in_one_line(tmp_path: Path) -> None:
    folders = [saying(tmp_path, "a"), saying(tmp_path, "b", kind="async def"), saying(tmp_path, "c")]
    async with host_with(tmp_path / "p", *folders) as host:
        assert await said(host) == ["c", "b", "a"]


async def test_none_leaves_the_value_as_it_is(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p", implementing(tmp_path, "a", "return None")) as host:
        request = RunRequest(workflow_id="x", inputs={"a": [1]})
        assert await run_through(host, request) == request


async def test_a_veto_ends_it_with_plugin_and_reason(tmp_path: Path) -> None:
    folders = [saying(tmp_path, "a"), implementing(tmp_path, "b", "return Veto(reason='not on Sundays')")]
    async with host_with(tmp_path / "p", *folders) as host:
        with pytest.raises(Vetoed, match=r"^b refused: not on Sundays$") as caught:
            await run_through(host)
        assert caught.value.info.plugin == "b"
        assert caught.value.info.details["reason"] == "not on Sundays"
        assert problems_of(host, "b") == []


FAILURES = [
    ("raise RuntimeError('no')", "RuntimeError: no"),
    ("raise KeyError('x')", "KeyError: 'x'"),
    ("sys.exit(1)", "tried to end the program"),
    ("return 'text'", "returned str, expected RunRequest, Veto or None"),
    ("return {}", "returned dict, expected RunRequest, Veto or None"),
    ("return True", "returned bool, expected RunRequest, Veto or None"),
    ("return object()", "returned object, expected RunRequest, Veto or None"),
    ("return asyncio.sleep", "returned builtin_function_or_method|returned function"),
    ("return value.model_copy(update={'inputs': 5})", "returned a RunRequest that is none: inputs"),
    ("return value.model_copy(update={'nonsense': 5})", "returned a RunRequest that is none: nonsense"),
]


async def test_an_error_in_a_veto_hook_denies(tmp_path: Path) -> None:
    def failing(name: str, statement: str) -> Path:
        return implementing(tmp_path, name, f"if value.workflow_id == {name!r}:\n    {statement}")

    rows = {f"a{number}": row for number, row in enumerate(FAILURES)}
    async with host_with(tmp_path / "p", *(failing(name, statement) for name, (statement, _) in rows.items())) as host:
        with Failures() as failures:
            for name, (statement, complaint) in rows.items():
                told = rf"^{name} failed in {BEFORE}, so this is refused: .*({complaint})"
                with failures.row(statement):
                    with pytest.raises(Vetoed, match=told) as caught:
                        await run_through(host, RunRequest(workflow_id=name))
                    assert caught.value.info.plugin == name
                    assert len(problems_of(host, name)) == 1


# --- whose task it is, and for how long --------------------------------------------------------------


async def test_an_async_implementation_runs_in_the_callers_task(tmp_path: Path) -> None:
    body = (
        "SEEN.append(asyncio.current_task())\nawait asyncio.sleep(0)\nSEEN.append(asyncio.current_task())\n"
        "async with asyncio.TaskGroup() as group:\n    group.create_task(asyncio.sleep(0))\n"
        "SEEN.append(asyncio.current_task())"
    )
    async with host_with(tmp_path / "p", implementing(tmp_path, "a", body, kind="async def")) as host:
        await run_through(host)
        assert set(module_of("a").SEEN) == {asyncio.current_task()}


async def test_a_plugins_own_time_limit_works_as_anywhere(tmp_path: Path) -> None:
    body = (
        "try:\n    async with asyncio.timeout(0.01):\n        await asyncio.sleep(60)\n"
        "except TimeoutError:\n    SEEN.append('mine')\n"
        "async with asyncio.timeout(60):\n    await asyncio.sleep(0)"
    )
    async with host_with(tmp_path / "p", implementing(tmp_path, "a", body, kind="async def")) as host:
        await run_through(host)
        assert module_of("a").SEEN == ["mine"]
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_plugins_timeout_error_is_its_own(tmp_path: Path) -> None:
    body = "await asyncio.sleep(0)\nraise TimeoutError('its own')"
    async with host_with(tmp_path / "p", implementing(tmp_path, "a", body, kind="async def")) as host:
        with pytest.raises(Vetoed, match="TimeoutError: its own"):
            await run_through(host)


async def test_cancelling_the_caller_reaches_the_implementation(tmp_path: Path) -> None:
    body = (
        "try:\n    SEEN.append('begun')\n    await asyncio.sleep(60)\n"
        "except asyncio.CancelledError:\n    SEEN.append('cancelled')\n    raise"
    )
    async with host_with(tmp_path / "p", implementing(tmp_path, "a", body, kind="async def")) as host:
        task = asyncio.create_task(run_through(host))
        while not module_of("a").SEEN:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert module_of("a").SEEN == ["begun", "cancelled"]
        assert problems_of(host, "a") == []


async def test_awaiting_a_cancelled_task_is_a_failure(tmp_path: Path) -> None:
    body = "other = asyncio.create_task(asyncio.sleep(60))\nother.cancel()\nawait other"
    async with host_with(tmp_path / "p", implementing(tmp_path, "a", body, kind="async def")) as host:
        with pytest.raises(Vetoed, match="waited for something that was cancelled"):
            await run_through(host)


ENDLESS = [
    "await asyncio.sleep(60)",
    "await asyncio.get_running_loop().create_future()",
    "while True:\n    await asyncio.sleep(0)",
    "try:\n    await asyncio.sleep(60)\nfinally:\n    await asyncio.sleep(0.01)",
    "while True:\n    try:\n        await asyncio.sleep(60)\n    except asyncio.CancelledError:\n        pass",
    "while True:\n    try:\n        await asyncio.sleep(0.001)\n    except asyncio.CancelledError:\n        pass",
]


async def test_endless_implementations_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "DEADLINE", 0.05)
    monkeypatch.setattr(threads, "GRACE", 0.1)
    rows = {f"a{number}": body.replace("\n", "\n    ") for number, body in enumerate(ENDLESS)}
    folders = [
        implementing(tmp_path, name, f"if value.workflow_id == {name!r}:\n    {body}", kind="async def")
        for name, body in rows.items()
    ]
    async with host_with(tmp_path / "p", *folders) as host:
        for name in rows:
            with pytest.raises(Vetoed, match=rf"{BEFORE} of {name} did not end within 0\.05 s"):
                await run_through(host, RunRequest(workflow_id=name))
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        await asyncio.sleep(0.15)  # nothing is left that would cancel this task later


async def test_one_that_answers_within_the_grace_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "DEADLINE", 0.05)
    body = (
        "try:\n    await asyncio.sleep(60)\nexcept asyncio.CancelledError:\n    await asyncio.sleep(0.01)\n"
        "    return Veto(reason='sorry')"
    )
    async with host_with(tmp_path / "p", implementing(tmp_path, "a", body, kind="async def")) as host:
        with pytest.raises(Vetoed, match="a refused: sorry"):
            await run_through(host)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


# --- collecting, through a plugin's own context ------------------------------------------------------

COLLECTS = (
    HEAD
    + """
from tavern_host import NodeDefinition

@hookimpl
{kind} tavern_register_nodes(context):
    {body}
"""
)


def registering(parent: Path, name: str, body: str, kind: str = "def") -> Path:
    return make_plugin(parent, name, COLLECTS.format(kind=kind, body=body), hooked=["tavern_register_nodes"])


def node(name: str) -> str:
    return f"NodeDefinition(type={name!r}, namespace='x', category='', display_name='', description='')"


async def test_collect_names_plugins_and_skips_errors(tmp_path: Path) -> None:
    folders = [
        registering(tmp_path, "a", f"return [{node('A')}]"),
        registering(tmp_path, "b", "raise RuntimeError('no')"),
        registering(tmp_path, "c", "return None"),
        registering(tmp_path, "d", f"await asyncio.sleep(0); return [{node('D')}]", "async def"),
        registering(tmp_path, "e", "sys.exit(1)"),
    ]
    async with host_with(tmp_path / "p", *folders) as host:
        answers = await dispatcher(host).collect("tavern_register_nodes", {})
        assert [(a.plugin, [n.type for n in a.value]) for a in answers] == [("d", ["D"]), ("a", ["A"])]
        assert "RuntimeError: no" in problems_of(host, "b")[0]
        assert "tried to end the program" in problems_of(host, "e")[0]


async def test_answers_name_the_loaded_code_of_their_plugin(tmp_path: Path) -> None:
    folder = registering(tmp_path, "a", f"return [{node('A')}]")
    async with host_with(tmp_path / "p", folder) as host:
        before = await dispatcher(host).collect("tavern_register_nodes", {})
        manifest = folder / "plugin.yaml"
        manifest.write_text(manifest.read_text().replace("version: 1.0.0", "version: 1.2.3"))
        await host.reload("a")
        after = await dispatcher(host).collect("tavern_register_nodes", {})
    assert [(a.plugin, a.code.partition(", sha256:")[0]) for a in (*before, *after)] == [("a", "1.0.0"), ("a", "1.2.3")]
    assert ", load 2" in after[0].code


async def test_first_returns_one_answer_and_skips_errors(tmp_path: Path) -> None:
    folders = [
        registering(tmp_path, "a", "return ['never asked']"),
        registering(tmp_path, "b", "return ['b']"),
        registering(tmp_path, "c", "await asyncio.sleep(0); return None", "async def"),
        registering(tmp_path, "d", "raise RuntimeError('no')"),
        registering(tmp_path, "e", "sys.exit(1)"),
    ]
    async with host_with(tmp_path / "p", *folders) as host:
        answer = await dispatcher(host).first("tavern_register_nodes", {})
        assert (answer.plugin, answer.value) == ("b", ["b"])
        assert len(problems_of(host, "d")) == len(problems_of(host, "e")) == 1
        assert await dispatcher(host).first(BEFORE, {}) is None


async def test_declarations_run_on_threads_and_filters_inline(tmp_path: Path) -> None:
    folders = [
        registering(tmp_path, "a", "SEEN.append(threading.get_ident())"),
        implementing(tmp_path, "b", "SEEN.append(threading.get_ident())"),
    ]
    async with host_with(tmp_path / "p", *folders) as host:
        await dispatcher(host).collect("tavern_register_nodes", {})
        await run_through(host)
        (declared,), (filtered,) = module_of("a").SEEN, module_of("b").SEEN
        assert declared != threading.get_ident()
        assert filtered == threading.get_ident()


async def test_only_a_services_provider_calls_its_hooks(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p", contextual(tmp_path)):
        hooks = context_of().hooks
        for hook in (BEFORE, "tavern_register_nodes", "tavern_startup", "tavern_nonsense"):
            for calling in (hooks.collect(hook), hooks.first(hook), hooks.filter(hook, RunRequest())):
                with pytest.raises(Forbidden, match=f"acme may not call {hook}: only .* may"):
                    await calling


async def test_any_plugin_may_ask_for_implementations(tmp_path: Path) -> None:
    async with host_with(tmp_path / "p", contextual(tmp_path), saying(tmp_path, "a")) as host:
        hooks = context_of().hooks
        assert hooks.implemented(BEFORE)
        before = hooks.revision
        await host.grant("a")
        assert hooks.revision > before
