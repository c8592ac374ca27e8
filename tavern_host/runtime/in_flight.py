"""One load of a plugin: whether it may still use what it was given, and which work of it is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from asyncio import current_task
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tavern_host.contracts.errors import DeadlineExceeded, PermissionDenied

if TYPE_CHECKING:
    from tavern_host.runtime.boundary import Observer

Cancel = Callable[[], object]

_requester: ContextVar[weakref.ref[asyncio.Task[Any]] | None] = ContextVar(
    "task that asked for a decision", default=None
)


def requester() -> asyncio.Task[Any] | None:
    """Return the task that asked for the decision that is carried out in this context, or None."""
    task = _requester.get()
    return task() if task is not None else None


def set_requester(task: asyncio.Task[Any] | None) -> None:
    """Say which task asked for what this context carries out: unloading does not wait for that one."""
    _requester.set(weakref.ref(task) if task is not None else None)


class InFlight:
    """The work in flight of one load of a plugin, and the load's end.

    A plugin may keep its context, so every facility in it checks this; a plugin that is loaded again gets a new
    context. While what the plugin owns is being closed, it can publish events and nothing else. `code` names the
    code of this load; see `context.HookResult`. `observer` sees the calls of its hooks and handlers, if there is one.
    """

    observer: Observer | None = None

    def __init__(self, plugin: str, code: str = "", *, first_party: bool = False) -> None:
        self.plugin = plugin
        self.code = code
        self.first_party = first_party
        self.is_closed = self.is_closing = False
        self._uses: set[Use] = set()
        self.calling: set[asyncio.Task[Any] | None] = set()
        """The tasks within a call that is in flight: what they call besides needs no other use."""
        self.begin = self._uses.add  # counts a use as in flight, until `end`
        self._changed: asyncio.Event | None = None

    def start_closing(self) -> None:
        """Allow nothing from now on but publishing events, which say how things ended."""
        self.is_closing = True

    def close(self) -> None:
        """Allow nothing from now on."""
        self.is_closing = self.is_closed = True

    def check(self, *, while_closing: bool = False) -> None:
        """Raise `PermissionDenied` once the load is closed, or is closing unless `while_closing` is allowed."""
        if self.is_closed if while_closing else self.is_closing:
            raise self.refusal()

    def refusal(self) -> PermissionDenied:
        """Return the error that a facility raises after the end."""
        return PermissionDenied(f"{self.plugin} is not loaded any more", plugin=self.plugin)

    def use(self, cancel: Cancel | None = None) -> Use:
        """Return a context manager that counts this task's work as in flight; unloading waits for it, unless this
        task requested the unloading. `cancel` is called when it takes too long."""
        return Use(self, current_task(), cancel)

    def use_elsewhere(self, cancel: Cancel | None = None) -> Use:
        """As `use`, for work of another task than the one that enters the block."""
        return Use(self, None, cancel)

    def end(self, use: Use) -> None:
        """Count a use no longer."""
        self._uses.discard(use)
        if self._changed is not None:
            self._changed.set()

    @property
    def count(self) -> int:
        """How many uses are in flight."""
        return len(self._uses)

    async def wait_idle(self) -> None:
        """Wait until nothing is in flight except the work of the requester."""
        while self._others():
            self._changed = self._changed or asyncio.Event()
            self._changed.clear()
            await self._changed.wait()

    def cancel(self, *, calls: bool, report: Callable[[str, str, Exception], object]) -> bool:
        """Ask calls, or all other work in flight, to end, except that of the requester; return whether there was any.

        Calls are asked last: a call may only wait for other work, such as a run, and then says how that ended.
        """
        asked = [use for use in self._others() if use.is_call is calls and (calls or use.can_be_cancelled)]
        for use in asked:
            try:
                use.cancel()
            except Exception as error:
                report(self.plugin, "being interrupted", error)
        return bool(asked)

    def _others(self) -> list[Use]:
        task = requester()
        return [use for use in self._uses if use.task is None or use.task is not task]


class Use:
    """Work of a plugin that is in flight while the `with` block runs; `task` is the task that does it, if known."""

    __slots__ = ("_cancel", "_in_flight", "task")
    is_call = False

    def __init__(self, in_flight: InFlight, task: asyncio.Task[Any] | None, cancel: Cancel | None) -> None:
        self._in_flight = in_flight
        self._cancel = cancel
        self.task = task

    def __enter__(self) -> None:
        self._in_flight.begin(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_flight.end(self)

    @property
    def can_be_cancelled(self) -> bool:
        """Whether anything can be done to end it."""
        return self._cancel is not None

    def cancel(self) -> None:
        """Ask it to end."""
        if self._cancel is not None:
            self._cancel()


class CallInTask(Use):
    """As `InFlight.use`, for one call in this task, which is cancelled when unloading waited too long for it. Raises
    `DeadlineExceeded` then. It is cancelled as by `asyncio.timeout`, but can be entered without an `await`."""

    __slots__ = ("_cancelling", "_is_cancelled", "_what")
    is_call = True

    def __init__(self, in_flight: InFlight, what: str) -> None:
        self._in_flight, self._cancel, self._what = in_flight, None, what
        self.task = task = current_task()
        self._is_cancelled = False
        self._cancelling = 0 if task is None else task.cancelling()
        in_flight.calling.add(task)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_flight.calling.discard(self.task)  # of a call within a call, too: then the next one is counted again
        self._in_flight.end(self)
        if not self._is_cancelled or self.task is None:
            return
        if self.task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise DeadlineExceeded(f"{self._in_flight.plugin} was unloaded before {self._what} ended") from None

    def cancel(self) -> None:
        """Ask the call to end."""
        if not self._is_cancelled and self.task is not None:
            self._is_cancelled = True
            self.task.cancel()


def expire(timer: asyncio.Timeout) -> None:
    """Let a timer expire now, unless it has ended already."""
    with contextlib.suppress(RuntimeError):  # its block was left in the meantime
        timer.reschedule(asyncio.get_running_loop().time())
