"""The service `runStore` over PostgreSQL: runs that several hosts share.

The time of leases is the database's. A worker holds its name as an advisory lock of its connection, so that the runs of
one that ended are claimed at once, and those of one that cannot be reached when their lease is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from tavern_engine.api.executions import RunFilter, RunSummary
from tavern_engine.api.run_rows import ENTRY_COLUMNS, checked_limits, lease_seconds, not_own, unknown
from tavern_engine.api.runs import RunEnd, RunEntry, RunStore
from tavern_host import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, NotFound, ServiceUnavailable, TavernError
from tavern_host.contracts.executions import RunStatus
from tavern_host.storage.content_files import hash_of
from tavern_postgres import State
from tavern_postgres.database import CHANNEL, HELD, Connection, Database, Row, address
from tavern_postgres.dialect import translated
from tavern_postgres.rows import ROWS, text

_CLAIMED = (
    "(owner IS NOT NULL AND lease_until >= clock_timestamp()"
    f" AND (renewed > clock_timestamp() - interval '15 seconds' OR {HELD.format(key='owner_key')}))"
)
"""Whether some worker has a run. One whose connection was lost, with its name, has time to renew its claims."""

_UNFINISHED_ELSEWHERE = "NOT is_final AND owner IS DISTINCT FROM %(worker)s"

_UNTIL = "clock_timestamp() + %(lease)s * interval '1 second'"

_BACK = 10.0
"""Seconds in which the workers of runs can prolong leases that ended while the database did not answer."""

_PATIENCE = 60.0
"""Seconds for which a write is tried again while the database does not answer: a restart of it should cost no run."""

_KEPT_SECONDS = 3600
"""How long a content that no run refers to is kept: its writer may be about to refer to it."""

"""Where the plugin's parts find the store that the database took the place of."""

_AT_ONCE = 50
"""How many runs one transaction forgets: others wait for it."""


