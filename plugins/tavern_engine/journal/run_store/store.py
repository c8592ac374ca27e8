"""The service `runStore`: claims, writes and reads of runs, in a file of SQLite or in a database that hosts share.

Every method is one transaction; several processes may have one store open. A file may come from anybody: only runs
that were accepted here, or whose resumption was requested here, are resumed automatically from one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import JsonValue

from tavern_engine import EngineState
from tavern_engine.api.executions import RunFilter, RunSummary
from tavern_engine.api.runs import RUNS_CHANGED, RunEnd, RunEntry, RunStore
from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.run_store import moving, rows
from tavern_engine.journal.run_store.ownership import AT_ONCE, BACK, Ownership
from tavern_engine.journal.run_store.pruning import Pruning
from tavern_engine.journal.run_store.rows import ENTRY_COLUMNS
from tavern_engine.journal.run_store.schema import RUNS
from tavern_engine.journal.run_store.statements import body_of, keep_body, know, use, write
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, NotFound, ServiceUnavailable, TavernError
from tavern_host.storage.content_files import ContentFiles, NewContent, hash_of
from tavern_host.storage.databases import Database, HostNames, SharedDatabase, shared_database
from tavern_host.storage.process_locks import ProcessLocks
from tavern_host.storage.sqlite import DatabaseThread

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

SMALL = 16 * 1024
"""Contents of up to so many bytes are in the database where others are in files: a file for each would cost more than
all else that is written of a run."""

PATIENCE = 60.0
"""Seconds for which a write is tried again while the shared database does not answer: a restart of it should cost no
run."""

_AGAIN = 0.2


class SqlRunStore(RunStore):
    """Keeps runs in a folder, sealed with the key of whose runs they are, or all in a `shared` database. Nothing is
    opened before it is used."""

    def __init__(
        self, folder: Path, log: logging.Logger, key: ProjectKey, shared: SharedDatabase | None = None
    ) -> None:
        self._folder = folder
        self._log = log
        self._is_closed = False
        self._shared = shared
        self._writer: Database = shared or DatabaseThread(folder, RUNS, log, "run store: writing")
        self._disk = DatabaseThread(folder, RUNS, log, "run store: reading")
        self._reader: Database = shared or self._disk
        self._files = ContentFiles(folder / "values")
        self._small: float = SMALL if shared is None else math.inf
        names: HostNames = ProcessLocks(folder / "workers") if shared is None else shared.names
        self._owners = Ownership(names, key, log, shared)

    async def close(self) -> None:
        """Give back what workers of this store have, finish pending work, and release their names."""
        was_closed, self._is_closed = self._is_closed, True
        if self._shared is not None and self._owners.held and not was_closed:
            statement = (
                "UPDATE runs SET lease_until = 0 WHERE is_final = 0"
                f" AND owner IN ({', '.join('?' * len(self._owners.held))}) RETURNING id, owner"
            )
            with contextlib.suppress(TavernError):
                for left in await self._writer.write(lambda c: c.execute(statement, [*self._owners.held]).fetchall()):
                    await self._tell(*left)
        await self._reader.close()
        await self._writer.close(self._owners.names.close)

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
        run_id, worker = rows.checked(entry.id, "the id of a run"), rows.checked(worker, "the name of a worker")
        length = rows.lease_length(lease)
        for document in documents:
            if len(document) > self._small:
                await self.put(document)

        def work(connection: sqlite3.Connection) -> None:
            values = rows.accepted(entry) | rows.standing(entry, run_id)
            values["size"] = len(values["entry"]) + len(values["state"])
            self._owners.hold(worker)
            if not values["is_final"]:
                values |= {"owner": worker, "seal": self._owners.seal(run_id, values["entry"])}
            marks = ["?"] * len(values) + ["microseconds() + ?"]
            inserted = (
                f"INSERT INTO runs ({', '.join([*values, 'lease_until'])}) VALUES ({', '.join(marks)})"
                " ON CONFLICT (id) DO NOTHING RETURNING seq"
            )
            until = None if values["is_final"] else length
            added = connection.execute(inserted, [*values.values(), until]).fetchone()
            if added is None:
                raise Conflict(f"there is a run {run_id!r} already")
            for document in documents:
                if len(document) <= self._small:
                    keep_body(connection, document)
            use(connection, added[0], (entry.workflow, *entry.groups.values()), f"the run {run_id}")

        await self._writer.write(work)

    async def claim(
        self, worker: str, lease: float, *, run_id: str | None = None, call: CallContext | None = None
    ) -> RunEntry | None:
        """Claim a run without an owner, or `run_id`; None where there is none such, or another worker has it."""
        return await self._claimed(worker, lease, run_id=run_id)

    async def steal(self, worker: str, lease: float, *, call: CallContext | None = None) -> RunEntry | None:
        """Claim a run that waits at another worker; None where there is none, or one host serves the project that the
        files are in."""
        return None if self._shared is None else await self._claimed(worker, lease, takes=True)

    async def set_stealable(self, worker: str, run_id: str, *, waits: bool, call: CallContext | None = None) -> bool:
        """Let other workers take a run, or no longer; False where another has it by now, or as `take` says."""
        if self._shared is None:
            return False
        offered = (  # one that starts may have waited until the database answered, and its lease be over
            "UPDATE runs SET waits = ?, lease_until ="
            " CASE WHEN lease_until < microseconds() + ? THEN microseconds() + ? ELSE lease_until END"
            " WHERE id = ? AND owner = ? AND is_final = 0"
        )
        back = rows.lease_length(BACK)
        values = (waits, back, back, rows.text(run_id), rows.text(worker))
        is_own = await self._writer.write(lambda connection: connection.execute(offered, values).rowcount > 0)
        if is_own and waits:
            await self._tell(run_id, worker)
        return is_own

    async def renew(
        self, worker: str, run_ids: list[str], lease: float, *, call: CallContext | None = None
    ) -> list[str]:
        """Prolong the claims of a worker; return those of the runs that are still its own."""
        wanted = [run_id for run_id in run_ids if rows.text(run_id) == run_id]
        renewed = (
            "UPDATE runs SET lease_until = microseconds() + ?"
            f" WHERE owner = ? AND id IN ({', '.join('?' * len(wanted))}) RETURNING id"
        )
        values = (rows.lease_length(lease), rows.text(worker), *wanted)
        if not wanted:
            return []
        kept = {id for (id,) in await self._writer.write(lambda c: c.execute(renewed, values).fetchall())}
        return [run_id for run_id in run_ids if run_id in kept]

    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Keep that a run is to end; False for one that is finished. Raises `NotFound`."""
        asked = "UPDATE runs SET is_unwanted = 1 WHERE id = ? AND is_final = 0 RETURNING owner"
        await self.get(run_id)
        found = await self._writer.write(lambda c: c.execute(asked, (rows.text(run_id),)).fetchone())
        if found is not None:
            await self._tell(run_id, found[0])
        return found is not None

    async def cancel_requested(self, worker: str) -> list[str]:
        """Return the runs of a worker that are to end."""
        asked = "SELECT id FROM runs WHERE is_final = 0 AND is_unwanted = 1 AND owner = ?"
        return await self._reader.read(lambda c: [id for (id,) in c.execute(asked, (rows.text(worker),))], absent=[])

    async def append(
        self, worker: str, run_id: str, batch: bytes, *, contents: tuple[str, ...] = (), call: CallContext | None = None
    ) -> None:
        """Add a batch of node results. Raises `Conflict` where the run is another's, `NotFound` for a value."""
        await self._written(lambda connection: write(connection, worker, run_id, {}, batch, contents))

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

        def work(connection: sqlite3.Connection) -> None:
            write(connection, worker, run_id, rows.standing(end, run_id), batch or None, contents)

        await self._written(work)

    async def get(self, run_id: str) -> RunEntry:
        """Return a run. Raises `NotFound`."""
        wanted = f"SELECT {ENTRY_COLUMNS} FROM runs WHERE id = ?"

        def work(connection: sqlite3.Connection) -> RunEntry | None:
            found = connection.execute(wanted, (rows.text(run_id),)).fetchone()
            return None if found is None else rows.entry(found)

        entry = await self._reader.read(work, absent=None)
        if entry is None:
            raise rows.unknown(run_id)
        return entry

    async def batches(self, run_id: str) -> list[bytes]:
        """Return the batches of a run, oldest first. Raises `NotFound`."""
        wanted = (
            "SELECT content FROM runs LEFT JOIN batches ON batches.run = runs.seq WHERE id = ? ORDER BY batches.seq"
        )
        found = await self._found(wanted, run_id)
        return [content for (content,) in found if isinstance(content, bytes)]

    async def contents(self, run_id: str) -> list[str]:
        """Return the hashes of what a run needs of what is kept apart. Raises `NotFound`."""
        wanted = "SELECT hash FROM runs JOIN uses ON uses.run = runs.seq WHERE id = ? ORDER BY hash"
        return [name for (name,) in await self._found(wanted, run_id)]  # a run needs its document

    async def list_runs(self, filter: RunFilter) -> list[RunSummary]:
        """Return runs, newest first."""
        statement, values = rows.query(filter)

        def work(connection: sqlite3.Connection) -> list[RunSummary]:
            return [s for row in connection.execute(statement, values) if (s := self._summary(row)) is not None]

        return await self._reader.read(work, absent=[])

    # --- contents ---------------------------------------------------------------------------------

    async def put(self, content: bytes, *, call: CallContext | None = None) -> str:
        """Store a large value or a document by itself; return its hash."""
        if len(content) <= self._small:
            return await self._writer.write(lambda connection: keep_body(connection, content))

        def prepare() -> tuple[str, NewContent | None]:
            name = hash_of(content)
            return name, None if self._files.read(name) == content else self._files.write(content)

        name, temporary = await self._disk.run(prepare)

        def work(connection: sqlite3.Connection) -> bool:
            # The file gets its place while the database is locked: no pruning happens at this moment.
            if temporary is not None:
                self._files.keep(temporary.path, name)
            elif not self._files.has(name):
                return False
            know(connection, name, len(content))
            return True

        try:
            if await self._writer.write(work):
                return name
        finally:
            if temporary is not None:
                temporary.discard()
        return await self.put(content, call=call)  # it was pruned between the two steps

    async def content(self, hash: str) -> bytes:
        """Return the bytes that were `put`. Raises `NotFound`."""
        found = await self._reader.read(lambda connection: body_of(connection, hash), absent=None)
        if found is None and self._shared is None:
            found = await self._disk.run(lambda: self._files.read(hash))
        if found is None:
            raise NotFound(f"the value {hash!r:.80} is not kept, or its file is damaged")
        return found

    # --- deletion ---------------------------------------------------------------------------------

    async def delete(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Delete a finished run; False where there is none. Raises `Conflict` for one that is not finished."""
        wanted = "SELECT seq, is_final, owner, lease_until >= microseconds() FROM runs WHERE id = ?"

        def work(connection: sqlite3.Connection) -> bool:
            found = connection.execute(wanted, (rows.text(run_id),)).fetchone()
            if found is None:
                return False
            seq, is_final, owner, is_leased = found
            if not is_final:
                raise Conflict(f"the run {run_id!r} is not finished: interrupt it first")
            if self._owners.is_claimed(owner, is_leased):
                raise Conflict(f"the run {run_id!r} is being resumed: interrupt it first")
            connection.execute("DELETE FROM runs WHERE seq = ?", (seq,))
            return True

        return await self._writer.write(work) if await self._exists() else False

    async def prune(self, *, max_age: float, max_bytes: int, call: CallContext | None = None) -> int:
        """Delete finished runs by age and size, and contents that no run needs; return how many runs."""
        before = rows.oldest(max_age, max_bytes)
        if not await self._exists():
            return 0
        disk = (self._files, self._disk) if self._shared is None else None
        return await Pruning(self._writer, disk, self._owners.is_claimed).run(before, max_bytes)

    # --- helpers ----------------------------------------------------------------------------------

    async def _exists(self) -> bool:
        """Return whether there is a database."""
        return await self._reader.read(lambda _: True, absent=False)

    async def _found(self, wanted: str, run_id: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement about a run. Raises `NotFound` where there are none."""
        values = (rows.text(run_id),)
        found = await self._reader.read(lambda c: c.execute(wanted, values).fetchall(), absent=list[tuple[Any, ...]]())
        if not found:
            raise rows.unknown(run_id)
        return found

    async def _written(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write as soon as a shared database answers. A batch may be written twice, where only the answer was lost; its
        reader takes the last result of each node."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (PATIENCE if self._shared is not None else 0)
        while True:
            try:
                return await self._writer.write(work)
            except TavernError as error:
                is_away = error.info.code == ServiceUnavailable.code and not self._is_closed
                if not is_away or loop.time() >= deadline:
                    raise
            await asyncio.sleep(_AGAIN)

    async def _tell(self, run_id: str, worker: str | None) -> None:
        """Tell hosts that share the runs; those that do not hear it see it some seconds later."""
        if self._shared is not None:
            with contextlib.suppress(TavernError):
                await self._shared.announce(RUNS_CHANGED, {"promptId": run_id, "worker": worker})

    def _summary(self, row: tuple[Any, ...]) -> RunSummary | None:
        """Return a run as a list shows it, or None for an unreadable row."""
        try:
            return rows.summary(row)
        except TavernError as damage:
            self._log.warning("%s", damage.message)
            return None

    async def _claimed(self, worker: str, lease: float, **which: Any) -> RunEntry | None:
        """Claim a run; see `Ownership.claim`."""
        worker, length, owners = rows.checked(worker, "the name of a worker"), rows.lease_length(lease), self._owners
        # Mostly there is none: that is seen without keeping others from writing, on the thread that the names are for.
        if await self._writer.read(lambda c: owners.claimable(c, worker, **which), absent=None) is None:
            return None
        if self._shared is None and which.get("run_id") is None and not await self._disk.run(owners.has_key):
            return None
        claimed, elsewhere, more = None, 0, AT_ONCE
        while claimed is None and more == AT_ONCE:
            claimed, more = await self._writer.write(lambda c: owners.claim(c, worker, length, **which))
            elsewhere += more
        if elsewhere:
            self._log.warning(
                "%s: %d not resumed: started elsewhere, or before the project was moved; `tavern runs list` shows them,"
                " and `tavern runs resume ID` resumes one",
                self._folder,
                elsewhere,
            )
        if claimed is not None:
            await self._tell(claimed.id, worker)
        return claimed


class ProjectRuns(SqlRunStore):
    """Keeps the runs of a project: in its `.tavern/runs`, or where hosts share a database, there."""

    def __init__(self, context: PluginContext) -> None:
        self._kept = context.project.private / "runs", context.log, ProjectKey(context.operator_dir)
        super().__init__(*self._kept, shared_database(context.services, "runs", None, RUNS.migrations))
        context.own(EngineState).store = self

    async def adopt(self, *, call: CallContext | None = None) -> AsyncIterator[dict[str, JsonValue]]:
        """Copy the runs that are in the project's files; see `moving.move`."""
        if self._shared is not None:
            files = SqlRunStore(*self._kept)
            try:
                async for moved in moving.move(files, self):
                    yield moved
            finally:
                await files.close()
