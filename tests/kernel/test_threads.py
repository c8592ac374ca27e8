"""Code that may hang runs on threads: each call has one to itself, and threads are used again."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest
from helpers.held_time import HeldClock
from helpers.waiting import until

from tavern_host.contracts.errors import DeadlineExceeded, PluginFailure
from tavern_host.runtime.threads import run_in_thread


async def test_calls_one_after_another_share_few_threads() -> None:
    threads = [await run_in_thread(threading.current_thread, what=f"call {n}") for n in range(50)]
    assert len(set(threads)) < 10
    assert threading.current_thread() not in threads


async def test_concurrent_calls_have_their_own_threads() -> None:
    together = threading.Barrier(3, timeout=60)
    calls = (run_in_thread(lambda: (together.wait(), threading.get_ident())[1], what="one of three") for _ in range(3))
    assert len(set(await asyncio.gather(*calls))) == 3


async def test_a_hanging_call_blocks_no_other(held_clock: HeldClock) -> None:
    release = threading.Event()
    hanging = asyncio.create_task(run_in_thread(release.wait, what="the hanging one", deadline=30))
    await asyncio.sleep(0)
    try:
        held_clock.advance(30)
        with pytest.raises(DeadlineExceeded, match="the hanging one did not end within 30 s"):
            await hanging
        assert await run_in_thread(lambda: "done", what="the next", deadline=10) == "done"
    finally:
        release.set()


async def test_threads_survive_calls_that_exit() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(PluginFailure, match="tried to end the program"):
        await run_in_thread(leave, what="the leaving one")
    assert await run_in_thread(lambda: "done", what="the next", deadline=10) == "done"


async def test_calls_share_no_context_variables() -> None:
    left: ContextVar[str] = ContextVar("left", default="nothing")
    await run_in_thread(lambda: left.set("something"), what="the first")
    assert await run_in_thread(left.get, what="the second") == "nothing"


async def test_threads_are_named_after_their_call() -> None:
    assert await run_in_thread(lambda: threading.current_thread().name, what="importing acme") == "importing acme"
    await until(lambda: not any("acme" in thread.name for thread in threading.enumerate()))
