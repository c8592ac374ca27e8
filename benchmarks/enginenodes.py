"""The nodes of the engine's workloads: as little work as a node can do, so that what is measured is the engine.

Their values stay below 256, which Python holds anyway: what a run takes of memory is then the engine's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from tavern_host import Slot, node

NAMESPACE = "benchmark"
MASK = 0xFF
PAUSE = 0.01
"""How many seconds `pause` waits."""


@node(namespace=NAMESPACE)
async def number(value: int) -> int:
    """Give a value."""
    return value


@node(namespace=NAMESPACE)
async def step(value: int) -> int:
    """Count on by one."""
    return value + 1 & MASK


@node(namespace=NAMESPACE)
async def mix(a: int, b: int, c: int) -> int:
    """Make one value of three, another one where two of them are exchanged."""
    return (a - b ^ c) & MASK


@node(namespace=NAMESPACE)
async def last_mix(a: int, b: int, c: int, salt: int = 0) -> int:
    """Make one value of three and of one of its own."""
    return (a - b ^ c) + salt & MASK


@node(namespace=NAMESPACE)
async def join(values: Annotated[list[int], Slot(multi=True)]) -> int:
    """Make one value of many."""
    return sum(values) & MASK


@node(namespace=NAMESPACE)
def plain_number(value: int) -> int:
    """Give a value, without `async`."""
    return value


@node(namespace=NAMESPACE)
def plain_join(values: Annotated[list[int], Slot(multi=True)]) -> int:
    """Make one value of many, without `async`."""
    return sum(values) & MASK


@node(namespace=NAMESPACE)
async def pause(value: int) -> int:
    """Give a value after 10 milliseconds."""
    await asyncio.sleep(PAUSE)
    return value


@node(namespace=NAMESPACE)
async def count(length: int) -> AsyncIterator[int]:
    """Give the numbers from 0, one by one."""
    for item in range(length):
        yield item


@node(namespace=NAMESPACE)
async def relay(items: AsyncIterator[int]) -> AsyncIterator[int]:
    """Hand each number on, counted on by one."""
    async for item in items:
        yield item + 1


@node(namespace=NAMESPACE)
async def total(items: AsyncIterator[int]) -> int:
    """Add the numbers up."""
    found = 0
    async for item in items:
        found += item
    return found


NODES = (number, step, mix, last_mix, join, plain_number, plain_join, pause, count, relay, total)
"""All of them; each has its definition as `@node` left it."""
