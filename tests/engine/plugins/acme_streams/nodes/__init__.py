"""Nodes that stream, for tests of the engine: quick, slow, endless, failing and badly behaved ones.

Those with a context publish `ACME_STREAM` when something happens to them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

from tavern_host import NodeContext, Slot, node

_tries: dict[tuple[str, str], int] = {}


def _say(context: NodeContext, what: str, **more: Any) -> None:
    context.plugin.events.publish("ACME_STREAM", {"node": context.node_id, "what": what, **more})


def _tried(context: NodeContext) -> int:
    key = (context.run_id, context.node_id)
    _tries[key] = _tries.get(key, 0) + 1
    return _tries[key]


# --- sources --------------------------------------------------------------------------------------


@node()
async def numbers(length: int, start: int = 0) -> Annotated[AsyncIterator[int], Slot(key="items")]:
    for number in range(start, start + length):
        yield number


@node()
async def loud_numbers(context: NodeContext, length: int) -> Annotated[AsyncIterator[int], Slot(key="items")]:
    """Say of each number that it was made, and in the end that the code has ended."""
    try:
        for number in range(length):
            _say(context, "made", item=number)
            yield number
    finally:
        _say(context, "closed")


@node()
async def endless(context: NodeContext, step: int = 1) -> Annotated[AsyncIterator[int], Slot(key="items")]:
    """Never await, never end."""
    number = 0
    try:
        while True:
            if number < 1000:
                _say(context, "made", item=number)
            yield number
            number += step
    finally:
        _say(context, "closed")


@node()
async def ticks(context: NodeContext, first: int = 1) -> Annotated[AsyncIterator[int], Slot(key="items")]:
    """Give some items, then wait for what never comes."""
    try:
        for number in range(first):
            yield number
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        _say(context, "closed")


@node()
async def stubborn_ticks(context: NodeContext) -> Annotated[AsyncIterator[int], Slot(key="items")]:
    """Go on although it is cancelled."""
    number = 0
    try:
        while True:
            yield number
            number += 1
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
    finally:
        _say(context, "closed", items=number)


@node()
async def pieces(text: str, pause: bool = False) -> Annotated[AsyncIterator[str], Slot(key="items")]:
    for piece in text.split("|"):
        if pause:
            await asyncio.sleep(0.05)
        yield piece


@node()
async def values(listed: list[Any]) -> Annotated[AsyncIterator[Any], Slot(key="items")]:
    for value in listed:
        yield b"\x00\xff" if value == "bytes" else value


@node()
async def blocks(count: int, size: int) -> Annotated[AsyncIterator[bytes], Slot(key="items")]:
    for number in range(count):
        yield bytes([number & 0xFF]) * size


@node()
async def breaks(
    context: NodeContext, after: int = 0, works_at: int = 0
) -> Annotated[AsyncIterator[int], Slot(key="items")]:
    """Fail after some items; work at the try `works_at`."""
    tried = _tried(context)
    for number in range(after):
        yield number
    if tried != works_at:
        raise ValueError("the source gave up")
    yield 100


@node()
async def leaves(after: int = 0) -> Annotated[AsyncIterator[int], Slot(key="items")]:
    for number in range(after):
        yield number
    raise KeyboardInterrupt


class Told(TypedDict, total=False):
    word: Annotated[str, Slot("Word by word.", stream=True)]
    size: Annotated[int, Slot("The size of each word.", stream=True)]
    count: Annotated[int, Slot("How many there were.")]


@node()
async def tell(context: NodeContext, text: str) -> AsyncIterator[Told]:
    count = 0
    try:
        for word in text.split():
            count += 1
            yield {"word": word, "size": len(word), "count": count}
    finally:
        _say(context, "closed", items=count)


@node()
class Counting:
    """Go on counting where the last call ended."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self, length: int) -> Annotated[AsyncIterator[int], Slot(key="items")]:
        for _ in range(length):
            self.count += 1
            yield self.count


# --- on the way -----------------------------------------------------------------------------------


@node()
async def relay(items: AsyncIterator[Any]) -> Annotated[AsyncIterator[Any], Slot(key="items")]:
    async for item in items:
        yield item


@node()
async def add_one(items: AsyncIterator[int]) -> Annotated[AsyncIterator[int], Slot(key="items")]:
    async for item in items:
        yield item + 1


