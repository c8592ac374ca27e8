"""Calling hooks: policies, order, whose task it is, deadlines, and what one implementation may do to the others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.held_time import HeldClock
from helpers.repetition import Failures
from plugin_maker import context_of, contextual, host_with, make_plugin, module_of, problems_of

from tavern_host import Host
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.errors import Forbidden, Vetoed
from tavern_host.contracts.executions import RunRequest
from tavern_host.hooks.dispatch import Dispatcher

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
    folders = [saying(tmp_path, "a"), saying(tmp_path, "b", kind="async def"), saying(tmp_path, "c")]
    async with host_with(tmp_path / "p", *folders, trust=["b", "c"]) as host:
        assert await said(host) == ["c", "b"]
        await host.grant("a")
        assert await said(host) == ["c", "b", "a"], "reloading a plugin keeps the order"
        order = [i.info.plugin for i in dispatcher(host).implementations("tavern_register_services")]
        assert order == [p.name for p in reversed(host.plugins()) if p.name in order]
        await host.revoke("a")
        assert await said(host) == ["c", "b"]


async def test_tryfirst_and_trylast_move_an_implementation(tmp_path: Path) -> None:
    marks = {"a": "(tryfirst=True)", "b": "", "c": "(trylast=True)", "d": "(tryfirst=True)"}
    folders = [saying(tmp_path, name, mark=mark) for name, mark in marks.items()]
    async with host_with(tmp_path / "p", *folders) as host:
        assert await said(host) == ["d", "a", "b", "c"]


# --- filters and vetoes ------------------------------------------------------------------------------


async def test_a_veto_ends_it_with_plugin_and_reason(tmp_path: Path) -> None:
    veto = "return Veto(reason='not on Sundays') if value.workflow_id == 'x' else None"
    async with host_with(tmp_path / "p", saying(tmp_path, "a"), implementing(tmp_path, "b", veto)) as host:
        assert await said(host) == ["a"], "None leaves the value as it is"
        with pytest.raises(Vetoed, match=r"^b refused: not on Sundays$") as caught:
            await run_through(host, RunRequest(workflow_id="x"))
        assert caught.value.info.plugin == "b"
        assert caught.value.info.details["reason"] == "not on Sundays"
        assert problems_of(host, "b") == []


CANCELLED = "task = asyncio.create_task(asyncio.sleep(60)); task.cancel(); await task"
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
    (CANCELLED, "waited for something that was cancelled"),
]


async def test_an_error_in_a_veto_hook_denies(tmp_path: Path) -> None:
    def failing(name: str, statement: str) -> Path:
        kind = "async def" if "await" in statement else "def"
        return implementing(tmp_path, name, f"if value.workflow_id == {name!r}:\n    {statement}", kind=kind)

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


OWN_TASK = """
SEEN.append(asyncio.current_task())
await asyncio.sleep(0)
async with asyncio.TaskGroup() as group:
    group.create_task(asyncio.sleep(0))
SEEN.append(asyncio.current_task())
try:
    async with asyncio.timeout(0.01):
        await asyncio.sleep(3600)
except TimeoutError:
    SEEN.append('its own limit')
async with asyncio.timeout(60):
    await asyncio.sleep(0)
