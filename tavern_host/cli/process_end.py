"""How the process of `tavern` ends: which plugin ended it, and which keeps it from ending.

Found by the files of code on the stack. What ends the process at once, such as `os._exit`, leaves no trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

from tavern_host.contracts.errors import PluginFailure, describe

DEADLINE = 5.0
"""Seconds that the process may take to end after the host was stopped."""

Locate = Callable[[str], str | None]
"""Says for a file of code which plugin it belongs to."""


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that remembers which plugin stops it or cancels what it runs."""

    def __init__(self, locate: Locate) -> None:
        super().__init__()
        self._locate = locate
        self.culprit = "code that is no plugin's"
        self.set_task_factory(self._main_task)

    @property
    def stop(self) -> Callable[[], None]:
        """What stops the loop. Who takes it is remembered, since it may well be called by the loop itself."""
        plugin = _place(sys._getframe(1), self._locate)

        def stop() -> None:
            self.culprit = plugin or self.culprit
            asyncio.SelectorEventLoop.stop(self)

        return stop

    def _main_task(self, loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        self.set_task_factory(None)
        return _MainTask(coroutine, loop=self, **options)

    def cancelled_at(self, frame: FrameType) -> None:
        """Remember who cancels the main task; a person does by asyncio's own handler of signals."""
        if frame.f_globals.get("__name__") != "asyncio.runners":
            self.culprit = _place(frame, self._locate) or self.culprit


class _MainTask(asyncio.Task[Any]):
    def cancel(self, msg: Any = None) -> bool:
        loop = self.get_loop()
        if isinstance(loop, _Loop):
            loop.cancelled_at(sys._getframe(1))
        return super().cancel(msg)


def run_main(
    main: Coroutine[Any, Any, int], locate: Locate, third_party: Callable[[], list[str]], deadline: ExitDeadline | None
) -> int:
    """Return the result of `main`. Raises `PluginFailure` with the name of the plugin that ended the process, else what
    `main` raises. `third_party` lists the plugins that may have done what cannot be found out."""
    loop = _Loop(locate)

    async def ending() -> int:
        try:
            return await main
        finally:
            if deadline is not None:
                deadline.begin(loop)

    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(ending())
    except (SystemExit, KeyboardInterrupt) as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        is_person = frames[-1].f_globals.get("__name__") == "asyncio.runners"
        where = None if is_person else _place_in(error.__traceback__, locate)
        if where is None:
            raise
        raise PluginFailure(f"{where} ended the host: {describe(error)}") from error
    except asyncio.CancelledError as error:
        raise PluginFailure(f"{loop.culprit} cancelled what the host was doing, and so ended it") from error
    except RuntimeError as error:
        if error.args != ("Event loop stopped before Future completed.",):
            raise
        raise PluginFailure(f"{loop.culprit} stopped the event loop, and so ended the host") from error
    except OSError as error:
        if error.errno != errno.EBADF or _place_in(error.__traceback__, locate) is not None:
            raise
        names = ", ".join(third_party()) or "none"
        message = f"the host's file descriptors were closed, and so it ended; its third-party plugins are: {names}"
        raise PluginFailure(message) from error


class ExitDeadline:
    """What becomes of a process that does not end: after `DEADLINE` it says why, and ends it with `os._exit`."""

    def __init__(self, locate: Locate, say: Callable[[str], None]) -> None:
        self._locate = locate
        self._say = say
        self._has_begun = False

    def begin(self, loop: asyncio.AbstractEventLoop | None = None, *, code: int = 1) -> None:
        """Give the process its last seconds; the loop may have tasks that it waits for."""
        if not self._has_begun:
            self._has_begun = True
            threading.Thread(target=self._watch, args=(loop,), name="end of the process", daemon=True).start()
        self._code = code

    def _watch(self, loop: asyncio.AbstractEventLoop | None) -> None:
        threading.Event().wait(DEADLINE)
        with contextlib.suppress(Exception):  # it ends, whatever can be said of it
            named = dict.fromkeys(self._places(loop)) or dict.fromkeys(_threads())
            for what in named:
                self._say(f"{what} keeps the process from ending; it is ended now")
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(self._code)

    def _places(self, loop: asyncio.AbstractEventLoop | None) -> Iterator[str]:
        """Yield the places in plugins' code where threads are that the process waits for, and tasks that do not let
        themselves be cancelled."""
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if not thread.daemon and (where := _place(frames.get(thread.ident or 0), self._locate)) is not None:
                yield where
        if loop is not None and loop.is_running():
            for frame in (frame for task in asyncio.all_tasks(loop) for frame in task.get_stack()):
                if (where := _place(frame, self._locate)) is not None:
                    yield f"a task of {where}"


def _threads() -> Iterator[str]:
    """Yield the threads that the process waits for."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            yield f"the thread {thread.name!r}, which is in no plugin's code,"


def _place(frame: FrameType | None, locate: Locate) -> str | None:
    """Return the innermost place in a plugin's code that a frame was called from, itself included."""
    return next(_places(traceback.walk_stack(frame), locate), None) if frame is not None else None


def _place_in(trace: TracebackType | None, locate: Locate) -> str | None:
    """Return the innermost place in a plugin's code of a traceback."""
    return next(_places(reversed([*traceback.walk_tb(trace)]), locate), None)


def _places(frames: Iterable[tuple[FrameType, int]], locate: Locate) -> Iterator[str]:
    for frame, line in frames:
        if (plugin := locate(frame.f_code.co_filename)) is not None:
            yield f"{plugin} in {frame.f_code.co_qualname} ({frame.f_code.co_filename}:{line})"
