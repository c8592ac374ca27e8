"""The events of one run on their way from its sandbox to its caller."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from tavern_scripts.api.scripts import ScriptEvent
from tavern_scripts.results.outcome import LogEvent

Say = Callable[[ScriptEvent], None]
"""Takes an event of a run."""


class EventQueue:
    """Events of one run on their way to its caller. Of progress that nobody has read yet only the latest is kept, and
    a log is limited, so that it never grows beyond measure."""

    def __init__(self) -> None:
        self._waiting: deque[ScriptEvent] = deque()
        self._there = asyncio.Event()

    def say(self, event: ScriptEvent) -> None:
        """Add an event."""
        if event.kind == "progress" and self._waiting and self._waiting[-1].kind == "progress":
            self._waiting.pop()
        self._waiting.append(event)
        self._there.set()

    async def until(self, work: asyncio.Task[Any]) -> Any:
        """Yield what was added, until the work is done and all was read."""
        work.add_done_callback(lambda _: self._there.set())
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if work.done():
                return
            self._there.clear()
            if not work.done():
                await self._there.wait()


def event_of(heard: LogEvent) -> ScriptEvent:
    """Return a script's log line or progress as an event."""
    kind = "progress" if heard.is_progress else "log"
    return ScriptEvent.construct(kind=kind, text=heard.text, progress=heard.progress)


def report_progress(say: Say) -> Callable[[str], None]:
    """Return the function that publishes a text as progress."""
    return lambda text: say(ScriptEvent(kind="progress", text=text))
