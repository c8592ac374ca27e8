"""The platform's nodes that take a stream: `StreamLogger` and `StreamSuffixRelay`; and `TestWidgets`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from node_bench import DEFINITIONS, HostedNodes, Nodes, node_call

from tavern_host import InvalidInput


async def items(*values: Any) -> AsyncIterator[Any]:
    for value in values:
        yield value


async def test_a_suffix_is_added_to_each_piece(nodes: Nodes) -> None:
    parts = await nodes.stream("StreamSuffixRelay", {"inputStream": items("a", "b"), "suffix": "!"})
    assert parts == [{"outputStream": "a!"}, {"outputStream": "b!"}]
    assert await nodes.stream("StreamSuffixRelay", {"inputStream": items("a")}) == [{"outputStream": "a---"}]


async def test_a_piece_goes_on_before_the_next_one_comes(nodes: Nodes) -> None:
    taken: list[str] = []

    async def source() -> AsyncIterator[str]:
        for value in ("a", "b", "c"):
            taken.append(value)
            yield value

    stream = nodes.open("StreamSuffixRelay").stream({"inputStream": source(), "suffix": ""}, node_call())
    assert await anext(stream) == {"outputStream": "a"}
    assert taken == ["a"]
    await stream.aclose()  # type: ignore[attr-defined]


async def test_what_is_no_stream_is_refused(nodes: Nodes) -> None:
    with pytest.raises(InvalidInput, match="StreamSuffixRelay: inputStream must be connected to a stream, it is noth"):
        await nodes.stream("StreamSuffixRelay", {})
    with pytest.raises(InvalidInput, match="StreamSuffixRelay: suffix must be text, not a number"):
        await nodes.stream("StreamSuffixRelay", {"inputStream": items(), "suffix": 3})


@pytest.mark.asyncio(loop_scope="module")
async def test_a_stream_is_logged_line_by_line_and_passed_on(
    hosted: HostedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    values = ["two\nlines", {"a": 1}, "x" * 500]
    with caplog.at_level(logging.INFO, "tavern.plugin.tavern-nodes"):
        parts = await hosted.stream("StreamLogger", {"inputStream": items(*values)})
    assert [part["outputStream"] for part in parts] == values
    lines = [record.getMessage() for record in caplog.records if record.name == "tavern.plugin.tavern-nodes"]
    assert lines[:2] == [r"stream run_1 n1, item 0: 'two\nlines'", "stream run_1 n1, item 1: an object"]
    assert len(lines[2]) < 300
    assert lines[3] == "stream run_1 n1 ended after 3 items"


async def test_widgets_give_what_was_entered_or_their_default(nodes: Nodes) -> None:
    outputs = await nodes.run("TestWidgets", {"int_input": 7, "json_input": {"a": 1}})
    assert (outputs["int_output"], outputs["json_output"]) == (7, {"a": 1})
    assert (outputs["float_output"], outputs["combo_output"], outputs["boolean_output"]) == (0.5, "选项A", True)
    assert list(outputs) == list(DEFINITIONS["TestWidgets"].outputs)


async def test_what_the_engine_takes_apart_cannot_be_run_alone(nodes: Nodes) -> None:
    for type in ("NodeGroup", "LoopZone"):
        with pytest.raises(InvalidInput, match=f"{type}: .* cannot be run by itself; run it in a workflow"):
            await nodes.run(type)
