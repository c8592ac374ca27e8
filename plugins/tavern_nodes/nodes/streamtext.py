"""Nodes between streams and whole values: they collect a stream, or give a value piece by piece.

One item is in flight at a time: the next is made, or asked for, when the one before was taken.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal

from tavern_host import Config, InvalidInput, Slot, node
from tavern_nodes.values import (
    MAX_ITEMS,
    MAX_TEXT,
    as_text,
    bounded,
    check_size,
    choose_from,
    unescape,
)

MAX_DELAY = 60.0
"""The longest time between two items, in seconds."""

MAX_BINARY = 64 << 20
"""How many bytes of binary items a list collects."""

_WORD = (
    r"[\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]\s*+"
    r"|[^\s\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]++\s*+|\s++"
)
"""A word with the white space behind it; of Chinese, Japanese and Korean, which set no spaces, one character."""

Delay = Annotated[float, Slot("How many seconds to wait before each item but the first.", min=0, max=MAX_DELAY)]


@node(category="Streams", display_name="Stream to text")
async def stream_to_string(
    stream: Annotated[AsyncIterator[Any], Slot("The stream; what is not text is written as JSON.")],
    separator: Annotated[str, Slot(r"What stands between the items; \n is a new line, \t a tab.")] = "",
) -> Annotated[str, Slot("The whole text, when the stream has ended.", key="text")]:
    """Wait for the end of a stream and give all of it as one text."""
    between = unescape(separator)
    pieces: list[str] = []
    size = 0
    async for item in stream:
        piece = as_text(item, f"StreamToString: item {len(pieces)}")
        size += len(piece) + (len(between) if pieces else 0)
        bounded(size, MAX_TEXT, "StreamToString", "characters")
        bounded(len(pieces), MAX_TEXT, "StreamToString", "items")
        pieces.append(piece)
    return between.join(pieces)


@node(category="Streams", display_name="Stream to list")
async def stream_to_list(
    stream: Annotated[AsyncIterator[Any], Slot("The stream.")],
    limit: Annotated[int, Slot("How many items to take at most; 0 takes all. The rest is not waited for.", min=0)] = 0,
) -> Annotated[list[Any], Slot("The items.", key="items")]:
    """Collect the items of a stream in a list."""
    if limit < 0:
        raise InvalidInput(f"StreamToList: limit must not be negative, it is {limit}")
    items: list[Any] = []
    size = binary = 0
    async for item in stream:
        size += check_size(item, f"StreamToList: item {len(items)}")
        binary += len(item) if isinstance(item, bytes) else 0
        bounded(size, MAX_TEXT, "StreamToList", "characters as JSON")
        bounded(binary, MAX_BINARY, "StreamToList", "bytes")
        items.append(item)
        bounded(len(items), MAX_ITEMS, "StreamToList", "items")
        if len(items) == limit:
            break
    return items


@node(category="Streams", display_name="Text to stream")
async def text_to_stream(
    text: Annotated[str, Slot("The text.", multiline=True)],
    size: Annotated[int, Slot("How many characters, words or lines a piece has.", min=1)] = 1,
    delay: Delay = 0.0,
    unit: Annotated[Literal["characters", "words", "lines"], Config("What pieces are made of.")] = "words",
) -> AsyncIterator[Annotated[str, Slot("The pieces; put together they are the text.", key="stream")]]:
    """Give a text piece by piece."""
    cut = choose_from(_UNITS, unit, "TextToStream: unit")
    if size < 1:
        raise InvalidInput(f"TextToStream: size must be at least 1, it is {size}")
    seconds = _seconds(delay, "TextToStream")
    is_first = True
    for piece in cut(text, size):
        if seconds and not is_first:
            await asyncio.sleep(seconds)
        is_first = False
        yield piece


@node(category="Streams", display_name="List to stream")
async def list_to_stream(
    items: Annotated[list[Any], Slot("The list.")],
    delay: Delay = 0.0,
) -> AsyncIterator[Annotated[Any, Slot("The items.", key="stream")]]:
    """Give the items of a list one by one."""
    seconds = _seconds(delay, "ListToStream")
    for index, item in enumerate(items):
        if seconds and index:
            await asyncio.sleep(seconds)
        yield item


def _characters(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _words(text: str, size: int) -> Iterator[str]:
    return _together((match[0] for match in re.finditer(_WORD, text)), size)


def _lines(text: str, size: int) -> Iterator[str]:
    at = 0

    def lines() -> Iterator[str]:
        nonlocal at
        while at < len(text):
            end = text.find("\n", at) + 1 or len(text)
            yield text[at:end]
            at = end

    return _together(lines(), size)


def _together(parts: Iterator[str], size: int) -> Iterator[str]:
    """Yield `size` parts at a time as one."""
    held: list[str] = []
    for part in parts:
        held.append(part)
        if len(held) == size:
            yield "".join(held)
            held.clear()
    if held:
        yield "".join(held)


_UNITS = {"characters": _characters, "words": _words, "lines": _lines}


def _seconds(delay: float, who: str) -> float:
    if not 0 <= delay <= MAX_DELAY:
        raise InvalidInput(f"{who}: delay must be from 0 to {MAX_DELAY:g} seconds, not {delay:g}")
    return delay
