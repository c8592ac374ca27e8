"""Ends processes and waits for them by their descriptors, which no other process can get in the meantime."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable


class Process:
    """A process that is held by a descriptor; `child` says that it is ours to wait for."""

    def __init__(self, pid: int, *, child: bool) -> None:
        """Raises `OSError` where there is no such process."""
        self.pid = pid
        self.status: int | None = None
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._descriptor: int | None = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._on_end)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._ended.done()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End it by a signal, if it has not ended."""
        if not self._ended.done() and self._descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    async def wait(self) -> int | None:
        """Return its exit status as a shell's caller sees it (negative for a signal) once it has ended; None where it
        is not ours."""
        await asyncio.shield(self._ended)
        if self._descriptor is not None:
            self._take()
        return self.status

    def on_end(self, action: Callable[[], None]) -> None:
        """Call `action()` when it has ended."""
        self._ended.add_done_callback(lambda _: action())

    def _on_end(self) -> None:
        assert self._descriptor is not None
        self._loop.remove_reader(self._descriptor)
        if self._child:
            os.close(self._descriptor)
            self._descriptor = None
            with contextlib.suppress(ChildProcessError):  # where SIGCHLD is ignored nobody can wait
                _, status, _ = os.wait4(self.pid, 0)
                self.status = os.waitstatus_to_exitcode(status)
        if not self._ended.done():
            self._ended.set_result(None)

    def _take(self) -> None:
        """Give the descriptor up. Where this process is the first of all, one that is not ours became so when its
        parent ended, which may have been after it ended itself; nobody else would take it away."""
        assert self._descriptor is not None
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self._descriptor, os.WEXITED)
        os.close(self._descriptor)
        self._descriptor = None
