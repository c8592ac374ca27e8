"""Whether a loaded plugin may still use what it was given, and what of it is under way."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import current_task
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from tavern_host.contracts.errors import DeadlineExceeded, PermissionDenied

Cancel = Callable[[], object]


class Lease:
    """The life of one load of a plugin. It ends when that is unloaded, for good.

    A plugin may keep its context; with the lease every facility in it stops. One that is loaded again
    gets a new context. While what it has is being closed, it can publish events and nothing else. `code` names the
    code of this load; see `context.Contribution`.
    """

    def __init__(self, plugin: str, code: str = "") -> None:
        self.plugin = plugin
        self.code = code
        self.is_over = False
        self._is_closing = False
        self._uses: set[Use] = set()
        self.begin = self._uses.add  # counts a use as under way, until `finish`
        self._changed: asyncio.Event | None = None

    def close(self) -> None:
        """Let nothing be had any more but events published, which say how things ended."""
        self._is_closing = True

    def end(self) -> None:
        """End it."""
        self._is_closing = self.is_over = True

    def check(self, *, while_closing: bool = False) -> None:
        """Raise `PermissionDenied` once it has ended, or is closed unless `while_closing` is allowed."""
        if self.is_over or (self._is_closing and not while_closing):
            raise PermissionDenied(f"{self.plugin} is not loaded any more", plugin=self.plugin)

    # --- what is under way --------------------------------------------------------------------------

    def use(self, cancel: Cancel | None = None) -> Use:
        """Let whoever takes the plugin out wait while this task runs the `with` block, unless it is this task that
        asked for it; `cancel` is called when that took too long."""
        return Use(self, current_task(), cancel)

    def use_elsewhere(self, cancel: Cancel | None = None) -> Use:
        """As `use`, for what goes on in another task than that which enters the block."""
        return Use(self, None, cancel)

    def use_for_call(self, what: str) -> Use:
        """As `use`, for one call that is given up when the plugin is taken out and it took too long.

        Raises `DeadlineExceeded` then.
        """
        return _Call(self, what)

    def uses_for_calls(self, what: str) -> Callable[[], Use]:
        """Return what does as `use_for_call`, again and again."""
        return partial(_Call, self, what)

    def finish(self, use: Use) -> None:
        """Count a use no more."""
        self._uses.discard(use)
        if self._changed is not None:
            self._changed.set()

    async def idle(self, *, apart_from: asyncio.Task[Any] | None = None) -> None:
        """Wait until nothing is under way, what one task does apart."""
        while any(use.task is None or use.task is not apart_from for use in self._uses):
            self._changed = self._changed or asyncio.Event()
            self._changed.clear()
            await self._changed.wait()

    def cancellable(self, *, calls: bool, apart_from: asyncio.Task[Any] | None = None) -> list[Use]:
        """Return what is under way and can be asked to end, what one task does apart: calls, or all else.

        A call may only wait for something else to end, such as a run, and then tells how that ended.
        """
        others = [use for use in self._uses if use.task is None or use.task is not apart_from]
        return [use for use in others if use.is_call is calls and (calls or use.can_be_cancelled)]


class Use:
    """What is under way in a plugin while the `with` block runs; `task` is who runs it, where that is known."""

    __slots__ = ("_cancel", "_lease", "task")
    is_call = False

    def __init__(self, lease: Lease, task: asyncio.Task[Any] | None, cancel: Cancel | None) -> None:
        self._lease = lease
        self._cancel = cancel
        self.task = task

    def __enter__(self) -> None:
        self._lease.begin(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.finish(self)

    @property
    def can_be_cancelled(self) -> bool:
        """Whether anything can be done to end it."""
        return self._cancel is not None

    def cancel(self) -> None:
        """Ask it to end."""
        if self._cancel is not None:
            self._cancel()


class _Call(Use):
    """A call in this task. It is given up as by `asyncio.timeout`, which costs several times as much to enter."""

    __slots__ = ("_cancelling", "_is_given_up", "_what")
    is_call = True

    def __init__(self, lease: Lease, what: str) -> None:
        self._lease = lease
        self._cancel = None
        self._what = what
        self._is_given_up = False
        self.task = task = current_task()
        self._cancelling = 0 if task is None else task.cancelling()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.finish(self)
        if self._is_given_up:
            self._end_given_up(kind)

    def _end_given_up(self, kind: type[BaseException] | None) -> None:
        if self.task is None:
            return
        if self.task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise DeadlineExceeded(f"{self._lease.plugin} was taken out before {self._what} ended") from None

    def cancel(self) -> None:
        if not self._is_given_up and self.task is not None:
            self._is_given_up = True
            self.task.cancel()


def expire(timer: asyncio.Timeout) -> None:
    """Let a timer's time be over now, unless it has ended already."""
    with contextlib.suppress(RuntimeError):  # it was left in the meantime
        timer.reschedule(asyncio.get_running_loop().time())
