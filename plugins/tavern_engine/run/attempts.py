"""Runs one attempt of a node whose policy has a timeout or retries: in a task of its own, so that neither what it does
to its task nor a failure to end blocks the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tavern_host.contracts.errors import DeadlineExceeded

GRACE = 1.0
"""Seconds that a cancelled node has to end; after that it is abandoned."""


async def run_attempt(
    code: Coroutine[Any, Any, dict[str, Any]], limit: float | None, left_behind: Callable[[], None]
) -> dict[str, Any]:
    """Return the result of `code`. `left_behind` is called when its time is over and it runs all the same.

    Raises what it raises; `DeadlineExceeded` where it did not end within `limit` seconds. Cancelling cancels it and
    waits until it has ended.
    """
    task = asyncio.create_task(code)
    try:
        await asyncio.wait((task,), timeout=limit)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=GRACE)
            if not task.done():
                left_behind()
            raise DeadlineExceeded(f"it did not end within {limit:g} s")
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))
        raise
    finally:
        task.add_done_callback(_look_at)
    return task.result()


def _look_at(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of an abandoned task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
