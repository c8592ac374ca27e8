"""Runs code that may hang, exit or raise anything on a thread that it has to itself, with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tavern_host import clock
from tavern_host.contracts.errors import DeadlineExceeded, PluginFailure, describe

T = TypeVar("T")

GRACE = 1.0
"""Seconds that plugin code may take to end after it was cancelled; then nothing waits for it any longer."""


def ended(what: str, error: BaseException) -> PluginFailure:
    """Return the failure for plugin code that raised what would end the program; `error` is its cause."""
    failure = PluginFailure(f"{what} tried to end the program ({describe(error)})")
    failure.__cause__ = error
    return failure


def is_being_cancelled() -> bool:
    """Return whether this task is being cancelled; else a `CancelledError` in it is the plugin's own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def retrieve_exception(done: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a task or future, so that asyncio does not log it where the caller is gone."""
    if not done.cancelled():
        done.exception()


async def run_in_thread(function: Callable[[], T], *, what: str, deadline: float | None = None) -> T:
    """Return `function()`, called on a daemon thread so that a hang cannot keep the host from exiting.

    `deadline` is in seconds; None waits for as long as it takes. Raises `DeadlineExceeded` when it passes
    (the thread is left behind), `PluginFailure` for `SystemExit`, `KeyboardInterrupt` and their like, else
    what was raised.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def body() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(outcome.set_result, function())
        except StopIteration as raised:  # no future takes one
            error = RuntimeError("StopIteration was raised")
            error.__cause__ = raised
            settle = partial(outcome.set_exception, error)
        except Exception as raised:
            settle = partial(outcome.set_exception, raised)
        except BaseException as raised:  # SystemExit in a plugin must cost the plugin, not the host
            settle = partial(outcome.set_exception, ended(what, raised))
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the result
            loop.call_soon_threadsafe(lambda: None if outcome.done() else settle())

    _hand_over(body, what)
    try:
        with clock.awaits_thread():
            async with asyncio.timeout(deadline):
                return await outcome
    except TimeoutError:
        if outcome.done() and not outcome.cancelled() and outcome.exception() is not None:
            raise  # the plugin's own TimeoutError, not ours
        raise DeadlineExceeded(f"{what} did not end within {deadline:g} s") from None


# --- threads ------------------------------------------------------------------------------------------

_LINGER = 0.2
"""Seconds that a thread which has nothing to do waits for another job; a start has many, and new threads are slow."""

_waiting: list[_Worker] = []


def _hand_over(job: Callable[[], None], name: str) -> None:
    """Let a thread that waits for a job, else a new one, do this one."""
    try:
        worker = _waiting.pop()
    except IndexError:
        worker = _Worker()
    worker.jobs.put((job, name))


class _Worker:
    """A daemon thread that does one job after another; one that never ends a job gets no other."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[tuple[Callable[[], None], str]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        thread = threading.current_thread()
        while True:
            try:
                job, thread.name = self.jobs.get(timeout=_LINGER)
            except queue.Empty:
                try:
                    _waiting.remove(self)
                except ValueError:
                    continue  # it was picked this moment: its job is on the way
                return
            contextvars.Context().run(job)
            del job  # and with it what it keeps of a plugin
            thread.name = "waiting for a job"
            _waiting.append(self)
