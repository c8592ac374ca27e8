"""Nodes between streams and whole values: one piece at a time, and all of it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_bench import node_call

from tavern_host import InvalidInput
from tavern_nodes.nodes.streamtext import text_to_stream


async def stream(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        yield item


async def endless(item: Any) -> AsyncIterator[Any]:
    while True:
        yield item


async def pieces(nodes: Any, text: str, unit: str, size: int = 1) -> list[str]:
    parts = await nodes.stream("TextToStream", {"text": text, "size": size}, {"unit": unit})
    return [part["stream"] for part in parts]


@pytest.mark.parametrize(
    ("unit", "size", "expected"),
    [
        ("characters", 1, ["a", " ", "b", "\n", "世", "界"]),
        ("characters", 4, ["a b\n", "世界"]),
        ("words", 1, ["a ", "b\n", "世", "界"]),
        ("words", 3, ["a b\n世", "界"]),
        ("lines", 1, ["a b\n", "世界"]),
        ("lines", 2, ["a b\n世界"]),
    ],
)
async def test_a_text_is_cut_into_pieces(nodes: Any, unit: str, size: int, expected: list[str]) -> None:
    assert await pieces(nodes, "a b\n世界", unit, size) == expected


@pytest.mark.parametrize("unit", ["characters", "words", "lines"])
@given(text=st.text(alphabet="ab \n\t世界，。é\u3000'", max_size=60), size=st.integers(1, 5))
async def test_the_pieces_together_are_the_text(unit: Any, text: str, size: int) -> None:
    found = [piece async for piece in text_to_stream(text, size=size, unit=unit)]
    assert "".join(found) == text
    assert all(found)


async def test_an_empty_text_is_an_empty_stream(nodes: Any) -> None:
    assert await pieces(nodes, "", "words") == []


async def test_a_list_is_given_item_by_item(nodes: Any) -> None:
    parts = await nodes.stream("ListToStream", {"items": [1, None, ["a"]]})
    assert parts == [{"stream": 1}, {"stream": None}, {"stream": ["a"]}]


async def test_nothing_is_made_before_it_is_asked_for(nodes: Any) -> None:
    instance = nodes.open("TextToStream", {"unit": "characters"})
    async with aclosing(instance.stream({"text": "x" * 4_000_000}, node_call())) as parts:
        assert await anext(parts) == {"stream": "x"}


async def test_a_stream_becomes_a_text(nodes: Any) -> None:
    outputs = await nodes.run("StreamToString", {"stream": stream("a", 1.0, None, {"b": 2}), "separator": r"\n"})
    assert outputs == {"text": 'a\n1\n\n{"b": 2}'}


async def test_an_empty_stream_becomes_an_empty_text(nodes: Any) -> None:
    assert await nodes.run("StreamToString", {"stream": stream()}) == {"text": ""}


async def test_a_stream_becomes_a_list(nodes: Any) -> None:
    assert await nodes.run("StreamToList", {"stream": stream(1, "a", None)}) == {"items": [1, "a", None]}


async def test_a_limit_leaves_the_rest_of_a_stream(nodes: Any) -> None:
    async with asyncio.timeout(60):
        assert await nodes.run("StreamToList", {"stream": endless(1), "limit": 3}) == {"items": [1, 1, 1]}


@pytest.mark.parametrize(
    ("type", "item", "message"),
    [
        ("StreamToString", "x" * 1_000, "StreamToString: the result would have 4,001,000 characters"),
        ("StreamToString", "x" * 5_000_000, "StreamToString: the result would have 5,000,000 characters"),
        ("StreamToList", "x" * 100_000, "StreamToList: the result would have 4,000,080 characters as JSON"),
        ("StreamToList", b"x" * (8 << 20), "StreamToList: the result would have 75,497,472 bytes"),
    ],
)
async def test_a_stream_without_end_ends_with_an_error(nodes: Any, type: str, item: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run(type, {"stream": endless(item)})
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize("type", ["TextToStream", "ListToStream"])
@pytest.mark.parametrize("delay", [-1, 61, float("nan")])
async def test_a_delay_is_a_minute_at_most(nodes: Any, type: str, delay: float) -> None:
    with pytest.raises(InvalidInput, match="delay must be from 0 to 60 seconds"):
        await nodes.stream(type, {"text": "a", "items": [], "delay": delay})


async def test_wrong_pieces_and_limits_are_refused(nodes: Any) -> None:
    unit = "unit must be one of characters, words, lines, not 'pages'"
    rows: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
        ("TextToStream", {"text": "", "size": 0}, {}, "size must be at least 1, it is 0"),
        ("TextToStream", {"text": ""}, {"unit": "pages"}, unit),
        ("StreamToList", {"stream": stream(), "limit": -1}, {}, "limit must not be negative, it is -1"),
    ]
    for type, inputs, config, message in rows:
        with pytest.raises(InvalidInput) as refused:
            await nodes.stream(type, inputs, config)
        assert refused.value.message == f"{type}: {message}"
