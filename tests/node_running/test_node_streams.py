"""Nodes that stream: what they yield, what they read, and who closes what when somebody leaves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from node_runners import RunnerOf, carried, direct

from tavern_host import Config, NodeContext, NodeDefinition, Slot, node
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.errors import InvalidInput, PluginFailure
from tavern_host.contracts.nodes import NodeCall, NodeInstance, SlotDefinition

ENDED: list[str] = []


class Told(TypedDict):
    word: Annotated[str, Slot(stream=True)]
    whole: NotRequired[str]


@node()
async def count(to: int, step: Annotated[int, Config()] = 1) -> AsyncIterator[int]:
    try:
        for number in range(0, to, step):
            yield number
    finally:
        await asyncio.sleep(0)
        ENDED.append("count")


@node()
async def tell(text: str) -> AsyncIterator[Told]:
    for word in text.split():
        yield {"word": word}
    yield {"word": "end", "whole": "too early"}
    yield {"whole": text}  # type: ignore[typeddict-item]  # some of the keys


@node()
async def shout(words: AsyncIterator[str], mark: str = "!") -> AsyncIterator[str]:
    async for word in words:
        yield word + mark


@node()
async def join(words: AsyncIterator[str]) -> str:
    return " ".join([word async for word in words])


async def items(*values: Any) -> AsyncGenerator[Any, None]:
    try:
        for value in values:
            yield value
    finally:
        ENDED.append("items")


async def read(instance: NodeInstance, **inputs: Any) -> list[Any]:
    return [part async for part in instance.stream(inputs, None)]


@pytest.fixture(autouse=True)
def nothing_has_ended() -> None:
    ENDED.clear()


async def test_items_and_other_outputs_are_yielded_by_key(runner_of: RunnerOf) -> None:
    """And `run` collects what nobody reads."""
    counted, told = runner_of(count), runner_of(tell).open({})
    assert await read(counted.open({"step": 2}), to=5) == [{"result": 0}, {"result": 2}, {"result": 4}]
    assert ENDED == ["count"]
    parts = [{"word": "a"}, {"word": "b"}, {"word": "end", "whole": "too early"}, {"whole": "a b"}]
    assert await read(told, text="a b") == parts
    assert [await counted.open({}).run({"to": to}, None) for to in (3, 0)] == [{"result": [0, 1, 2]}, {"result": []}]
    assert await told.run({"text": "a b"}, None) == {"word": ["a", "b", "end"], "whole": "a b"}


async def test_a_node_reads_a_stream_and_gives_one_or_a_value(runner_of: RunnerOf) -> None:
    assert await read(runner_of(shout).open({}), words=items("a", "b")) == [{"result": "a!"}, {"result": "b!"}]
    assert await runner_of(join).open({}).run({"words": items("a", "b")}, None) == {"result": "a b"}


async def test_a_reader_that_leaves_ends_the_nodes_code(runner_of: RunnerOf) -> None:
    stream: Any = runner_of(count).open({}).stream({"to": 1000}, None)
    assert await anext(stream) == {"result": 0}
    await stream.aclose()
    assert ENDED == ["count"]


async def test_items_are_values_and_not_objects_behind_the_boundary() -> None:
    sent = [[1], [2]]

    @node()
    async def change(lists: AsyncIterator[list[int]]) -> AsyncIterator[list[int]]:
        async for one in lists:
            one.append(0)
            yield one
            one.append(9)

    assert await read(carried(change).open({}), lists=items(*sent)) == [{"result": [1, 0]}, {"result": [2, 0]}]
    assert sent == [[1], [2]]


async def test_an_error_in_the_middle_comes_after_what_was_yielded(runner_of: RunnerOf) -> None:
    @node()
    async def break_off(kind: str) -> AsyncIterator[int]:
        yield 1
        raise ValueError("boom") if kind == "value" else InvalidInput("boom")

    for kind, errors in (("value", (ValueError, PluginFailure)), ("input", (InvalidInput,))):
        parts = []
        with pytest.raises(errors, match="boom"):
            async for part in runner_of(break_off).open({}).stream({"kind": kind}, None):
                parts.append(part)
        assert parts == [{"result": 1}]


async def leave_between(to: int = 0) -> AsyncIterator[int]:
    yield 1
    sys.exit(3)


async def leave_in_the_end(to: int = 0) -> AsyncIterator[int]:
    try:
        yield 1
        yield 2
    finally:
        raise KeyboardInterrupt


async def test_a_stream_that_would_end_the_program_only_fails(runner_of: RunnerOf) -> None:
    with pytest.raises(PluginFailure, match="node LeaveBetween tried to end the program"):
        await read(runner_of(node()(leave_between)).open({}))
    stream: Any = runner_of(node()(leave_in_the_end)).open({}).stream({}, None)
    await anext(stream)
    with pytest.raises(PluginFailure, match="node LeaveInTheEnd tried to end the program"):
        await stream.aclose()


async def test_a_part_that_is_no_dict_is_the_nodes_failure() -> None:
    @node()
    async def mistaken() -> AsyncIterator[Told]:
        yield "word"  # type: ignore[misc]

    with pytest.raises(PluginFailure) as failed:
        await read(direct(mistaken).open({}))
    assert failed.value.message == "node Mistaken yielded str, expected a dict with its outputs (word, whole)"


ITEM, PLACE = SlotDefinition(data_flow_type="WILDCARD", is_stream=True), SlotDefinition(data_flow_type="STRING")
RAW = NodeDefinition(type="Raw", namespace="acme", outputs={"item": ITEM, "place": PLACE})


async def test_a_raw_node_that_streams_yields_by_slot_and_may_have_a_context(runner_of: RunnerOf) -> None:
    @node(definition=RAW)
    async def raw(inputs: dict[str, Any], config: dict[str, Any], here: NodeContext) -> AsyncIterator[dict[str, Any]]:
        async for item in inputs["items"]:
            yield {"item": item}
        yield {"place": f"{here.node_id} {config['colour']}"}

    call = NodeCall(run_id="run_1", node_id="n1", call=system_call())
    instance = runner_of(raw).open({"colour": "red"})
    parts = [part async for part in instance.stream({"items": items(1, None)}, call)]
    assert parts == [{"item": 1}, {"item": None}, {"place": "n1 red"}]
    assert await instance.run({"items": items(1, 2)}, call) == {"item": [1, 2], "place": "n1 red"}
