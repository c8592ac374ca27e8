"""Keeps which triggers are on and on whose behalf, and their firings, in SQLite or a database that hosts share.

A firing is kept under a key that a trigger has once: whichever host comes second finds the first. It belongs to the
host that has it, and to another once that host is certainly gone. What a method wrote has survived the end of the
process when it returns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from tavern_host import clock
from tavern_host.contracts.calls import CallContext, new_id
from tavern_host.storage.databases import Database, HostNames, SharedDatabase
from tavern_host.storage.process_locks import ProcessLocks
from tavern_host.storage.sqlite import DatabaseThread, Schema
from tavern_triggers.api.triggers import Firing, FiringStatus, Trigger

if TYPE_CHECKING:
    import sqlite3

TRIGGERS = Schema(
    "triggers.sqlite3",
    (
        (
            # Times are in microseconds since 1970; `body` and `entry` are JSON. `watcher` is the host that looks for
            # what fires the trigger, from `cursor` on.
            "CREATE TABLE triggers (id TEXT PRIMARY KEY, body TEXT NOT NULL, caller TEXT NOT NULL, is_on INTEGER NOT "
            "NULL, reason TEXT NOT NULL, failures INTEGER NOT NULL, begun INTEGER NOT NULL, due INTEGER, cursor TEXT "
            "NOT NULL, watcher TEXT, secret TEXT NOT NULL, changed INTEGER NOT NULL)",
            "CREATE INDEX triggers_due ON triggers (due) WHERE due IS NOT NULL",
            "CREATE TABLE firings (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, source TEXT NOT "
            "NULL, key TEXT NOT NULL, status TEXT NOT NULL, is_open INTEGER NOT NULL, due INTEGER NOT NULL, started "
            "INTEGER, finished INTEGER, run TEXT, reason TEXT NOT NULL, depth INTEGER NOT NULL, owner TEXT, again "
            "INTEGER NOT NULL, entry TEXT NOT NULL, caller TEXT NOT NULL, UNIQUE (source, key))",
            "CREATE INDEX firings_of ON firings (source, seq)",
            "CREATE INDEX firings_open ON firings (source) WHERE is_open = 1",
        ),
    ),
)

MOST_WAITING = 100
"""How many firings of a trigger wait."""
AT_ONCE = 40
"""How many firings are begun, and how many due triggers are fired, before others have their turn."""
OVER = "it has fired, as it was to, once"
MAX_DEPTH = 8
"""How many firings of a trigger may follow, each on the run of the one before."""

_KEPT, _KEPT_AT_LEAST, _KEPT_AT_MOST = 100, timedelta(days=1), 10_000
"""How many firings of a trigger are kept; for how long at least, so that none comes twice; how many then at most."""
_AFTERWARDS = timedelta(seconds=10)
"""For how long after a firing has ended another may have followed from what it did."""
_STATE = "id, body, caller, is_on, reason, failures, begun, due, cursor, secret"
_FIRING = "id, source, status, due, started, finished, run, reason, depth, owner, entry, caller, again"


@dataclass(frozen=True)
class KeptTrigger:
    """A trigger as it was when it was enabled, and what has become of it since."""

    id: str
    trigger: Trigger
    call: CallContext
    is_on: bool = True
    reason: str = ""
    failures: int = 0
    begun: int = 0
    due: int | None = None
    cursor: str = ""
    secret: str = ""


@dataclass(frozen=True)
class KeptFiring:
    """A firing with what it needs: the trigger as it was then, what happened, and on whose behalf it is made. A firing
    that has ended has no `trigger` any more."""

    id: str
    source: str
    call: CallContext
    due: int
    trigger: Trigger | None = None
    payload: dict[str, JsonValue] | None = None
    status: FiringStatus = FiringStatus.WAITING
    started: int | None = None
    finished: int | None = None
    run: str | None = None
    reason: str = ""
    depth: int = 0
    again: int = 0

    @property
    def shown(self) -> Firing:
        """The firing as it is shown."""
        by = str(self.call.principal)
        times = {"due_at": moment(self.due), "started_at": moment(self.started), "finished_at": moment(self.finished)}
        about = {"id": self.id, "trigger_id": self.source, "status": self.status, "run_id": self.run, "by": by}
        return Firing.model_validate({**about, **times, "reason": self.reason})


@dataclass(frozen=True)
class NewFiring:
    """What fires a trigger: its key, what happened, when it was due. With `follows` it may have followed from what
    earlier firings did; `depth` is how many, where that is known. One with a `status` has ended already."""

    key: str
    payload: dict[str, JsonValue]
    due: int
    follows: bool = False
    depth: int = 0
    status: FiringStatus = FiringStatus.WAITING
    reason: str = ""


def micros(at: datetime) -> int:
    """Return a moment in microseconds since 1970."""
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def moment(at: int | None) -> datetime | None:
    """Return the moment of microseconds since 1970."""
    return None if at is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)


class TriggerStore:
    """The triggers of one project, as one host sees them."""

    def __init__(self, folder: Path, log: logging.Logger, shared: SharedDatabase | None) -> None:
        self.host = new_id("host")
        self._database: Database = shared or DatabaseThread(folder, TRIGGERS, log, "store of triggers")
        self._hosts: HostNames = ProcessLocks(folder / "hosts") if shared is None else shared.names

    async def close(self) -> None:
        """Finish the writes in flight, leave open firings to other hosts, and close the store."""
        await self._database.close(self._hosts.close)

    # --- triggers ---------------------------------------------------------------------------------

    async def revision(self) -> tuple[int, int]:
        """Return a stamp that differs whenever a trigger was enabled, switched off or deleted."""
        query = "SELECT count(*), coalesce(max(changed), 0) FROM triggers"
        return await self._database.read(lambda c: tuple(c.execute(query).fetchone()), (0, 0))

    async def triggers(self) -> dict[str, KeptTrigger]:
        """Return all triggers that were enabled once, by id."""
        query, none = f"SELECT {_STATE} FROM triggers ORDER BY id", dict[str, KeptTrigger]()
        return await self._database.read(lambda c: {row[0]: _trigger(row) for row in c.execute(query).fetchall()}, none)

    async def get(self, trigger_id: str) -> KeptTrigger | None:
        """Return a trigger that was enabled once."""
        return await self._database.read(lambda c: _find(c, trigger_id), None)

    async def enable(self, kept: KeptTrigger) -> None:
        """Keep a trigger as it is enabled now."""
        values = (
            *(kept.id, kept.trigger.model_dump_json(), _caller(kept.call), int(kept.is_on), kept.reason, 0),
            *(kept.begun, kept.due, "", kept.secret, clock.microseconds()),
        )
        query = (
            "INSERT INTO triggers (id, body, caller, is_on, reason, failures, begun, due, cursor, secret, changed) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body, caller = "
            "excluded.caller, is_on = excluded.is_on, reason = excluded.reason, failures = 0, begun = excluded.begun, "
            "due = excluded.due, cursor = '', watcher = NULL, secret = excluded.secret, changed = excluded.changed"
        )
        await self._database.write(lambda connection: connection.execute(query, values))

    async def switch_off(self, trigger_id: str, reason: str) -> bool:
        """Switch a trigger off for a reason, and skip what waits; False where it was off."""

        def work(connection: sqlite3.Connection) -> bool:
            off = "UPDATE triggers SET is_on = 0, due = NULL, reason = ?, changed = ? WHERE id = ? AND is_on = 1"
            done = connection.execute(off, (reason, clock.microseconds(), trigger_id)).rowcount
            _skip_waiting(connection, trigger_id, reason or "the trigger was switched off")
            return bool(done)

        return await self._database.write(work)

    async def skip_waiting(self, trigger_id: str, reason: str) -> int:
        """Skip the firings of a trigger that wait; return how many."""
        return await self._database.write(lambda connection: _skip_waiting(connection, trigger_id, reason))

    async def delete(self, trigger_id: str) -> None:
        """Forget a trigger with its firings."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM triggers WHERE id = ?", (trigger_id,))
            connection.execute("DELETE FROM firings WHERE source = ?", (trigger_id,))

        await self._database.write(work)

    # --- what fires -------------------------------------------------------------------------------

    async def due(self, now: int) -> list[KeptTrigger]:
        """Return the triggers whose time has come, those that wait longest first, `AT_ONCE` at most."""
        query = f"SELECT {_STATE} FROM triggers WHERE due <= ? AND is_on = 1 ORDER BY due LIMIT {AT_ONCE}"
        return await self._database.read(lambda c: [_trigger(row) for row in c.execute(query, (now,)).fetchall()], [])

    async def watch(self, trigger_id: str) -> KeptTrigger | None:
        """Let this host look for what fires a trigger; None where another living host does, or it is off."""
        query = "SELECT watcher FROM triggers WHERE id = ?"

        def own(connection: sqlite3.Connection) -> KeptTrigger | None:
            is_own = connection.execute(query, (trigger_id,)).fetchone() == (self.host,)
            return _find(connection, trigger_id) if is_own else None

        def work(connection: sqlite3.Connection) -> KeptTrigger | None:
            row = connection.execute(query, (trigger_id,)).fetchone()
            if row is None or (row[0] not in (None, self.host) and not self._hosts.is_gone(row[0])):
                return None
            self._hosts.hold(self.host)
            connection.execute("UPDATE triggers SET watcher = ? WHERE id = ?", (self.host, trigger_id))
            return _find(connection, trigger_id)

        return await self._database.read(own, None) or await self._database.write(work)

    async def fire(
        self, kept: KeptTrigger, firings: Iterable[NewFiring], *, due: int | None = None, cursor: str | None = None
    ) -> list[tuple[KeptFiring, bool]]:
        """Keep firings of a trigger, and in the same transaction when it is due next, or where it was looked to by now;
        return each, and whether it is new: its key may have fired before. One that is due no more is off then. One that
        was switched off meanwhile, or is due at another time than was seen, since another host was first, is left
        alone."""
        is_due, firings = kept.due is not None and cursor is None, [*firings]

        def work(connection: sqlite3.Connection) -> list[tuple[KeptFiring, bool]]:
            self._hosts.hold(self.host)
            if is_due:
                moved = "UPDATE triggers SET due = ? WHERE id = ? AND due = ? AND is_on = 1"
                if connection.execute(moved, (due, kept.id, kept.due)).rowcount == 0:
                    return []
                if due is None:
                    over = "UPDATE triggers SET is_on = 0, reason = ?, changed = ? WHERE id = ?"
                    connection.execute(over, (OVER, clock.microseconds(), kept.id))
            if cursor is not None:
                looked = "UPDATE triggers SET cursor = ? WHERE id = ? AND watcher = ? AND is_on = 1"
                if connection.execute(looked, (cursor, kept.id, self.host)).rowcount == 0:
                    return []
            return [self._keep(connection, kept, new) for new in firings]

        return await self._database.write(work)

    def _keep(self, connection: sqlite3.Connection, kept: KeptTrigger, new: NewFiring) -> tuple[KeptFiring, bool]:
        depth, status, reason = new.depth, new.status, new.reason
        if new.follows:
            depth = max(depth, self._followed(connection, kept.id))
        if status is FiringStatus.WAITING and depth > MAX_DEPTH:
            status = FiringStatus.SKIPPED
            reason = f"{MAX_DEPTH} firings followed each on what the one before did: it may start itself without end"
        waiting = "SELECT count(*) FROM firings WHERE source = ? AND is_open = 1 AND status = 'waiting'"
        if status is FiringStatus.WAITING and connection.execute(waiting, (kept.id,)).fetchone()[0] >= MOST_WAITING:
            status, reason = FiringStatus.SKIPPED, f"{MOST_WAITING} firings wait already"
        is_open, now = not status.is_final, clock.microseconds()
        entry = {"trigger": kept.trigger.to_json(), "payload": new.payload} if is_open else {}
        values = {
            **{"id": new_id("firing"), "source": kept.id, "key": new.key, "status": status.value},
            **{"is_open": int(is_open), "due": new.due, "finished": None if is_open else now, "reason": reason},
            **{"depth": depth, "owner": self.host if is_open else None, "again": 0, "entry": json.dumps(entry)},
            "caller": _caller(kept.call),
        }
        marks = ", ".join("?" * len(values))
        added = f"INSERT INTO firings ({', '.join(values)}) VALUES ({marks}) ON CONFLICT (source, key) DO NOTHING"
        is_new = connection.execute(added, [*values.values()]).rowcount > 0
        found = f"SELECT {_FIRING} FROM firings WHERE source = ? AND key = ?"
        return _firing(connection.execute(found, (kept.id, new.key)).fetchone()), is_new

    def _followed(self, connection: sqlite3.Connection, trigger_id: str) -> int:
        """Return how many firings a new one may have followed on."""
        query = (
            "SELECT max(depth) + 1 FROM firings WHERE source = ? AND (status = 'running' OR finished >= ?) "
            "AND status NOT IN ('skipped', 'missed')"
        )
        since = clock.microseconds() - _AFTERWARDS // timedelta(microseconds=1)
        return connection.execute(query, (trigger_id, since)).fetchone()[0] or 0

    # --- a firing's life --------------------------------------------------------------------------

    async def take_up(self, known: Collection[str]) -> list[KeptFiring]:
        """Return the open firings of this host that are not `known`, `AT_ONCE` at most, with those of hosts that are
        gone, which are this host's now."""

        def look(connection: sqlite3.Connection) -> list[str]:
            query = "SELECT DISTINCT owner FROM firings WHERE is_open = 1 AND owner <> ?"
            return [owner for (owner,) in connection.execute(query, (self.host,)) if self._hosts.is_gone(owner)]

        def take(connection: sqlite3.Connection) -> None:
            self._hosts.hold(self.host)
            taken = "UPDATE firings SET owner = ? WHERE is_open = 1 AND owner = ?"
            connection.executemany(taken, [(self.host, owner) for owner in gone])

        none: list[str] = []
        if gone := await self._database.read(look, none):
            await self._database.write(take)
        query = f"SELECT {_FIRING} FROM firings WHERE is_open = 1 AND owner = ? ORDER BY seq"

        def own(connection: sqlite3.Connection) -> list[KeptFiring]:
            new = (row for row in connection.execute(query, (self.host,)) if row[0] not in known)
            return [_firing(row) for row in islice(new, AT_ONCE)]

        return await self._database.read(own, [])

    async def begin(self, firing: KeptFiring) -> KeptFiring | None:
        """Let a firing of this host begin, or be skipped, since others of its trigger run; return how it stands, None
        where it is not this host's. One that may neither begin nor be skipped is left waiting."""
        trigger = firing.trigger
        assert trigger is not None
        most = trigger.max_concurrent if trigger.overlap == "parallel" else 1

        def work(connection: sqlite3.Connection) -> KeptFiring | None:
            query = f"SELECT {_FIRING} FROM firings WHERE id = ? AND owner = ? AND is_open = 1"
            row = connection.execute(query, (firing.id, self.host)).fetchone()
            if row is None or (now := _firing(row)).status is FiringStatus.RUNNING:
                return None if row is None else now
            running = "SELECT count(*) FROM firings WHERE source = ? AND is_open = 1 AND status = 'running'"
            if connection.execute(running, (firing.source,)).fetchone()[0] < most:
                begun = "UPDATE firings SET status = 'running', started = ? WHERE id = ?"
                connection.execute(begun, (clock.microseconds(), firing.id))
                return replace(now, status=FiringStatus.RUNNING)
            if trigger.overlap == "skip":
                reason = "another firing of this trigger was running"
                _end(connection, firing, FiringStatus.SKIPPED, reason)
                return replace(now, status=FiringStatus.SKIPPED, reason=reason)
            return now

        return await self._database.write(work)

    async def started(self, firing: KeptFiring, run: str) -> None:
        """Keep which run a firing has started."""
        query = "UPDATE firings SET run = ? WHERE id = ?"
        await self._database.write(lambda connection: connection.execute(query, (run, firing.id)))

    async def put_back(self, firing: KeptFiring, again: int) -> None:
        """Let a firing wait that could not begin, until a moment."""
        query = "UPDATE firings SET status = 'waiting', started = NULL, again = ? WHERE id = ? AND owner = ?"
        await self._database.write(lambda connection: connection.execute(query, (again, firing.id, self.host)))

    async def end(self, firing: KeptFiring, status: FiringStatus, reason: str = "") -> int:
        """Keep how a firing of this host ended; return how many of its trigger have failed in a row by now."""

        def work(connection: sqlite3.Connection) -> int:
            if not _end(connection, firing, status, reason, self.host):
                return 0
            failures = "failures + 1" if status is FiringStatus.ERROR else "0"
            if status in (FiringStatus.ERROR, FiringStatus.COMPLETE):
                connection.execute(f"UPDATE triggers SET failures = {failures} WHERE id = ?", (firing.source,))
            row = connection.execute("SELECT failures FROM triggers WHERE id = ?", (firing.source,)).fetchone()
            _prune(connection, firing.source)
            return 0 if row is None else int(row[0])

        return await self._database.write(work)

    async def firing(self, firing_id: str) -> KeptFiring | None:
        """Return a firing."""
        query = f"SELECT {_FIRING} FROM firings WHERE id = ?"
        row = await self._database.read(lambda c: c.execute(query, (firing_id,)).fetchone(), None)
        return None if row is None else _firing(row)

    async def history(self, trigger_id: str | None, limit: int) -> list[Firing]:
        """Return firings, the newest first."""
        which, values = ("", [limit]) if trigger_id is None else ("WHERE source = ?", [trigger_id, limit])
        query = f"SELECT {_FIRING} FROM firings {which} ORDER BY seq DESC LIMIT ?"
        none: list[Firing] = []
        return await self._database.read(lambda c: [_firing(row).shown for row in c.execute(query, values)], none)

    async def latest(self) -> tuple[dict[str, KeptFiring], dict[str, int]]:
        """Return the latest firing of each trigger, and how many of each have not ended."""

        def work(connection: sqlite3.Connection) -> tuple[dict[str, KeptFiring], dict[str, int]]:
            query = f"SELECT {_FIRING} FROM firings WHERE seq IN (SELECT max(seq) FROM firings GROUP BY source)"
            last = [_firing(row) for row in connection.execute(query).fetchall()]
            counted = "SELECT source, count(*) FROM firings WHERE is_open = 1 GROUP BY source"
            return {one.source: one for one in last}, dict(connection.execute(counted).fetchall())

        return await self._database.read(work, ({}, {}))


