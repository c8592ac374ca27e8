"""The ownership ledger: everything that a plugin registered, under its name, with how to take it back."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tavern_host.threads import is_being_cancelled

Undo = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True)
class Entry:
    """One thing that a plugin registered."""

    kind: str
    name: str
    undo: Undo


class Ledger:
    """Who owns what. Taking a plugin out walks its entries backwards, so that nothing of it survives."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[int, Entry]] = {}
        self._numbers = itertools.count()

    def add(self, plugin: str, kind: str, name: str, undo: Undo) -> Callable[[], None]:
        """Record an entry; return what forgets it where it ended by itself."""
        number = next(self._numbers)
        self._entries.setdefault(plugin, {})[number] = Entry(kind, name, undo)

        def forget() -> None:
            self._entries.get(plugin, {}).pop(number, None)

        return forget

    def owned(self, plugin: str) -> dict[str, list[str]]:
        """Return the names of what a plugin owns, by kind."""
        owned: dict[str, list[str]] = {}
        for entry in self._entries.get(plugin, {}).values():
            owned.setdefault(entry.kind, []).append(entry.name)
        return owned

    async def remove(self, plugin: str, *, deadline: float) -> list[tuple[Entry, BaseException]]:
        """Take back everything of a plugin, newest first; return what could not be taken back cleanly.

        Each entry has `deadline` seconds, after which it is given up.
        """
        failures: list[tuple[Entry, BaseException]] = []
        while entries := self._entries.get(plugin):
            number = max(entries)
            entry = entries.pop(number)
            try:
                result = entry.undo()
                if inspect.isawaitable(result):
                    async with asyncio.timeout(deadline):
                        await result
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                failures.append((entry, error))
            except asyncio.CancelledError as error:
                if is_being_cancelled():
                    raise
                failures.append((entry, error))
        self._entries.pop(plugin, None)
        return failures
