"""The ownership ledger of one loaded plugin: everything that it registered, with how to undo each."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tavern_host.contracts.errors import DeadlineExceeded
from tavern_host.runtime.threads import is_being_cancelled

Undo = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, eq=False)
class Entry:
    """One thing that a plugin registered. An `offer` is visible to others, and is withdrawn at once, without an
    await: a route, a hook, a service. `interrupt` asks a task to end, for which `undo` then waits."""

    kind: str
    name: str
    undo: Undo
    offer: bool = False
    interrupt: Callable[[], object] = lambda: None


class Ledger:
    """What one loaded plugin owns. Unloading it undoes the entries in reverse order, so that nothing of it survives."""

    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {}
        self._added = 0

    def add(
        self,
        kind: str,
        name: str,
        undo: Undo,
        *,
        offer: bool = False,
        interrupt: Callable[[], object] = lambda: None,
    ) -> Callable[[], None]:
        """Record an entry; return a function that removes it when it has ended by itself."""
        entry = Entry(kind, name, undo, offer, interrupt)
        self._entries[entry] = None
        self._added += 1
        return lambda: self._entries.pop(entry, None)

    @property
    def revision(self) -> tuple[int, int]:
        """What differs whenever something else is owned."""
        return self._added, len(self._entries)

    def owned(self) -> dict[str, list[str]]:
        """Return the names of what is owned, by kind."""
        owned: dict[str, list[str]] = {}
        for entry in self._entries:
            owned.setdefault(entry.kind, []).append(entry.name)
        return owned

    def withdraw(self) -> list[tuple[Entry, BaseException]]:
        """Withdraw all offers now, newest first; return the entries whose undo failed."""
        failures: list[tuple[Entry, BaseException]] = []
        for entry in [entry for entry in reversed(self._entries) if entry.offer]:
            del self._entries[entry]
            try:
                entry.undo()
            except Exception as error:
                failures.append((entry, error))
        return failures

    async def remove(self, *, deadline: float) -> list[tuple[Entry, BaseException]]:
        """Undo everything, newest first; return the entries whose undo failed.

        All are interrupted before the first is waited for: a task that went on while what it uses is closed would fail.
        All entries together have `deadline` seconds, and each at least a hundredth of that; then it is abandoned.
        """
        for entry in reversed(self._entries):
            entry.interrupt()
        failures: list[tuple[Entry, BaseException]] = []
        loop = asyncio.get_running_loop()
        ends = loop.time() + deadline
        while self._entries:
            entry, _ = self._entries.popitem()
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
