"""Awaits plugin code in the caller's task, and gives it up where it does not end when it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import AsyncIterator, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import DeadlineExceeded, PluginFailure
from tavern_host.runtime import threads

T = TypeVar("T")

LATER = 0.25
"""Seconds after the deadline at which a call is settled: who looks at the deadline says by itself what became of it."""

ENDED: Any = object()
"""Stands for the item after a stream's last one."""

# Cancellation. Plugin code runs in its caller's task, and several may cancel that task at once: who awaits the call, a
# time limit, unloading (`CallInTask`), the plugin's own code. asyncio does not say whose a `CancelledError` is; it
# counts (`Task.cancelling`). So each of these limits notes the count when it begins, takes back with `uncancel` the one
# cancellation that it asked for and no other, and turns the `CancelledError` into an error of its own only where the
# count is back at what it noted. What is left above is somebody else's, and is passed on.
# Between two suspensions nothing but the plugin's code runs: by how much the count grew in there is its own doing, and
# `in_callers_task` takes it back. Code that suppresses its cancellation can be left but not stopped: `until_given_up`
# cancels once more after `threads.GRACE`, and then awaits it no longer.


async def contained(coroutine: Coroutine[Any, Any, T], what: str) -> T:
    """Return the result of a plugin's coroutine. `SystemExit` and its like become `PluginFailure`."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise threads.ended(what, error) from error


@types.coroutine
def until_given_up(coroutine: Coroutine[Any, Any, T], timer: asyncio.Timeout, seconds: float) -> Generator[Any, Any, T]:
    """Await a coroutine inside the block of `timer`, which expires `seconds` after the coroutine is first suspended;
    give the coroutine up `threads.GRACE` seconds later.

    The timer is made with None: a coroutine that never waits needs no time limit. asyncio can cancel a coroutine but
    not abandon one that suppresses its cancellation, unless that has a task of its own. Hooks and tools run in their
    caller's task, which is how the host knows which plugin asks to be unloaded by its own code.
    """
    grace: asyncio.TimerHandle | None = None
    step = partial(coroutine.send, None)
    try:
        while True:
            try:
                awaited = step()
            except StopIteration as finished:
                result: T = finished.value
                return result
            if timer.when() is None:
                timer.reschedule(asyncio.get_running_loop().time() + seconds)
            elif grace is None and timer.expired():
                grace = asyncio.get_running_loop().call_later(threads.GRACE, current_task().cancel)
            try:
                step = partial(coroutine.send, (yield awaited))
            except BaseException as error:  # cancellation and errors go to the coroutine, as with `await`
                if grace is not None and grace.when() <= asyncio.get_running_loop().time():
                    current_task().uncancel()  # the cancellation of `grace`
                    with contextlib.suppress(RuntimeError):  # it ignores being closed, too
                        coroutine.close()
                    raise
                step = partial(coroutine.throw, error)
    finally:
        if grace is not None:
            grace.cancel()


@types.coroutine
def in_callers_task(coroutine: Coroutine[Any, Any, T], what: str) -> Generator[Any, Any, T]:
    """Await a plugin's coroutine in the task that calls it. Raises `PluginFailure` where it cancels that task, which
    then continues: while code of the coroutine runs, nothing else can have cancelled it."""
    task = current_task()
    step = partial(coroutine.send, None)
    while True:
        before = task.cancelling()
        try:
            awaited = step()
        except BaseException as error:
            if task.cancelling() > before:
                yield from uncancelled(before, what)
            if isinstance(error, StopIteration):
                result: T = error.value
                return result
            raise
        if task.cancelling() > before:
            with contextlib.suppress(RuntimeError):
                coroutine.close()
            yield from uncancelled(before, what)
        try:
            step = partial(coroutine.send, (yield awaited))
        except BaseException as error:
            step = partial(coroutine.throw, error)


@types.coroutine
def uncancelled(before: int, what: str) -> Generator[None, Any, None]:
    """Take back that plugin code has cancelled the task that called it, where `cancelling()` was `before` until then
    and is more now. Raises `PluginFailure`."""
    task = current_task()
    while task.cancelling() > before:
        task.uncancel()
    try:
        yield  # the cancellation comes here, unless taking it back was enough
    except asyncio.CancelledError:
        if task.cancelling() > before:
            raise
    raise PluginFailure(f"{what} cancelled the task that called it")


def current_task() -> asyncio.Task[Any]:
    """Return the task that runs this. Raises `RuntimeError` outside of one."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("this runs in a task only")
    return task


async def next_item(items: AsyncIterator[Any]) -> Any:
    """Return the next item of a stream, or `ENDED`; a coroutine, whatever the stream gives to be awaited."""
    return await anext(items, ENDED)


async def settled(coroutine: Coroutine[Any, Any, T], call: CallContext | None, what: str) -> T:
    """Await what a call does until `LATER` seconds after the call's deadline. Raises `DeadlineExceeded`."""
    if call is None or call.deadline is None:
        return await coroutine
    remaining = call.remaining() or 0.0
    try:
        async with asyncio.timeout(None) as timer:
            return await until_given_up(coroutine, timer, remaining + LATER)
    except TimeoutError:
        if not timer.expired():
            raise
    raise DeadlineExceeded(f"{what} did not end before the caller's deadline; give it more time, or ask for less")