class PostgresRunStore(RunStore):
    """Keeps runs in the schema of a database. Nothing is connected to before it is used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def close(self) -> None:
        """Give back what workers of this store have, and close the connections."""
        if names := self._database.names:
            given = (
                "UPDATE runs SET lease_until = clock_timestamp() WHERE NOT is_final AND owner = ANY(%(names)s)"
                " RETURNING id, owner"
            )
            with contextlib.suppress(ServiceUnavailable):
                await self._change(given, {"names": names})
        await self._database.close()

    # --- runs -------------------------------------------------------------------------------------

    async def accept(
        self,
        entry: RunEntry,
        *,
        worker: str,
        lease: float,
        documents: tuple[bytes, ...] = (),
        call: CallContext | None = None,
    ) -> None:
        """Insert a new run, claimed by `worker`. Raises `Conflict`, `NotFound`, `InvalidInput`."""
        run_id, worker = ROWS.checked(entry.id, "the id of a run"), ROWS.checked(worker, "the name of a worker")
        values = ROWS.accepted(entry) | ROWS.standing(entry, run_id) | {"lease": lease_seconds(lease)}
        values |= {"owner": worker, "owner_key": await self._database.hold(worker)}
        values |= {"size": len(values["entry"]) + len(values["state"])}
        if values["is_final"]:
            values |= {"owner": None, "owner_key": None}
        columns = [name for name in values if name != "lease"]
        until = "NULL" if values["is_final"] else _UNTIL
        insert = (
            f"INSERT INTO runs ({', '.join(columns)}, lease_until, renewed)"
            f" VALUES ({', '.join(f'%({name})s' for name in columns)}, {until}, clock_timestamp())"
            " ON CONFLICT (id) DO NOTHING RETURNING seq"
        )
        hashes = sorted({entry.workflow, *entry.groups.values()})
        async with self._database.writer.cursor(transaction=True) as cursor:
            await cursor.execute(insert.encode(), values)
            if (added := await cursor.fetchone()) is None:
                raise Conflict(f"there is a run {run_id!r} already")
            for document in documents:
                await cursor.execute(_PUT.encode(), {"hash": hash_of(document), "body": document})
            await _use(cursor, added[0], hashes, f"the run {run_id}")

    async def claim(
        self, worker: str, lease: float, *, run_id: str | None = None, call: CallContext | None = None
    ) -> RunEntry | None:
        """Claim a run without an owner, or `run_id`; None where there is none such, or another worker has it."""
        if run_id is not None:
            return await self._claim(f"id = %(id)s AND (owner = %(worker)s OR NOT {_CLAIMED})", worker, lease, run_id)
        if await self._database.writer.is_back(_BACK):
            return None
        return await self._claim(f"{_UNFINISHED_ELSEWHERE} AND NOT {_CLAIMED}", worker, lease)

    async def take(self, worker: str, lease: float, *, call: CallContext | None = None) -> RunEntry | None:
        """Claim a run that waits at another worker; None where there is none."""
        return await self._claim(f"{_UNFINISHED_ELSEWHERE} AND waits", worker, lease)

    async def _claim(self, which: str, worker: str, lease: float, run_id: str | None = None) -> RunEntry | None:
        """Claim the first of the runs that fulfil a condition."""
        worker, lease = ROWS.checked(worker, "the name of a worker"), lease_seconds(lease)
        values = {"worker": worker, "lease": lease, "key": await self._database.hold(worker), "stays": run_id is None}
        values["id"] = text(run_id or "")
        claimed = (
            f"UPDATE runs SET owner = %(worker)s, owner_key = %(key)s, lease_until = {_UNTIL}, waits = false,"
            " renewed = clock_timestamp(), is_unwanted = is_unwanted AND %(stays)s WHERE seq ="
            f" (SELECT seq FROM runs WHERE {which} ORDER BY priority DESC, submitted, seq LIMIT 1"
            f" FOR UPDATE SKIP LOCKED) RETURNING {ENTRY_COLUMNS}"
        )
        while found := await self._change(claimed, values):
            try:
                return ROWS.entry(found[0])
            except TavernError as damage:
                await self._give_up(worker, found[0][0], damage)  # the others must not wait behind it
                if run_id is not None:
                    raise
        return None

    async def _give_up(self, worker: str, run_id: str, damage: TavernError) -> None:
        end = RunEnd(status=RunStatus.ERROR, error=damage.info, not_resumable=damage.message)
        await self.update(worker, run_id, end)

    async def offer(self, worker: str, run_id: str, *, waits: bool, call: CallContext | None = None) -> bool:
        """Let other workers take a run, or no longer; False where another has it by now."""
        values = {"id": text(run_id), "worker": text(worker), "waits": waits, "lease": _BACK}
        offered = (  # one that starts may have waited until the database answered, and its lease be over
            f"UPDATE runs SET waits = %(waits)s, lease_until = greatest(lease_until, {_UNTIL}),"
            " renewed = clock_timestamp() WHERE id = %(id)s AND owner = %(worker)s AND NOT is_final RETURNING id, owner"
        )
        return bool(await (self._change if waits else self._database.writer.rows)(offered, values))

    async def renew(
        self, worker: str, run_ids: list[str], lease: float, *, call: CallContext | None = None
    ) -> list[str]:
        """Prolong the claims of a worker; return those of the runs that are still its own."""
        values = {
            "ids": [run_id for run_id in run_ids if text(run_id) == run_id],
            "worker": text(worker),
            "lease": lease_seconds(lease),
        }
        renewed = (
            f"UPDATE runs SET lease_until = {_UNTIL}, renewed = clock_timestamp()"
            " WHERE id = ANY(%(ids)s) AND owner = %(worker)s RETURNING id"
        )
        kept = {run_id for (run_id,) in await self._database.writer.rows(renewed, values)}
        await self._database.keep_names()
        return [run_id for run_id in run_ids if run_id in kept]

    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Keep that a run is to end; False for one that is finished. Raises `NotFound`."""
        asked = "UPDATE runs SET is_unwanted = true WHERE id = %(id)s AND NOT is_final RETURNING id, owner"
        if await self._change(asked, {"id": text(run_id)}):
            return True
        await self.get(run_id)
        return False

    async def unwanted(self, worker: str) -> list[str]:
        """Return the runs of a worker that are to end."""
        asked = "SELECT id FROM runs WHERE NOT is_final AND is_unwanted AND owner = %s"
        return [run_id for (run_id,) in await self._database.reader.read(asked, (text(worker),))]

    async def append(
        self,
        worker: str,
        run_id: str,
        batch: bytes,
        *,
        contents: tuple[str, ...] = (),
        call: CallContext | None = None,
    ) -> None:
        """Add a batch of node results. Raises `Conflict` where the run is another's, `NotFound` for a value."""
        await self._write(worker, run_id, {}, batch, contents)

    async def update(
        self,
        worker: str,
        run_id: str,
        end: RunEnd,
        *,
        batch: bytes = b"",
        contents: tuple[str, ...] = (),
        call: CallContext | None = None,
    ) -> None:
        """Write how a run stands, and a last batch. Raises `Conflict` where it is another's, `NotFound` for a value."""
        stands = ROWS.standing(end, run_id)
        if stands["is_final"]:
            stands |= {"owner": None, "owner_key": None, "lease_until": None}
        await self._write(worker, run_id, stands, batch, contents)

    async def _change(self, changed: str, values: dict[str, Any]) -> list[Row]:
        """Execute a statement that gives runs, their ids and owners among it; tell the hosts that share the runs."""
        told = "json_build_array(current_schema(), NULL, id, owner)::text"
        telling = f"WITH changed AS ({changed}) SELECT changed.*, pg_notify('{CHANNEL}', {told}) FROM changed"
        return [row[:-1] for row in await self._database.writer.rows(telling, values)]

    async def _write(
        self, worker: str, run_id: str, stands: dict[str, Any], batch: bytes, contents: tuple[str, ...]
    ) -> None:
        """Change a worker's run and add a batch to it, both or neither, as soon as the database answers. A batch may be
        written twice, where only the answer was lost; its reader takes the last result of each node."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        while True:
            try:
                return await self._write_now(worker, run_id, stands, batch, contents)
            except ServiceUnavailable:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(0.2)

    async def _write_now(
        self, worker: str, run_id: str, stands: dict[str, Any], batch: bytes, contents: tuple[str, ...]
    ) -> None:
        """Change a worker's run and add a batch to it, both or neither."""
        own = {"_id": text(run_id), "_worker": text(worker), "_more": len(batch), "_batch": batch}
        sets = "".join(f", {name} = %({name})s" for name in stands)
        resized = " - length(state) + length(%(state)s)" if stands else ""
        changed = (
            f"UPDATE runs SET size = size + %(_more)s{resized}{sets}"
            " WHERE id = %(_id)s AND owner = %(_worker)s RETURNING seq"
        )
        if batch or not stands:
            added = "INSERT INTO batches (run, content) SELECT seq, %(_batch)s FROM run RETURNING run"
            changed = f"WITH run AS ({changed}), batch AS ({added}) SELECT seq FROM run"
        if not contents:
            found = await self._database.writer.rows(changed, {**stands, **own})
        else:
            async with self._database.writer.cursor(transaction=True) as cursor:
                await cursor.execute(changed.encode(), {**stands, **own})
                found = await cursor.fetchall()
                if found:
                    await _use(cursor, found[0][0], sorted(set(contents)), f"a batch of the run {run_id}")
        if not found:
            owners = await self._database.reader.read("SELECT owner FROM runs WHERE id = %s", (text(run_id),))
            raise not_own(worker, run_id, owners[0] if owners else None)

    async def get(self, run_id: str) -> RunEntry:
        """Return a run. Raises `NotFound`."""
        wanted = f"SELECT {ENTRY_COLUMNS} FROM runs WHERE id = %s"
        found = await self._database.reader.read(wanted, (text(run_id),))
        if not found:
            raise unknown(run_id)
        return ROWS.entry(found[0])

    async def batches(self, run_id: str) -> list[bytes]:
        """Return the batches of a run, oldest first. Raises `NotFound`."""
        wanted = (
            "SELECT content FROM runs LEFT JOIN batches ON batches.run = runs.seq WHERE id = %s ORDER BY batches.seq"
        )
        found = await self._database.reader.read(wanted, (text(run_id),))
        if not found:
            raise unknown(run_id)
        return [content for (content,) in found if content is not None]

    async def contents(self, run_id: str) -> list[str]:
        """Return the hashes of what a run needs of what is kept apart. Raises `NotFound`."""
        wanted = "SELECT hash FROM runs JOIN uses ON uses.run = runs.seq WHERE id = %s ORDER BY hash"
        found = await self._database.reader.read(wanted, (text(run_id),))
        if not found:  # a run needs its document
            raise unknown(run_id)
        return [name for (name,) in found]

    async def list_runs(self, filter: RunFilter) -> list[RunSummary]:
        """Return runs, newest first."""
        listed, values = ROWS.query(filter)
        return [ROWS.summary(row) for row in await self._database.reader.read(translated(listed), values)]

    # --- contents ---------------------------------------------------------------------------------

    async def put(self, content: bytes, *, call: CallContext | None = None) -> str:
        """Store a large value or a document by itself; return its hash."""
        name = hash_of(content)
        await self._database.writer.rows(_PUT, {"hash": name, "body": content})
        return name

    async def content(self, hash: str) -> bytes:
        """Return what was put. Raises `NotFound`."""
        found = await self._database.reader.read("SELECT body FROM contents WHERE hash = %s", (text(hash),))
        if not found or hash_of(found[0][0]) != hash:
            raise NotFound(f"the value {hash!r:.80} is not kept, or its file is damaged")
        return bytes(found[0][0])

    # --- deletion ---------------------------------------------------------------------------------

    async def delete(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Delete a finished run; False where there is none. Raises `Conflict` for one that is not finished."""
        wanted = {"id": text(run_id)}
        deleted = f"DELETE FROM runs WHERE id = %(id)s AND is_final AND NOT {_CLAIMED} RETURNING seq"
        if await self._database.writer.rows(deleted, wanted):
            return True
        found = await self._database.reader.read("SELECT is_final FROM runs WHERE id = %(id)s", wanted)
        if not found:
            return False
        why = "is being resumed" if found[0][0] else "is not finished"
        raise Conflict(f"the run {run_id!r} {why}: interrupt it first")

    async def prune(self, *, max_age: float, max_bytes: int, call: CallContext | None = None) -> int:
        """Delete finished runs by age and size, and contents that no run needs; return how many runs."""
        age = checked_limits(max_age, max_bytes)
        writer, forgotten = self._database.writer, 0
        old = "finished < clock_timestamp() - %(age)s * interval '1 second'"
        while count := await self._forget(writer, old, {"age": age}):
            forgotten += count
        while (await writer.rows(_KEPT_BYTES))[0][0] > max_bytes and (
            count := await self._forget(writer, "TRUE", {}, 1)
        ):
            forgotten += count
        await writer.rows(
            "DELETE FROM contents WHERE kept < clock_timestamp() - %s * interval '1 second'"
            " AND NOT EXISTS (SELECT 1 FROM uses WHERE uses.hash = contents.hash)",
            (_KEPT_SECONDS,),
        )
        return forgotten

    async def _forget(self, writer: Connection, which: str, values: dict[str, Any], limit: int = _AT_ONCE) -> int:
        """Delete the finished unclaimed runs that ended first; return how many."""
        first = (
            f"SELECT seq FROM runs WHERE is_final AND {which} AND NOT {_CLAIMED} ORDER BY finished, seq"
            f" LIMIT {limit} FOR UPDATE SKIP LOCKED"
        )
        return len(await writer.rows(f"DELETE FROM runs WHERE seq IN ({first}) RETURNING seq", values))


class PostgresRuns(PostgresRunStore):
    """Keeps the runs of a host in the database that its operator named."""

    def __init__(self, context: PluginContext, original: RunStore) -> None:
        super().__init__(Database(*address(context), context.log))
        context.own(State).replaced = original


_PUT = (
    "INSERT INTO contents (hash, body, kept) VALUES (%(hash)s, %(body)s, clock_timestamp())"
    " ON CONFLICT (hash) DO UPDATE SET kept = excluded.kept"
)

_KEPT_BYTES = (
    "SELECT (SELECT coalesce(sum(size), 0) FROM runs) + (SELECT coalesce(sum(length(body)), 0) FROM contents"
    " WHERE EXISTS (SELECT 1 FROM uses WHERE uses.hash = contents.hash))"
)


async def _use(cursor: Any, seq: int, hashes: list[str], who: str) -> None:
    """Write down that a run needs contents. Raises `NotFound` where one is not kept."""
    found = await (
        await cursor.execute("SELECT hash FROM contents WHERE hash = ANY(%s) FOR KEY SHARE", (hashes,))
    ).fetchall()
    for missing in sorted({*hashes} - {name for (name,) in found}):
        raise NotFound(f"{who} refers to {missing!r:.80}, which is not kept; put it first")
    used = "INSERT INTO uses (run, hash) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING"
    await cursor.execute(used, (seq, hashes))
