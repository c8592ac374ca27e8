"""The service `runStore` over SQLite: claims, writes and reads of runs.

Every method is one transaction; several processes may have one store open. A store may come from anybody: only runs
that were accepted here, or whose resumption was requested here, are resumed automatically.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tavern_engine.api.executions import RunFilter, RunSummary
from tavern_engine.api.run_rows import ENTRY_COLUMNS, checked_limits, unknown
from tavern_engine.api.runs import RunEnd, RunEntry, RunStore
from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.run_store import rows
from tavern_engine.journal.run_store.contents import SMALL, add_batch, body_of, check_contents, keep_body, know
from tavern_engine.journal.run_store.pruning import Pruning
from tavern_engine.journal.run_store.rows import ROWS
from tavern_engine.journal.run_store.schema import RUNS
from tavern_engine.journal.run_store.statements import give_up, owned, write
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, NotFound, TavernError
from tavern_host.storage.content_files import ContentFiles, NewContent, hash_of
from tavern_host.storage.process_locks import ProcessLocks
from tavern_host.storage.sqlite import DatabaseThread

if TYPE_CHECKING:
    import sqlite3

AT_ONCE = 50
"""How many unclaimed runs one transaction looks at: others wait for it."""


class SqliteRunStore(RunStore):
    """Keeps runs in a folder, sealed with the key of whose runs they are. Nothing is opened before it is used."""

    def __init__(self, folder: Path, log: logging.Logger, key: ProjectKey) -> None:
        self._folder = folder
        self._log = log
        self._key = key
        self._is_key_logged = False
        self._writer = DatabaseThread(folder, RUNS, log, "run store: writing")
        self._reader = DatabaseThread(folder, RUNS, log, "run store: reading")
        self._files = ContentFiles(folder / "values")
        self._workers = ProcessLocks(folder / "workers")

    async def close(self) -> None:
        """Finish pending work, and release the workers' locks and the files."""
        await self._writer.close()
        await self._reader.close()
        self._workers.close()

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
        used = {entry.workflow, *entry.groups.values()}
        for document in documents:
            if len(document) > SMALL:
                await self.put(document)

        def work(connection: sqlite3.Connection) -> None:
            values = ROWS.accepted(entry) | ROWS.standing(entry, run_id)
            until, kept = rows.lease_end(clock.microseconds(), lease), values["entry"]
            if connection.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone():
                raise Conflict(f"there is a run {run_id!r} already")
            for document in documents:
                if len(document) <= SMALL:
                    keep_body(connection, document)
            check_contents(connection, used, f"the run {run_id}")
            self._workers.hold(worker)
            values["size"] = len(kept) + len(values["state"])
            if not values["is_final"]:
                values |= {"owner": worker, "lease_until": until, "seal": self._seal(run_id, kept)}
            inserted = f"INSERT INTO runs ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"
            added = connection.execute(inserted, [*values.values()])
            connection.executemany("INSERT INTO uses (run, hash) VALUES (?, ?)", [(added.lastrowid, d) for d in used])

        await self._writer.write(work)

    async def claim(
        self, worker: str, lease: float, *, run_id: str | None = None, call: CallContext | None = None
    ) -> RunEntry | None:
        """Claim a run without an owner, or `run_id`; None where there is none such, or another worker has it."""
        worker = ROWS.checked(worker, "the name of a worker")
        if not await self._reader.read(lambda connection: run_id is not None or _has_open(connection), absent=False):
            return None

        def work(connection: sqlite3.Connection) -> tuple[Any, int]:
            return self._claim(connection, worker, lease, run_id)

        if run_id is None and not await self._reader.run(self._has_key):
            return None
        claimed, elsewhere, more = None, 0, AT_ONCE
        while claimed is None and more == AT_ONCE:
            claimed, more = await self._writer.write(work)
            elsewhere += more
        if elsewhere:
            self._log.warning(
                "%s: %d not resumed: started elsewhere, or before the project was moved; `tavern runs list` shows them,"
                " and `tavern runs resume ID` resumes one",
                self._folder,
                elsewhere,
            )
        return None if claimed is None else ROWS.entry(claimed)

    async def offer(self, worker: str, run_id: str, *, waits: bool, call: CallContext | None = None) -> bool:
        """Return False: one host serves the project that the files are in."""
        return False

    async def take(self, worker: str, lease: float, *, call: CallContext | None = None) -> RunEntry | None:
        """Return None, as `offer` says."""
        return None

    async def renew(
        self, worker: str, run_ids: list[str], lease: float, *, call: CallContext | None = None
    ) -> list[str]:
        """Prolong the claims of a worker; return those of the runs that are still its own."""
        wanted = [run_id for run_id in run_ids if rows.text(run_id) == run_id]

        def work(connection: sqlite3.Connection) -> list[str]:
            until = rows.lease_end(clock.microseconds(), lease)
            renewed = "UPDATE runs SET lease_until = ? WHERE id = ? AND owner = ?"
            return [r for r in wanted if connection.execute(renewed, (until, r, rows.text(worker))).rowcount]

        return await self._writer.write(work)

    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Keep that a run is to end; False for one that is finished. Raises `NotFound`."""
        asked = "UPDATE runs SET is_unwanted = 1 WHERE id = ? AND is_final = 0"
        await self.get(run_id)
        return await self._writer.write(lambda c: c.execute(asked, (rows.text(run_id),)).rowcount > 0)

    async def unwanted(self, worker: str) -> list[str]:
        """Return the runs of a worker that are to end."""
        asked = "SELECT id FROM runs WHERE is_final = 0 AND is_unwanted = 1 AND owner = ?"
        return await self._reader.read(lambda c: [id for (id,) in c.execute(asked, (rows.text(worker),))], absent=[])

    async def append(
        self, worker: str, run_id: str, batch: bytes, *, contents: tuple[str, ...] = (), call: CallContext | None = None
    ) -> None:
        """Add a batch of node results. Raises `Conflict` where the run is another's, `NotFound` for a value."""

        def work(connection: sqlite3.Connection) -> None:
            seq = owned(connection, worker, run_id)
            add_batch(connection, seq, batch, contents, run_id)
            connection.execute("UPDATE runs SET size = size + ? WHERE seq = ?", (len(batch), seq))

        await self._writer.write(work)

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
            stands = ROWS.standing(end, run_id)
            seq = owned(connection, worker, run_id)
            if batch:
                add_batch(connection, seq, batch, contents, run_id)
            write(connection, seq, stands, more=len(batch))

        await self._writer.write(work)

    async def get(self, run_id: str) -> RunEntry:
        """Return a run. Raises `NotFound`."""
        wanted = f"SELECT {ENTRY_COLUMNS} FROM runs WHERE id = ?"

        def work(connection: sqlite3.Connection) -> RunEntry | None:
            found = connection.execute(wanted, (rows.text(run_id),)).fetchone()
            return None if found is None else ROWS.entry(found)

        entry = await self._reader.read(work, absent=None)
        if entry is None:
            raise unknown(run_id)
        return entry

    async def batches(self, run_id: str) -> list[bytes]:
        """Return the batches of a run, oldest first. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> list[bytes] | None:
            found = connection.execute("SELECT seq FROM runs WHERE id = ?", (rows.text(run_id),)).fetchone()
            if found is None:
                return None
            listed = connection.execute("SELECT content FROM batches WHERE run = ? ORDER BY seq", found)
            return [content for (content,) in listed if isinstance(content, bytes)]

        batches = await self._reader.read(work, absent=None)
        if batches is None:
            raise unknown(run_id)
        return batches

    async def contents(self, run_id: str) -> list[str]:
        """Return the hashes of what a run needs of what is kept apart. Raises `NotFound`."""
        wanted = "SELECT hash FROM runs JOIN uses ON uses.run = runs.seq WHERE id = ? ORDER BY hash"

        def work(connection: sqlite3.Connection) -> list[str]:
            return [name for (name,) in connection.execute(wanted, (rows.text(run_id),))]

        found: list[str] = await self._reader.read(work, absent=[])
        if not found:  # a run needs its document
            raise unknown(run_id)
        return found

    async def list_runs(self, filter: RunFilter) -> list[RunSummary]:
        """Return runs, newest first."""
        statement, values = ROWS.query(filter)

        def work(connection: sqlite3.Connection) -> list[RunSummary]:
            return [s for row in connection.execute(statement, values) if (s := self._summary(row)) is not None]

        return await self._reader.read(work, absent=[])

    # --- contents ---------------------------------------------------------------------------------

    async def put(self, content: bytes, *, call: CallContext | None = None) -> str:
        """Store a large value or a document by itself; return its hash."""
        if len(content) <= SMALL:
            return await self._writer.write(lambda connection: keep_body(connection, content))

        def prepare() -> tuple[str, NewContent | None]:
            name = hash_of(content)
            return name, None if self._files.read(name) == content else self._files.write(content)

        name, temporary = await self._reader.run(prepare)

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
        """Return what was put. Raises `NotFound`."""
        found = await self._reader.read(lambda connection: body_of(connection, hash), absent=None)
        if found is None:
            found = await self._reader.run(lambda: self._files.read(hash))
        if found is None:
            raise NotFound(f"the value {hash!r:.80} is not kept, or its file is damaged")
        return found

    # --- deletion ---------------------------------------------------------------------------------

    async def delete(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Delete a finished run; False where there is none. Raises `Conflict` for one that is not finished."""

        def work(connection: sqlite3.Connection) -> bool:
            wanted = "SELECT seq, is_final, owner, lease_until FROM runs WHERE id = ?"
            found = connection.execute(wanted, (rows.text(run_id),)).fetchone()
            if found is None:
                return False
            seq, is_final, owner, until = found
            if not is_final:
                raise Conflict(f"the run {run_id!r} is not finished: interrupt it first")
            if self._is_claimed(owner, until, clock.microseconds()):
                raise Conflict(f"the run {run_id!r} is being resumed: interrupt it first")
            connection.execute("DELETE FROM runs WHERE seq = ?", (seq,))
            return True

        return await self._writer.write(work) if await self._exists() else False

    async def prune(self, *, max_age: float, max_bytes: int, call: CallContext | None = None) -> int:
        """Delete finished runs by age and size, and contents that no run needs; return how many runs."""
        seconds = checked_limits(max_age, max_bytes)
        if not await self._exists():
            return 0
        pruning = Pruning(self._writer, self._reader, self._files, self._is_claimed)
        return await pruning.run(clock.microseconds() - int(seconds * 1_000_000), max_bytes)

    # --- helpers ----------------------------------------------------------------------------------

    async def _exists(self) -> bool:
        """Return whether there is a database."""
        return await self._reader.read(lambda _: True, absent=False)

    def _summary(self, row: tuple[Any, ...]) -> RunSummary | None:
        """Return what a list shows of a run, or None for an unreadable row."""
        try:
            return ROWS.summary(row)
        except TavernError as damage:
            self._log.warning("%s", damage.message)
            return None

    def _claim(
        self, connection: sqlite3.Connection, worker: str, lease: float, run_id: str | None
    ) -> tuple[tuple[Any, ...] | None, int]:
        """Claim a run, if there is one. Return its row, and how many ended since they are not from here, at most
        `AT_ONCE`."""
        columns = ENTRY_COLUMNS
        now, elsewhere = clock.microseconds(), 0
        until = rows.lease_end(now, lease)
        while elsewhere < AT_ONCE and (seq := self._claimable(connection, worker, run_id, now)) is not None:
            row = connection.execute(f"SELECT {columns}, entry, seal FROM runs WHERE seq = ?", (seq,)).fetchone()
            *found, kept, seal = row
            try:
                entry = ROWS.entry(tuple(found))
                if run_id is not None:  # requested here: from now on it counts as started here
                    seal = self._seal(entry.id, kept)
                elif not self._key.has_sealed(entry.id, kept, seal):
                    write(connection, seq, ROWS.standing(rows.begun_elsewhere(entry), entry.id))
                    elsewhere += 1
                    continue
            except TavernError as damage:
                if run_id is not None:
                    raise
                give_up(connection, seq, damage, now)  # the others must not wait behind it
                continue
            self._workers.hold(worker)
            changed = (
                "UPDATE runs SET owner = ?, lease_until = ?, seal = ?, is_unwanted = is_unwanted AND ? WHERE seq = ?"
            )
            connection.execute(changed, (worker, until, seal, run_id is None, seq))
            return connection.execute(f"SELECT {columns} FROM runs WHERE seq = ?", (seq,)).fetchone(), elsewhere
        return None, elsewhere

    def _claimable(self, connection: sqlite3.Connection, worker: str, run_id: str | None, now: int) -> int | None:
        """Return the row of the run that a worker may claim."""
        if run_id is not None:
            sought = "SELECT seq, owner, lease_until FROM runs WHERE id = ?"
            found = connection.execute(sought, (rows.text(run_id),)).fetchone()
            if found is None or (found[1] != worker and self._is_claimed(found[1], found[2], now)):
                return None
            return int(found[0])
        others = "SELECT DISTINCT owner FROM runs WHERE is_final = 0 AND lease_until >= ? AND owner <> ?"
        gone = [owner for (owner,) in connection.execute(others, (now, worker)) if self._workers.is_gone(owner)]
        free = " OR ".join(["owner IS NULL", "lease_until < ? AND owner <> ?", *["owner = ?"] * len(gone)])
        line = f"SELECT seq FROM runs WHERE is_final = 0 AND ({free}) ORDER BY priority DESC, submitted, seq LIMIT 1"
        found = connection.execute(line, (now, worker, *gone)).fetchone()
        return None if found is None else int(found[0])

    def _seal(self, run_id: str, kept: Any) -> bytes | None:
        """Return what shows that a run is from here; None where the operator's folder does not allow for a key."""
        return self._key.seal(run_id, kept) if isinstance(kept, bytes) and self._has_key() else None

    def _has_key(self) -> bool:
        """Return whether there is a key; where there can be none, the log says so once."""
        try:
            self._key.prepare()
        except OSError as error:
            if not self._is_key_logged:
                self._log.error(
                    "%s: %s; so it is unknown which runs were started here, and none that was interrupted is resumed",
                    error.filename,
                    error.strerror,
                )
            self._is_key_logged = True
            return False
        self._is_key_logged = False
        return True

    def _is_claimed(self, owner: str | None, until: int | None, now: int) -> bool:
        return owner is not None and until is not None and until >= now and not self._workers.is_gone(owner)


class SqliteRuns(SqliteRunStore):
    """Keeps the runs of a project in its `.tavern/runs`."""

    def __init__(self, context: PluginContext) -> None:
        super().__init__(context.project.private / "runs", context.log, ProjectKey(context.operator_dir))


def _has_open(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM runs WHERE is_final = 0 LIMIT 1").fetchone() is not None
