"""What the engine is measured against: the same shape of work with what asyncio has, and nothing else.

No values, no events, no errors: these are not engines, they are what no engine of one task a node can go below.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from benchmarks.enginenodes import PAUSE

CAPACITY = 16
"""How many items of a stream may wait between two generators."""


async def _trivial() -> None:
    """Do nothing, as a node."""


def _plain() -> None:
    """Do nothing, as a node without `async`."""


async def task_per_node(waiting_for: Sequence[int], followers: Sequence[Sequence[int]], *, plain: bool = False) -> None:
    """Run one task for each node, begun when those that it waits for have ended.

    A task counts down its followers itself and stays in a list: a done callback for each, or a task group, costs 40 %
    more.
    """
    loop = asyncio.get_running_loop()
    create_task, tasks = loop.create_task, []
    remaining, left, finished = list(waiting_for), len(waiting_for), loop.create_future()

    async def node(number: int) -> None:
        nonlocal left
        if plain:
            _plain()
        else:
            await _trivial()
        for follower in followers[number]:
            remaining[follower] -= 1
            if not remaining[follower]:
                tasks.append(create_task(node(follower)))
        left -= 1
        if not left:
            finished.set_result(None)

    for number, count in enumerate(waiting_for):
        if not count:
            tasks.append(create_task(node(number)))
    await finished


async def gathered_pauses(width: int) -> None:
    """Wait for many sleeps at once."""
    await asyncio.gather(*(asyncio.sleep(PAUSE) for _ in range(width)))


async def queued_generators(length: int) -> int:
    """Send numbers through two async generators and a coroutine that queues join; return what they add up to.

    Each reads the queue before it by itself: a generator that did so for it would be one more.
    """
    end: Any = object()
    first: asyncio.Queue[Any] = asyncio.Queue(CAPACITY)
    second: asyncio.Queue[Any] = asyncio.Queue(CAPACITY)

    async def count() -> AsyncIterator[int]:
        for item in range(length):
            yield item

    async def relay(get: Callable[[], Awaitable[Any]]) -> AsyncIterator[int]:
        while (item := await get()) is not end:
            yield item + 1

    async def total(get: Callable[[], Awaitable[Any]]) -> int:
        found = 0
        while (item := await get()) is not end:
            found += item
        return found

    async def pump(source: AsyncIterator[int], put: Callable[[Any], Awaitable[None]]) -> None:
        async for item in source:
            await put(item)
        await put(end)

    async with asyncio.TaskGroup() as group:
        group.create_task(pump(count(), first.put))
        group.create_task(pump(relay(first.get), second.put))
        return await total(second.get)
