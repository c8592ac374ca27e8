"""Coroutines that mostly end at once: what one needs only while it is suspended is made when it suspends.

Such a coroutine is stepped by hand, in the task that calls it. A time limit (`asyncio.timeout`) around every call, or
an entry in a list of what is under way, would cost more than most calls do.
"""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from tavern_host.runtime import threads

T = TypeVar("T")


async def within(seconds: float | None, coroutine: Coroutine[Any, Any, T], late: Callable[[], Exception]) -> T:
    """Return what a coroutine gives within `seconds` (None: however long it takes).

    Raises what `late` returns where its time is over, and what the coroutine raises.
    """
    try:
        suspended_on = coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    return await rest_within(seconds, coroutine, suspended_on, late)


async def rest_within(
    seconds: float | None, coroutine: Coroutine[Any, Any, T], suspended_on: Any, late: Callable[[], Exception]
) -> T:
    """As `within`, for a coroutine that was stepped once by hand and is suspended."""
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            return await resumed(coroutine, suspended_on, timer)
    except TimeoutError:
        if timer.expired():
            raise late() from None
        raise


@types.coroutine
def rest_of(coroutine: Coroutine[Any, Any, T], suspended_on: Any) -> Generator[Any, Any, T]:
    """Go on with a coroutine that was stepped once by hand, as `await` would; it stays in the task that stepped it."""
    try:
        while True:
            try:
                sent = yield suspended_on
            except BaseException as error:  # cancellation and errors go to the coroutine, as with `await`
                suspended_on = coroutine.throw(error)
            else:
                suspended_on = coroutine.send(sent)
    except StopIteration as finished:
        result: T = finished.value
        return result


@types.coroutine
def resumed(coroutine: Coroutine[Any, Any, T], suspended_on: Any, timer: asyncio.Timeout) -> Generator[Any, Any, T]:
    """Go on with a coroutine that was stepped once by hand; it stays in the task that stepped it.

    One that goes on although its time is over has `threads.GRACE` seconds more, then it is left where it is.
    """
    given_up: asyncio.TimerHandle | None = None
    try:
        while True:
            sent, raised = None, None
            try:
                sent = yield suspended_on
            except BaseException as error:  # cancellation and errors go to the coroutine, as with `await`
                if given_up is not None and _has_fired(given_up):
                    asyncio.current_task().uncancel()  # type: ignore[union-attr]  # that of `given_up`
                    with contextlib.suppress(RuntimeError):  # it would not even be closed
                        coroutine.close()
                    raise
                raised = error
            try:
                suspended_on = coroutine.send(sent) if raised is None else coroutine.throw(raised)
            except StopIteration as finished:
                result: T = finished.value
                return result
            if given_up is None and timer.expired():
                given_up = asyncio.get_running_loop().call_later(threads.GRACE, asyncio.current_task().cancel)  # type: ignore[union-attr]
    finally:
        if given_up is not None:
            given_up.cancel()


def _has_fired(timer: asyncio.TimerHandle) -> bool:
    return timer.when() <= asyncio.get_running_loop().time()
