"""Waits until something holds that no future or event tells of, and lets held time pass."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from helpers.held_time import HeldLoop

if TYPE_CHECKING:
    from tavern_host import Host

SECONDS = 100.0
_FIRST, _MOST = 0.002, 0.1
"""Seconds between the first two looks, and between late ones."""
_OF_THREADS = 20.0
"""Seconds of this machine that a thread gets, of which a held loop does not know: its time passes in a moment."""


async def until(holds: Callable[[], Any], what: str = "what is waited for") -> Any:
    """Return the result of a condition, a coroutine function or another one, once it is true.

    Fails after `SECONDS` of the loop's time, which is held in fast tests.
    """
    loop, every = asyncio.get_running_loop(), _FIRST
    end, machine_end = loop.time() + SECONDS, time.monotonic() + _OF_THREADS
    while not (found := await value if inspect.isawaitable(value := holds()) else value):
        if loop.time() > end and time.monotonic() > machine_end:
            raise AssertionError(f"{what}: not so within {SECONDS:g} s")
        await asyncio.sleep(every)
        every = min(every * 1.1, _MOST)
        if every == _MOST and isinstance(loop, HeldLoop):
            time.sleep(0.001)  # noqa: ASYNC251 -- lets threads work of which the loop does not know
    return found


async def let_pass(seconds: float) -> None:
    """Let so much of a held loop's time pass, in which all others have their turns."""
    assert isinstance(asyncio.get_running_loop(), HeldLoop), "only fast tests hold their time"
    await asyncio.sleep(seconds)


async def until_idle() -> None:
    """Return once all others wait, in a held loop: nothing is ready there, and no thread works for it."""
    await let_pass(_FIRST)


@contextlib.asynccontextmanager
async def following(host: Host) -> AsyncIterator[Host]:
    """Run a host that follows what other processes decide and write."""
    async with host:
        watch = asyncio.create_task(host.watch_decisions())
        try:
            yield host
        finally:
            watch.cancel()
            await asyncio.wait([watch])
