"""Whether a loaded plugin may still use what it was given, and what of it is under way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from tavern_host.contracts.errors import DeadlineExceeded, PermissionDenied

Cancel = Callable[[], object]


class Lease:
    """The life of one load of a plugin. It ends when that is unloaded, for good.

    A plugin may keep its context; with the lease every facility in it stops. One that is loaded again
    gets a new context. While what it has is being closed, it can publish events and nothing else.
    """

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self._is_closing = False
        self._is_over = False
        self._uses: dict[object, tuple[asyncio.Task[Any] | None, Cancel | None]] = {}
        self._changed: asyncio.Event | None = None

    def close(self) -> None:
        """Let nothing be had any more but events published, which say how things ended."""
        self._is_closing = True

    def end(self) -> None:
        """End it."""
        self._is_closing = self._is_over = True

    def check(self, *, while_closing: bool = False) -> None:
        """Raise `PermissionDenied` once it has ended, or is closed unless `while_closing` is allowed."""
        if self._is_over or (self._is_closing and not while_closing):
            raise PermissionDenied(f"{self.plugin} is not loaded any more", plugin=self.plugin)

    # --- what is under way --------------------------------------------------------------------------

    def use(self, cancel: Cancel | None = None) -> contextlib.AbstractContextManager[None]:
        """Let whoever takes the plugin out wait while this task runs the block, unless it is this task itself;
        `cancel` is called when that took too long."""
        return self._use(asyncio.current_task(), cancel)

    def use_elsewhere(self, cancel: Cancel | None = None) -> contextlib.AbstractContextManager[None]:
        """As `use`, for what goes on in another task than that which enters the block."""
        return self._use(None, cancel)

    @contextlib.contextmanager
    def _use(self, task: asyncio.Task[Any] | None, cancel: Cancel | None) -> Iterator[None]:
        token = object()
        self._uses[token] = task, cancel
        try:
            yield
        finally:
            del self._uses[token]
            if self._changed is not None:
                self._changed.set()

    @contextlib.asynccontextmanager
    async def use_for_call(self, what: str) -> AsyncIterator[None]:
        """As `use`, for one call that is given up when the plugin is taken out and it took too long.

        Raises `DeadlineExceeded` then.
        """
        timer = asyncio.timeout(None)
        try:
            async with timer:
                with self.use(lambda: expire(timer)):
                    yield
        except TimeoutError:
            if timer.expired():
                raise DeadlineExceeded(f"{self.plugin} was taken out before {what} ended") from None
            raise

    async def idle(self, *, apart_from: asyncio.Task[Any] | None = None) -> None:
        """Wait until nothing is under way, what one task does apart."""
        while any(task is None or task is not apart_from for task, _ in self._uses.values()):
            self._changed = self._changed or asyncio.Event()
            self._changed.clear()
            await self._changed.wait()

    def cancel_uses(self) -> None:
        """Ask everything that is under way to end now."""
        for _, cancel in list(self._uses.values()):
            if cancel is not None:
                cancel()


def expire(timer: asyncio.Timeout) -> None:
    """Let a timer's time be over now, unless it has ended already."""
    with contextlib.suppress(RuntimeError):  # it was left in the meantime
        timer.reschedule(asyncio.get_running_loop().time())
