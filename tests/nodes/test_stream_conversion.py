"""Nodes between streams and whole values: one piece at a time, and all of it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from node_bench import Nodes, Row, check_outputs, check_refusals, node_call

from tavern_nodes.nodes.streamtext import text_to_stream


async def stream(*items: Any) -> AsyncIterator[Any]:
    for item in items:
        yield item


async def endless(item: Any) -> AsyncIterator[Any]:
    while True:
        yield item


PIECES: list[tuple[str, str, int, list[str]]] = [
    ("a b\n世界", "characters", 1, ["a", " ", "b", "\n", "世", "界"]),
    ("a b\n世界", "characters", 4, ["a b\n", "世界"]),
    ("a b\n世界", "words", 1, ["a ", "b\n", "世", "界"]),
    ("a b\n世界", "words", 3, ["a b\n世", "界"]),
    ("a b\n世界", "lines", 1, ["a b\n", "世界"]),
    ("a b\n世界", "lines", 2, ["a b\n世界"]),
    ("", "words", 1, []),
]


async def test_texts_and_lists_are_cut_into_pieces(nodes: Nodes) -> None:
    for text, unit, size, pieces in PIECES:
        parts = await nodes.stream("TextToStream", {"text": text, "size": size}, {"unit": unit})
        assert [part["stream"] for part in parts] == pieces, (unit, size)
    parts = await nodes.stream("ListToStream", {"items": [1, None, ["a"]]})
    assert parts == [{"stream": 1}, {"stream": None}, {"stream": ["a"]}]


@given(text=st.text(alphabet="ab \n\t世界，。é\u3000'", max_size=60), size=st.integers(1, 5))
async def test_the_pieces_together_are_the_text(text: str, size: int) -> None:
    for unit in ("characters", "words", "lines"):
        found = [piece async for piece in text_to_stream(text, size=size, unit=unit)]  # type: ignore[arg-type]
        assert "".join(found) == text
        assert all(found)


async def test_nothing_is_made_before_it_is_asked_for(nodes: Nodes) -> None:
    instance = nodes.open("TextToStream", {"unit": "characters"})
    async with aclosing(instance.stream({"text": "x" * 4_000_000}, node_call())) as parts:
        assert await anext(parts) == {"stream": "x"}


async def test_a_stream_becomes_a_text_or_a_list(nodes: Nodes) -> None:
    rows: list[Row] = [
        ("StreamToString", {"stream": stream("a", 1.0, None, {"b": 2}), "separator": r"\n"}, {},
            {"text": 'a\n1\n\n{"b": 2}'}),
        ("StreamToString", {"stream": stream()}, {}, {"text": ""}),
        ("StreamToList", {"stream": stream(1, "a", None)}, {}, {"items": [1, "a", None]}),
        ("StreamToList", {"stream": endless(1), "limit": 3}, {}, {"items": [1, 1, 1]}),  # the rest is left
    ]  # fmt: skip
    async with asyncio.timeout(60):
        await check_outputs(nodes, rows)


async def test_refusals_of_conversions_say_why(nodes: Nodes) -> None:
    endless_ones = [
        *(("StreamToString", "x" * 1_000, "4,001,000 char…"), ("StreamToString", "x" * 5_000_000, "5,000,000 char…")),
        ("StreamToList", "x" * 100_000, "4,000,080 characters as JSON…"),
        ("StreamToList", b"x" * (8 << 20), "75,497,472 bytes…"),
    ]
    rows: list[Row] = [
        *((type, {"stream": endless(item)}, {}, f"the result would have {much}") for type, item, much in endless_ones),
        *((type, {"text": "a", "items": [], "delay": delay}, {}, "delay must be from 0 to 60 seconds…")
            for type in ("TextToStream", "ListToStream") for delay in (-1, 61, float("nan"))),
        ("TextToStream", {"text": "", "size": 0}, {}, "size must be at least 1, it is 0"),
        ("TextToStream", {"text": ""}, {"unit": "pages"}, "unit must be one of characters, words, lines, not 'pages'"),
        ("StreamToList", {"stream": stream(), "limit": -1}, {}, "limit must not be negative, it is -1"),
    ]  # fmt: skip
    await check_refusals(nodes, rows)
