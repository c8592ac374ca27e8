"""What running an open node does: which arguments its function gets, and what becomes of its result."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections import UserDict
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, TypedDict

import pytest
from helpers.repetition import Failures
from node_runners import RunnerOf, direct

from tavern_host import Config, NodeContext, NodeDefinition, Slot, node
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.errors import PluginFailure
from tavern_host.contracts.nodes import NodeCall, NodeTraits, SlotDefinition
from tavern_host.runtime.codec import decode, encode


class Ends(TypedDict):
    first: Any
    last: Any


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as decorators do, for any arguments."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@node()
def add(a: int, b: int = 10) -> int:
    return a + b


@node()
async def later(a: int, b: int = 10) -> int:
    await asyncio.sleep(0)
    return a + b


@node()
def soon(a: int, b: int = 10) -> int:
    return later(a, b)  # type: ignore[return-value]


@node()
@logged
def wrapped(a: int, b: int = 10) -> int:
    return a + b


@node(blocking=True)
def slow(a: int, b: int = 10) -> int:
    assert threading.current_thread() is not threading.main_thread()
    return a + b


@node()
def scaled(a: int, b: Annotated[int, Config()] = 10) -> int:
    return a + b


@node()
async def ends(items: list[Any]) -> Ends:
    return {"first": items[0], "last": items[-1]}


@node()
def silent() -> None:
    """Give nothing."""


async def test_a_node_gets_its_inputs_by_name(runner_of: RunnerOf) -> None:
    """Those for which its function has a parameter; what is written as configuration wins over an input."""
    rows: list[tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        *((target, {}, {"a": 1, "b": 2}, {"result": 3}) for target in (add, later, soon, wrapped, slow)),
        *((target, {}, {"a": 1, "colour": "red"}, {"result": 11}) for target in (add, later, soon, wrapped, slow)),
        *((scaled, {}, inputs, {"result": 11}) for inputs in ({"a": 1}, {"a": 1, "colour": "red"})),
        (scaled, {"b": 5, "unknown": 1}, {"a": 1, "b": 2}, {"result": 6}),
        (ends, {}, {"items": [1, 2]}, {"first": 1, "last": 2}),
        (silent, {}, {}, {}),
    ]
    with Failures() as failures:
        for target, config, inputs, outputs in rows:
            with failures.row((target.__name__, config, inputs)):
                assert await runner_of(target).open(config).run(inputs, None) == outputs
    assert [part async for part in runner_of(add).open({}).stream({"a": 1}, None)] == [{"result": 11}]


async def test_a_missing_input_is_told_by_python(runner_of: RunnerOf) -> None:
    for target in (add, later, scaled, slow):
        with pytest.raises((TypeError, PluginFailure), match="missing 1 required positional argument: 'a'"):
            await runner_of(target).open({}).run({}, None)


async def test_a_type_error_of_the_node_itself_does_not_run_it_twice() -> None:
    seen = []

    @node()
    def odd(a: int) -> int:
        seen.append(a)
        return a + "x"  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        await direct(odd).open({}).run({"a": 1}, None)
    assert seen == [1]


async def test_several_outputs_are_a_copy_of_any_mapping() -> None:
    kept = {"first": 1, "last": 2}

    @node()
    def remembered(kind: str) -> Ends:
        return UserDict(kept) if kind == "mapping" else kept  # type: ignore[return-value]

    for kind in ("mapping", "dict"):
        outputs = await direct(remembered).open({}).run({"kind": kind}, None)
        assert outputs == {"first": 1, "last": 2}
    kept.clear()
    assert outputs == {"first": 1, "last": 2}


async def test_several_outputs_that_are_no_dict_are_the_nodes_failure() -> None:
    @node()
    async def wrong(result: Any) -> Ends:
        return result  # type: ignore[no-any-return]

    for result in ([("first", 1)], None, "first"):
        with pytest.raises(PluginFailure) as failed:
            await direct(wrong).open({}).run({"result": result}, None)
        expected = f"node Wrong returned {type(result).__name__}, expected a dict with its outputs (first, last)"
        assert failed.value.message == expected


def leave(a: int = 0) -> int:
    sys.exit(3)


async def leave_later(a: int = 0) -> int:
    raise KeyboardInterrupt


class Leaving:
    def __init__(self) -> None:
        sys.exit(4)

    def run(self) -> int:
        return 1


async def test_a_node_that_would_end_the_program_only_fails(runner_of: RunnerOf) -> None:
    for target, options in ((leave, {}), (leave, {"blocking": True}), (leave_later, {}), (Leaving, {})):
        made = node(**options)(target)  # type: ignore[arg-type,type-var]
        with pytest.raises(PluginFailure, match=r"node Leav\w+ tried to end the program \((SystemExit|Keyboard)"):
            await runner_of(made).open({}).run({}, None)


@node()
class Tally:
    def __init__(self, start: int = 0) -> None:
        self.count = start

    async def run(self, step: int, times: Annotated[int, Config()] = 1) -> int:
        self.count += step * times
        return self.count


async def test_each_instance_of_a_class_has_a_state_of_its_own(runner_of: RunnerOf) -> None:
    runner = runner_of(Tally)
    first, second = runner.open({}), runner.open({"start": 100, "times": 2})
    totals = [(await instance.run({"step": 1}, None))["result"] for instance in (first, first, second, second)]
    assert totals == [1, 2, 102, 104]
    await first.close()


@node()
async def where(context: NodeContext, text: str = "") -> Annotated[list[Any], Slot(key="place")]:
    return [context.run_id, context.node_id, context.iteration, str(context.call.principal)]


SIZE = SlotDefinition(data_flow_type="INTEGER", config={"default": 3})
RAW = NodeDefinition(type="Raw", namespace="acme", config_schema={"size": SIZE})


@node(definition=RAW)
async def raw(inputs: dict[str, Any], config: dict[str, Any], here: NodeContext) -> dict[str, Any]:
    place = [here.run_id, here.node_id, here.iteration, str(here.call.principal)]
    return {"place": place, "inputs": inputs, "size": config.pop("size"), "more": config}


async def test_a_context_says_which_node_of_which_run_it_is(runner_of: RunnerOf) -> None:
    """A raw node gets all inputs and a configuration of its own."""
    call = NodeCall(run_id="run_1", node_id="zone/n", call=system_call(), iteration=4)
    inputs = {"text": "", "context": "not this"}
    place = ["run_1", "zone/n", 4, "system:host"]
    assert await runner_of(where).open({}).run(inputs, call) == {"place": place}
    instance = runner_of(raw).open({"colour": "red"})
    for _ in range(2):
        outputs = await instance.run(inputs, call)
        assert outputs == {"place": place, "inputs": inputs, "size": 3, "more": {"colour": "red"}}


async def test_how_a_node_may_be_run_is_known_across_the_boundary() -> None:
    @node(cached=False, version="2", bypass="mute", actions={"go": lambda inputs, config: None})
    async def streams(text: str, context: NodeContext) -> AsyncIterator[str]:
        yield text

    definition = streams.__tavern_node__.definition  # type: ignore[attr-defined]
    (arrived,) = decode(encode([definition], list[NodeDefinition]), list[NodeDefinition])
    assert arrived == definition
    assert arrived.traits == NodeTraits(streams=True, cached=False, actions=("go",))