@node()
async def hold_back(items: AsyncIterator[Any]) -> Annotated[AsyncIterator[Any], Slot(key="items")]:
    """Give nothing before all has come."""
    held = [item async for item in items]
    for item in held:
        yield item


@node()
async def salvage(items: AsyncIterator[int]) -> Annotated[int, Slot(key="total")]:
    """Be content with what came before the stream broke off."""
    total = 0
    with contextlib.suppress(Exception):
        async for item in items:
            total += item
    return total


# --- readers --------------------------------------------------------------------------------------


@node()
async def total(items: AsyncIterator[int], value: Any = None) -> Annotated[int, Slot(key="total")]:
    found = 0
    async for item in items:
        found += item
    return found


@node()
async def listed(items: AsyncIterator[Any]) -> Annotated[list[Any], Slot(key="list")]:
    return [item async for item in items]


@node()
async def kinds(items: AsyncIterator[Any]) -> Annotated[list[str], Slot(key="list")]:
    return [type(item).__name__ async for item in items]


@node()
async def texts(items: AsyncIterator[str]) -> Annotated[list[str], Slot(key="list")]:
    return [item async for item in items]


@node()
async def loud_reader(
    context: NodeContext, items: AsyncIterator[Any], turns: int = 0, most: int = 10**9, value: Any = None
) -> Annotated[int, Slot(key="count")]:
    """Say of each item that it was read, be slow, and leave after some items."""
    count = 0
    async for item in items:
        _say(context, "read", item=item)
        count += 1
        if count == most:
            break
        for _ in range(turns):
            await asyncio.sleep(0)
    return count


@node()
async def heavy(items: AsyncIterator[bytes]) -> Annotated[int, Slot(key="bytes")]:
    found = 0
    async for item in items:
        found += len(item)
    return found


@node()
async def first(
    items: AsyncIterator[Any], count: int = 1, closes: bool = False
) -> Annotated[list[Any], Slot(key="list")]:
    """Read some items and leave."""
    found: list[Any] = []
    async for item in items:
        found.append(item)
        if len(found) == count:
            break
    if closes:
        await items.aclose()  # type: ignore[attr-defined]
        assert [item async for item in items] == []
        await asyncio.sleep(0.05)
    return found


@node()
async def one_by_one(items: AsyncIterator[Any]) -> Annotated[list[Any], Slot(key="list")]:
    """Ask for each item by itself."""
    found = []
    while (item := await anext(items, None)) is not None:
        found.append(item)
    return found


@node()
async def impatient(context: NodeContext, items: AsyncIterator[Any]) -> Annotated[int, Slot(key="count")]:
    """Give up waiting for an item now and then, and ask again."""
    count = 0
    while True:
        try:
            async with asyncio.timeout(0.01):
                await anext(items)
        except TimeoutError:
            _say(context, "waited")
            return count
        except StopAsyncIteration:
            return count
        count += 1


@node()
async def fails_at(items: AsyncIterator[int], at: int) -> Annotated[int, Slot(key="count")]:
    count = 0
    async for item in items:
        if item == at:
            raise ValueError("the reader gave up")
        count += 1
    return count


@node()
async def tries(
    context: NodeContext, items: AsyncIterator[int], reads: int = 0
) -> Annotated[list[int], Slot(key="list")]:
    """Fail at the first try, after reading some items, or before asking for any if there are to be less than none."""
    found = []
    tried = _tried(context)
    if tried == 1 and reads < 0:
        raise ValueError("not this time")
    async for item in items:
        if tried == 1 and len(found) == reads:
            raise ValueError("not this time")
        found.append(item)
    return found


@node()
async def in_turn(a: AsyncIterator[Any], b: AsyncIterator[Any]) -> Annotated[list[int], Slot(key="counts")]:
    """Read one stream to its end, then the other."""
    return [len([item async for item in a]), len([item async for item in b])]


@node()
async def after(items: AsyncIterator[Any], value: Any) -> Annotated[list[Any], Slot(key="list")]:
    """Need a value before it reads anything."""
    return [value, len([item async for item in items])]


@node()
async def in_turn_on(a: AsyncIterator[Any], b: AsyncIterator[Any]) -> Annotated[AsyncIterator[Any], Slot(key="items")]:
    """Read one stream to its end, then the other, and hand everything on."""
    async for item in a:
        yield item
    async for item in b:
        yield item


@node()
def size(items: Any) -> Annotated[int, Slot(key="count")]:
    return len(items)
