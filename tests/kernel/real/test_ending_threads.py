"""Threads that have nothing to do wait for a moment, and end; no call is lost where one is given to them then."""

from __future__ import annotations

import asyncio
import threading

from helpers.waiting import until

from tavern_host.runtime.threads import run_in_thread


async def test_threads_that_have_nothing_to_do_end() -> None:
    before = set(threading.enumerate())
    together = threading.Barrier(8, timeout=60)
    await asyncio.gather(*(run_in_thread(together.wait, what=f"call {n}") for n in range(8)))
    await until(lambda: set(threading.enumerate()) <= before)


async def test_ending_threads_lose_no_call() -> None:
    async def call(number: int) -> int:
        await asyncio.sleep(number % 7 * 0.05)
        return await run_in_thread(lambda: number, what=f"call {number}", deadline=60)

    assert await asyncio.gather(*(call(n) for n in range(200))) == list(range(200))
