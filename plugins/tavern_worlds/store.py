"""Keeps runs of scenes in a SQLite database, each as one document, and says which host works on one.

What a method wrote has survived the end of the process when it returns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tavern_host.contracts.calls import CallContext, new_id, system_call
from tavern_host.contracts.errors import NotFound
from tavern_host.storage.process_locks import ProcessLocks
from tavern_host.storage.sqlite import DatabaseThread, Schema
from tavern_worlds.api.scenes import SceneRun

if TYPE_CHECKING:
    import sqlite3

_FIRST = (
    # `next` is when something is to be done in a run, in microseconds since 1970, `owner` the host that does it.
    "CREATE TABLE scenes (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, scene TEXT NOT NULL, next INTEGER, "
    "owner TEXT, body TEXT NOT NULL)",
    "CREATE INDEX scenes_by_next ON scenes (next) WHERE next IS NOT NULL",
)

_SECOND = ("ALTER TABLE scenes ADD COLUMN call TEXT",)  # with which it was started

SCENES = Schema("scenes.sqlite3", (_FIRST, _SECOND))

Change = Callable[[SceneRun], dict[str, Any]]
"""Returns what changes of a run; raises `TavernError` where it may not."""


class SceneStore:
    """One project's runs of scenes, as one host sees them."""

    def __init__(self, folder: Path, log: logging.Logger) -> None:
        self._host = new_id("host")
        self._database = DatabaseThread(folder, SCENES, log, "store of scenes")
        self._hosts = ProcessLocks(folder / "hosts")

    async def close(self) -> None:
        """Finish the writes in flight, and close the store."""
        await self._database.close(self._hosts.close)

    async def runs(self, limit: int) -> list[SceneRun]:
        """Return runs, the latest first."""
        query = "SELECT body FROM scenes ORDER BY seq DESC LIMIT ?"
        found = await self._texts(query, limit)
        return [SceneRun.model_validate_json(body) for body in found]

    async def run(self, reference: str) -> SceneRun:
        """Return a run by its id, or the latest run of a scene by that of the scene. Raises `NotFound`."""
        found = await self._database.read(lambda connection: _read(connection, reference), None)
        if found is None:
            raise _unknown(reference)
        return found

    async def call(self, run_id: str) -> CallContext:
        """Return a context for what happens in a run: on behalf of who started it."""
        query = "SELECT call FROM scenes WHERE id = ?"
        row = await self._database.read(lambda connection: connection.execute(query, (run_id,)).fetchone(), None)
        return system_call() if row is None or row[0] is None else CallContext.model_validate_json(row[0])

    async def open(self) -> list[str]:
        """Return the runs that have not ended."""
        query = "SELECT id FROM scenes WHERE json_extract(body, '$.status') <> ? ORDER BY seq"
        return await self._database.read(lambda c: [id for (id,) in c.execute(query, ("ended",))], [])

    async def add(self, run: SceneRun, call: CallContext | None) -> None:
        """Keep a new run that was started with a call."""
        kept = None if call is None else call.model_dump_json(include={"principal", "project", "admission"})
        values = (run.id, run.scene.id, _next(run), run.model_dump_json(), kept)
        query = "INSERT INTO scenes (id, scene, next, body, call) VALUES (?, ?, ?, ?, ?)"
        await self._database.write(lambda connection: connection.execute(query, values))

    async def change(self, reference: str, change: Change) -> SceneRun:
        """Change a run in one transaction; return it. Raises `NotFound`, and what `change` raises."""

        def work(connection: sqlite3.Connection) -> SceneRun:
            run = _read(connection, reference)
            run = run.model_copy(update=change(run))
            values = (run.model_dump_json(), _next(run), run.id)
            connection.execute("UPDATE scenes SET body = ?, next = ? WHERE id = ?", values)
            return run

        return await self._database.write(work)

    async def due(self, now: datetime) -> list[str]:
        """Return the runs in which something is to be done."""
        return await self._texts("SELECT id FROM scenes WHERE next <= ? ORDER BY seq", _micros(now))

    async def _texts(self, query: str, value: int) -> list[str]:
        return await self._database.read(lambda c: [text for (text,) in c.execute(query, (value,))], [])

    async def claim(self, run_id: str) -> bool:
        """Make a run this host's; False where another living host works on it."""

        def work(connection: sqlite3.Connection) -> bool:
            (owner,) = connection.execute("SELECT owner FROM scenes WHERE id = ?", (run_id,)).fetchone()
            if owner not in (None, self._host) and not self._hosts.is_gone(owner):
                return False
            self._hosts.hold(self._host)
            connection.execute("UPDATE scenes SET owner = ? WHERE id = ?", (self._host, run_id))
            return True

        return await self._database.write(work)

    async def release(self, run_id: str) -> None:
        """Leave a run to whichever host claims it next."""
        query, values = "UPDATE scenes SET owner = NULL WHERE id = ? AND owner = ?", (run_id, self._host)
        await self._database.write(lambda connection: connection.execute(query, values))


def _read(connection: sqlite3.Connection, reference: str) -> SceneRun:
    query = "SELECT body FROM scenes WHERE id = ?1 OR scene = ?1 ORDER BY id = ?1 DESC, seq DESC LIMIT 1"
    row = connection.execute(query, (reference,)).fetchone()
    if row is None:
        raise _unknown(reference)
    return SceneRun.model_validate_json(row[0])


def _unknown(reference: str) -> NotFound:
    return NotFound(f"no scene {reference!r} was started; `tavern scene list` lists them", scene=reference)


def _next(run: SceneRun) -> int | None:
    if run.status == "ended":
        return None
    return 0 if run.turns or run.wakes else min(map(_micros, run.due.values()), default=None)


def _micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)
