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
        SEEN.append(sorted(kwargs))
        return function(*args, **kwargs)

    return wrapper


SEEN: list[list[str]] = []


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
    SEEN.append(["silent"])


@pytest.mark.parametrize("target", [add, later, soon, wrapped, slow])
async def test_a_node_is_called_with_its_inputs_by_name(runner_of: RunnerOf, target: Any) -> None:
    instance = runner_of(target).open({})
    assert await instance.run({"a": 1, "b": 2}, None) == {"result": 3}
    assert await instance.run({"a": 1}, None) == {"result": 11}


@pytest.mark.parametrize("target", [add, later, soon, wrapped, slow, scaled])
async def test_an_input_that_the_function_has_no_parameter_for_does_not_reach_it(
    runner_of: RunnerOf, target: Any
) -> None:
    assert await runner_of(target).open({}).run({"a": 1, "colour": "red"}, None) == {"result": 11}


async def test_configuration_wins_over_an_input_of_its_name_and_defaults_fill_it_up(runner_of: RunnerOf) -> None:
    runner = runner_of(scaled)
    assert await runner.open({"b": 5, "unknown": 1}).run({"a": 1, "b": 2}, None) == {"result": 6}
    assert await runner.open({}).run({"a": 1}, None) == {"result": 11}


async def test_a_missing_input_is_told_by_python(runner_of: RunnerOf) -> None:
    for target in (add, later, scaled, slow):
        with pytest.raises((TypeError, PluginFailure), match="missing 1 required positional argument: 'a'"):
            await runner_of(target).open({}).run({}, None)


async def test_a_type_error_of_the_node_itself_does_not_run_it_twice() -> None:
    SEEN.clear()

    @node()
    def odd(a: int) -> int:
        SEEN.append(["odd"])
        return a + "x"  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        await direct(odd).open({}).run({"a": 1}, None)
    assert SEEN == [["odd"]]


async def test_several_outputs_come_as_they_are_named(runner_of: RunnerOf) -> None:
    assert await runner_of(ends).open({}).run({"items": [1, 2]}, None) == {"first": 1, "last": 2}
    assert await runner_of(silent).open({}).run({}, None) == {}


async def test_a_dict_that_the_function_keeps_is_not_the_one_that_the_engine_gets() -> None:
    kept = {"first": 1, "last": 2}

    @node()
    def remembered() -> Ends:
        return kept  # type: ignore[return-value]

    outputs = await direct(remembered).open({}).run({}, None)
    kept.clear()
    assert outputs == {"first": 1, "last": 2}


@pytest.mark.parametrize("result", [[("first", 1)], None, "first"])
async def test_several_outputs_that_are_no_dict_are_the_nodes_failure(result: Any) -> None:
    @node()
    async def wrong() -> Ends:
        return result  # type: ignore[no-any-return]

    with pytest.raises(PluginFailure) as failed:
        await direct(wrong).open({}).run({}, None)
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


@node(definition=NodeDefinition(type="RawWhere", namespace="acme"))
def raw_where(inputs: dict[str, Any], config: dict[str, Any], here: NodeContext) -> dict[str, Any]:
    return {"place": [here.run_id, here.node_id, here.iteration, str(here.call.principal)]}


async def test_a_context_says_which_node_of_which_run_and_iteration_it_is(runner_of: RunnerOf) -> None:
    call = NodeCall(run_id="run_1", node_id="zone/n", call=system_call(), iteration=4)
    for target in (where, raw_where):
        outputs = await runner_of(target).open({}).run({"text": "", "context": "not this"}, call)
        assert outputs == {"place": ["run_1", "zone/n", 4, "system:host"]}


RAW = NodeDefinition(
    type="Raw",
    namespace="acme",
    config_schema={"size": SlotDefinition(data_flow_type="INTEGER", config={"default": 3})},
)


async def test_a_raw_node_gets_all_inputs_and_a_configuration_of_its_own(runner_of: RunnerOf) -> None:
    @node(definition=RAW)
    async def raw(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
        return {"inputs": inputs, "size": config.pop("size"), "more": config}

    instance = runner_of(raw).open({"colour": "red"})
    for _ in range(2):
        outputs = await instance.run({"a": 1}, None)
        assert outputs == {"inputs": {"a": 1}, "size": 3, "more": {"colour": "red"}}


async def test_a_node_that_does_not_stream_yields_its_outputs_once(runner_of: RunnerOf) -> None:
    assert [part async for part in runner_of(add).open({}).stream({"a": 1}, None)] == [{"result": 11}]


async def test_how_a_node_may_be_run_is_known_across_the_boundary() -> None:
    @node(cached=False, version="2", bypass="mute", actions={"go": lambda inputs, config: None})
    async def streams(text: str, context: NodeContext) -> AsyncIterator[str]:
        yield text

    definition = streams.__tavern_node__.definition  # type: ignore[attr-defined]
    (arrived,) = decode(encode([definition], list[NodeDefinition]), list[NodeDefinition])
    assert arrived == definition
    assert arrived.traits == NodeTraits(streams=True, cached=False, actions=("go",))


async def test_any_mapping_will_do() -> None:
    @node()
    def user_dict() -> Ends:
        return UserDict(first=1, last=2)  # type: ignore[return-value]

    assert await direct(user_dict).open({}).run({}, None) == {"first": 1, "last": 2}