def _find(connection: sqlite3.Connection, trigger_id: str) -> KeptTrigger | None:
    row = connection.execute(f"SELECT {_STATE} FROM triggers WHERE id = ?", (trigger_id,)).fetchone()
    return None if row is None else _trigger(row)


def _trigger(row: Collection[Any]) -> KeptTrigger:
    id, body, caller, is_on, *rest = row
    call = CallContext.model_validate_json(caller)
    return KeptTrigger(id, Trigger.model_validate_json(body), call, bool(is_on), *rest)


def _firing(row: Collection[Any]) -> KeptFiring:
    id, source, status, due, started, finished, run, reason, depth, _owner, entry, caller, again = row
    kept = json.loads(entry)
    trigger = Trigger.model_validate(kept["trigger"]) if kept else None
    call, payload = CallContext.model_validate_json(caller), kept.get("payload")
    times = {"started": started, "finished": finished, "again": again}
    about = {"run": run, "reason": reason, "depth": depth, "status": FiringStatus(status), **times}
    return KeptFiring(id, source, call, due, trigger, payload, **about)


def _caller(call: CallContext) -> str:
    return call.model_dump_json(include={"principal", "project", "admission", "via"})


def _end(
    connection: sqlite3.Connection, firing: KeptFiring, status: FiringStatus, reason: str, owner: str | None = None
) -> bool:
    ended = (
        "UPDATE firings SET status = ?, is_open = 0, finished = ?, reason = ?, entry = '{}', owner = NULL "
        "WHERE id = ? AND is_open = 1" + (" AND owner = ?" if owner else "")
    )
    values = (status.value, clock.microseconds(), reason[:2000], firing.id)
    return bool(connection.execute(ended, (*values, owner) if owner else values).rowcount)


def _skip_waiting(connection: sqlite3.Connection, trigger_id: str, reason: str) -> int:
    skipped = (
        "UPDATE firings SET status = 'skipped', is_open = 0, finished = ?, reason = ?, entry = '{}', owner = NULL "
        "WHERE source = ? AND is_open = 1 AND status = 'waiting'"
    )
    return connection.execute(skipped, (clock.microseconds(), reason[:2000], trigger_id)).rowcount


def _prune(connection: sqlite3.Connection, trigger_id: str) -> None:
    before = clock.microseconds() - _KEPT_AT_LEAST // timedelta(microseconds=1)
    older = "SELECT seq FROM firings WHERE source = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
    for place, age in ((_KEPT, "AND finished < ?"), (_KEPT_AT_MOST, "")):
        if (row := connection.execute(older, (trigger_id, place)).fetchone()) is not None:
            forgotten = f"DELETE FROM firings WHERE source = ? AND seq <= ? AND is_open = 0 {age}"
            connection.execute(forgotten, (trigger_id, row[0], *([before] if age else [])))