raise TimeoutError('its own')
"""


async def test_an_async_implementation_runs_in_the_callers_task(tmp_path: Path) -> None:
    folder = implementing(tmp_path, "a", OWN_TASK, kind="async def")
    async with host_with(tmp_path / "p", folder) as host:
        with pytest.raises(Vetoed, match="TimeoutError: its own"):
            await run_through(host)
        assert [*[asyncio.current_task()] * 2, "its own limit"] == module_of("a").SEEN
        assert asyncio.current_task().cancelling() == 0


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


ENDLESS = [
    "await asyncio.sleep(60)",
    "await asyncio.get_running_loop().create_future()",
    "while True:\n    SEEN[0](1)  # a second passes\n    await asyncio.sleep(0)",
    "try:\n    await asyncio.sleep(60)\nfinally:\n    await asyncio.sleep(0.01)",
    "while True:\n    try:\n        await asyncio.sleep(60)\n    except asyncio.CancelledError:\n        pass",
    "while True:\n    try:\n        await asyncio.sleep(0.001)\n    except asyncio.CancelledError:\n        pass",
]


async def test_endless_implementations_are_given_up(tmp_path: Path, held_clock: HeldClock) -> None:
    rows = {f"a{number}": body.replace("\n", "\n    ") for number, body in enumerate(ENDLESS)}
    folders = [
        implementing(tmp_path, name, f"if value.workflow_id == {name!r}:\n    {body}", kind="async def")
        for name, body in rows.items()
    ]
    async with host_with(tmp_path / "p", *folders) as host:
        for name in rows:
            module_of(name).SEEN.append(held_clock.advance)
            with pytest.raises(Vetoed, match=rf"{BEFORE} of {name} did not end within 10 s"):
                await run_through(host, RunRequest(workflow_id=name))
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        held_clock.advance(60)
        for _ in range(3):
            await asyncio.sleep(0)  # nothing is left that would cancel this task later


async def test_one_that_answers_within_the_grace_is_heard(tmp_path: Path) -> None:
    body = (
        "try:\n    await asyncio.sleep(3600)\nexcept asyncio.CancelledError:\n    await asyncio.sleep(0.9)\n"
        "    return Veto(reason='sorry')"
    )
    async with host_with(tmp_path / "p", implementing(tmp_path, "a", body, kind="async def")) as host:
        with pytest.raises(Vetoed, match="a refused: sorry"):
            await run_through(host)
        assert asyncio.current_task().cancelling() == 0


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
    answers = {"a": f"SEEN.append(1); return [{node('A')}]", "b": "raise RuntimeError('no')", "c": "return None"}
    answers |= {"d": f"await asyncio.sleep(0); return [{node('D')}]", "e": "SEEN.append(1); sys.exit(1)"}
    kinds = {"d": "async def"}
    folders = [registering(tmp_path, name, body, kinds.get(name, "def")) for name, body in answers.items()]
    async with host_with(tmp_path / "p", *folders) as host:
        collected = await dispatcher(host).collect("tavern_register_nodes", {})
        assert [(a.plugin, [n.type for n in a.value]) for a in collected] == [("d", ["D"]), ("a", ["A"])]
        assert "RuntimeError: no" in problems_of(host, "b")[0]
        assert "tried to end the program" in problems_of(host, "e")[0]
        first = await dispatcher(host).first("tavern_register_nodes", {})
        assert (first.plugin, [n.type for n in first.value]) == ("d", ["D"])
        assert (module_of("e").SEEN, module_of("a").SEEN) == ([1, 1], [1]), "those that come later are not asked"
        assert await dispatcher(host).first(BEFORE, {}) is None


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
    async with host_with(tmp_path / "p", contextual(tmp_path), saying(tmp_path, "a"), trust=["acme"]) as host:
        hooks = context_of().hooks
        for hook in (BEFORE, "tavern_register_nodes", "tavern_startup", "tavern_nonsense"):
            for calling in (hooks.collect(hook), hooks.first(hook), hooks.filter(hook, RunRequest())):
                with pytest.raises(Forbidden, match=f"acme may not call {hook}: only .* may"):
                    await calling
        request, before = RunRequest(), hooks.revision
        assert not hooks.implemented(BEFORE) and not dispatcher(host).implemented(BEFORE)
        assert await run_through(host, request) is request, "what nobody implements costs one look"
        await host.grant("a")
        assert hooks.implemented(BEFORE) and dispatcher(host).implemented(BEFORE)
        assert hooks.revision > before


MACROS = "tavern_register_prompt_macros"
MACRO = f"""{HEAD}
from tavern_tools.api.macros import PromptMacroInfo
ASKED, GO = asyncio.Event(), asyncio.Event()

@hookimpl
async def {MACROS}():
    ASKED.set()
    await GO.wait()
    return [PromptMacroInfo(name=__name__.split(".")[1].split("_")[0], handler=f"{{__name__}}.web:answer")]
"""


async def test_an_answer_of_a_load_that_was_replaced_meanwhile_is_no_fault_of_the_next(tmp_path: Path) -> None:
    folders = [make_plugin(tmp_path, name, MACRO, hooked=[MACROS]) for name in ("aaa", "acme")]
    for folder in folders:
        (folder / "web.py").write_text("def answer(): ...\n")
    async with host_with(tmp_path / "p", *folders) as host:
        context = host._manager.active["tavern-tools"].context
        module_of("acme").GO.set()
        asking = asyncio.create_task(context.hooks.collect(MACROS))
        await module_of("aaa").ASKED.wait()  # it was loaded before, and is asked later
        await host.reload("acme")
        module_of("aaa").GO.set()
        assert {"acme", "aaa"} <= {one.plugin for one in await asking}
        assert problems_of(host) == []
