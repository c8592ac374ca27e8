"""What plugins of these tests do on a stage that the tests can see: they wait for cues, and leave a log."""

from __future__ import annotations

import asyncio


class Stage:
    """`cue(name)` is what a plugin waits for, `seen(name)` is set once somebody waits there; `log` is what was done."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._cues: dict[str, asyncio.Event] = {}

    def cue(self, name: str) -> asyncio.Event:
        """Return the event of a name."""
        return self._cues.setdefault(name, asyncio.Event())

    def seen(self, name: str) -> asyncio.Event:
        """Return the event that tells that somebody waits for a cue."""
        return self.cue(f"{name} is waited for")

    async def wait(self, name: str) -> None:
        """Wait for a cue, and tell so."""
        self.seen(name).set()
        await self.cue(name).wait()

    def reset(self) -> None:
        """Clear everything for the next test."""
        self.log.clear()
        self._cues.clear()


STAGE = Stage()
