"""Detects that the event loop is blocked, and reports in which plugin's code.

It samples from its own thread and stops nothing; code that yields to the loop is not measured.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

from tavern_host.clock import monotonic
from tavern_host.contracts.errors import describe
from tavern_host.contracts.plugins import Blocked

_log = logging.getLogger("tavern.watchdog")

LIMIT, _STOP_DEADLINE = 1.0, 1.0


class Watchdog:
    """Watches one event loop.

    `locate` says for a file of code which plugin it belongs to; it is called on the watchdog's thread. `report` is
    called on the loop's thread when the loop runs again, for each blockage of more than `limit` seconds
    (`LIMIT`). A warning is logged at once, since a blockage may never end. Time that tests hold passes in jumps, in
    which nobody was blocked.
    """

    def __init__(
        self, locate: Callable[[str], str | None], report: Callable[[Blocked], None], limit: float | None = None
    ) -> None:
        limit = LIMIT if limit is None else limit
        if not (limit > 0 and math.isfinite(limit)):
            raise ValueError(f"the watchdog's limit is a number of seconds above 0, not {limit!r}")
        self._locate = locate
        self._report = report
        self._limit = limit
        self._lock = threading.Lock()
        self._asked_at = 0.0
        self._is_answered = True
        self._found: Blocked | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop_thread = 0

    def start(self) -> None:
        """Start watching the running loop. Raises `RuntimeError` if it is watching already, or no loop runs.

        Its thread schedules an answer on the loop, and checks half a limit later whether it came.
        """
        if self._thread is not None:
            raise RuntimeError("the watchdog has been started already")
        loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._stopped = threading.Event()
        watch = partial(self._run, loop, _Clock(self._loop_thread), self._stopped)
        self._thread = threading.Thread(target=watch, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread. A blockage that was detected is reported now; the watchdog may be started again."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopped.set()
        if threading.current_thread() is not thread:
            thread.join(_STOP_DEADLINE)
        self._answer()

    def _run(self, loop: asyncio.AbstractEventLoop, clock: _Clock, stopped: threading.Event) -> None:
        while not stopped.is_set() and not loop.is_closed():
            if self._is_answered:
                with self._lock:
                    self._is_answered, self._asked_at = False, clock.now
                try:
                    loop.call_soon_threadsafe(self._answer)
                except RuntimeError:  # the loop was closed in this moment
                    return
            idle = clock.wait(stopped, self._limit / 2)
            with self._lock:
                self._asked_at += idle
                if not loop.is_running():
                    self._asked_at = clock.now
                seconds = clock.now - self._asked_at
                is_blocked = not self._is_answered and self._found is None and seconds >= self._limit
            if is_blocked and not stopped.is_set():
                self._look(seconds)

    def _look(self, seconds: float) -> None:
        seen = self._seen(seconds)
        with self._lock:
            if seen is None or self._is_answered:
                return
            self._found = seen
        _log.warning("%s", seen)

    def _seen(self, seconds: float) -> Blocked | None:
        """Return where the loop's thread is; None where it waits for something to do."""
        innermost = frame = sys._current_frames().get(self._loop_thread)
        if innermost is None or _is_waiting(innermost):
            return None
        plugin = None
        while frame is not None and (plugin := self._plugin_of(frame.f_code.co_filename)) is None:
            frame = frame.f_back
        frame = frame or innermost
        code = frame.f_code
        return Blocked(plugin, code.co_filename, frame.f_lineno or 0, code.co_qualname, seconds)

    def _plugin_of(self, file: str) -> str | None:
        try:
            return self._locate(file)
        except Exception as error:  # whatever it is, the blockage is reported
            _log.error("whose code %s is cannot be found out: %s", file, describe(error))
            return None

    def _answer(self) -> None:
        """Answer, on the loop's thread."""
        with self._lock:
            found, self._found = self._found, None
            seconds = monotonic() - self._asked_at
            self._is_answered = True
        if found is None:
            return
        try:
            self._report(replace(found, seconds=max(seconds, found.seconds)))
        except Exception as error:
            _log.error("what blocked the event loop could not be reported: %s", describe(error), exc_info=error)


class _Clock:
    """Waits, and says how much of the time the process was stopped or had no processor to run on.

    All times are those of the last reading: the process may be stopped between any two lines.
    """

    def __init__(self, thread: int) -> None:
        self._cpu: Callable[[], float] = time.process_time
        if hasattr(time, "pthread_getcpuclockid"):
            clock = time.pthread_getcpuclockid(thread)
            self._cpu = lambda: time.clock_gettime(clock)
        self._statistics = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self.now, self._ran, self._queued = monotonic(), self._cpu_time(), self._queue_time()

    def wait(self, stopped: threading.Event, seconds: float) -> float:
        """Wait for `seconds`; return for how long the watched thread could not run, since it was here last.

        A thread that wakes too late was stopped with the process, or starved by code that holds the
        interpreter's lock: that code is running, and blocks the loop.
        """
        began, ran, queued = self.now, self._ran, self._queued
        stopped.wait(seconds)
        self.now, self._ran, self._queued = monotonic(), self._cpu_time(), self._queue_time()
        late = self.now - began - seconds
        return max(0.0, late - (self._ran - ran), self._queued - queued)

    def _cpu_time(self) -> float:
        try:
            return self._cpu()
        except OSError:  # the watched thread has ended
            return 0.0

    def _queue_time(self) -> float:
        """Return how long the watched thread has waited for a processor, where the system says so."""
        try:
            return int(self._statistics.read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0


def _is_waiting(frame: FrameType) -> bool:
    """Return whether the loop itself waits, for input or a time; code in it may wait in the same way."""
    caller = frame.f_back
    return (
        caller is not None
        and caller.f_code.co_name == "_run_once"
        and caller.f_globals.get("__name__") == "asyncio.base_events"
        and frame.f_globals.get("__name__") == "selectors"
    )
