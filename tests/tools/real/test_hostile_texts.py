"""A text that takes long to be read leaves the event loop to others: threads really work here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tavern_tools import State
from tavern_tools.api.protocols import ParserOptions

HOSTILE = "<|[REQUEST_TOOL]|>a:" + "「始」" * 60_000


async def test_a_hostile_text_leaves_the_loop_to_others(bench: Any) -> None:
    protocols = bench.host._manager.active["tavern-tools"].context.own(State).protocols

    async def pieces(size: int) -> AsyncIterator[str]:
        for begin in range(0, len(HOSTILE), size):
            yield HOSTILE[begin : begin + size]

    async def streamed(size: int) -> list[Any]:
        return [event async for event in protocols.parse_stream(pieces(size), None, ParserOptions())]

    await bench.tools.parse_text("")  # the protocols are collected
    for reading in (bench.tools.parse_text(HOSTILE), streamed(len(HOSTILE)), streamed(90_000)):
        task, times = asyncio.ensure_future(reading), 0
        while not task.done():
            await asyncio.sleep(0.001)
            times += 1
        await task
        assert times > 10
