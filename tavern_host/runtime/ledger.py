"""The ownership ledger of one loaded plugin: everything that it registered, with how to take it back."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tavern_host.contracts.errors import DeadlineExceeded
from tavern_host.runtime.threads import is_being_cancelled

Undo = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True)
class Entry:
    """One thing that a plugin registered. An `offer` reaches others at once and is taken back at once, without
    an await: a route, a hook, a service."""

    kind: str
    name: str
    undo: Undo
    offer: bool = False


class Ledger:
    """What one loaded plugin owns. Taking it out walks the entries backwards, so that nothing of it survives."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._numbers = itertools.count()

    def add(self, kind: str, name: str, undo: Undo, *, offer: bool = False) -> Callable[[], None]:
        """Record an entry; return what forgets it where it ended by itself."""
        number = next(self._numbers)
        self._entries[number] = Entry(kind, name, undo, offer)

        def forget() -> None:
            self._entries.pop(number, None)

        return forget

    def owned(self) -> dict[str, list[str]]:
        """Return the names of what is owned, by kind."""
        owned: dict[str, list[str]] = {}
        for entry in self._entries.values():
            owned.setdefault(entry.kind, []).append(entry.name)
        return owned

    def withdraw(self) -> list[tuple[Entry, BaseException]]:
        """Take back all offers now, newest first; return what could not be taken back cleanly."""
        failures: list[tuple[Entry, BaseException]] = []
        for number in [n for n, entry in reversed(self._entries.items()) if entry.offer]:
            entry = self._entries.pop(number)
            try:
                entry.undo()
            except Exception as error:
                failures.append((entry, error))
        return failures

    async def remove(self, *, deadline: float) -> list[tuple[Entry, BaseException]]:
        """Take back everything, newest first; return what could not be taken back cleanly.

        All entries together have `deadline` seconds, and each at least a hundredth of that; then it is given up.
        """
        failures: list[tuple[Entry, BaseException]] = []
        loop = asyncio.get_running_loop()
        ends = loop.time() + deadline
        while self._entries:
            _, entry = self._entries.popitem()
            try:
                result = entry.undo()
                if inspect.isawaitable(result):
                    async with asyncio.timeout(max(ends - loop.time(), deadline / 100)):
                        await result
            except TimeoutError:
                failures.append((entry, DeadlineExceeded(f"it did not end within {deadline:g} s")))
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                failures.append((entry, error))
            except asyncio.CancelledError as error:
                if is_being_cancelled():
                    raise
                failures.append((entry, error))
        return failures
