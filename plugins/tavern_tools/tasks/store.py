"""Keeps tasks in SQLite, or in a database that hosts share: which host may do what to which, each in one transaction.

Knows nothing of how a task is carried out. Several processes may have one store open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from tavern_host import clock
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import TavernError
from tavern_host.storage.databases import Database, HostNames, SharedDatabase
from tavern_host.storage.process_locks import ProcessLocks
from tavern_host.storage.sqlite import DatabaseThread
from tavern_tools.api.tasks import NewTask, Outcome, Seen, TaskRow, TaskStore
from tavern_tools.api.toolcalls import TaskCallback, TaskFilter, TaskStatus, ToolApproval, ToolErrorType, ToolResult
from tavern_tools.tasks.approvals import closed, refusal
from tavern_tools.tasks.rows import WHOLE, blob, failed, read_row, without_secrets
from tavern_tools.tasks.schema import TASKS
from tavern_tools.tasks.statements import (
    AT_ONCE,
    CALLBACKS_DUE,
    DUE,
    HAS_CALLBACKS_DUE,
    OWN_PENDING,
    UNAUDITED,
    change,
    delete_beyond,
    delete_old,
    end_unreadable,
    insert,
    latest_change,
    listing,
    read_task,
)

if TYPE_CHECKING:
    import sqlite3

ATTEMPTS = 3
"""How often a call is begun that a host died in the middle of."""

Step = Callable[["sqlite3.Connection"], list[TaskRow]]

CLOSE_SECONDS = 5.0
"""How long closing waits for operations in flight."""


class SqliteTaskStore(TaskStore):
    """Keeps tasks in a database in a folder. Nothing is made before the first task is kept."""

    def __init__(self, folder: Path, host: str, log: logging.Logger, shared: SharedDatabase | None = None) -> None:
        self.host = host
        self._log = log
        own = DatabaseThread(folder, TASKS, log, "store of tasks", close_seconds=CLOSE_SECONDS)
        self._database: Database = shared or own
        self._hosts: HostNames = ProcessLocks(folder / "hosts") if shared is None else shared.names
        self._seen = -1

    async def close(self) -> None:
        """Finish the writes in flight, leave tasks that have not begun to other hosts, and close the store."""
        await self._database.close(self._hosts.close)

    # --- a task's life ----------------------------------------------------------------------------

    async def add(self, task: NewTask, limit: int) -> TaskRow | None:
        """Keep a new task, this host's; None where `limit` tasks have not ended already."""

        def work(connection: sqlite3.Connection) -> TaskRow | None:
            (open_now,) = connection.execute("SELECT count(*) FROM tasks WHERE is_open = 1 AND is_final = 0").fetchone()
            if open_now >= limit:
                return None
            self._hosts.hold(self.host)
            self._begin_to_see(connection)
            insert(connection, task, self.host)
            return read_task(connection, task.id)

        return await self._database.write(work)

    async def begin(self, task_id: str) -> TaskRow | None:
        """Let a task of this host begin; None where it may not (any more). The call is made after that."""

        def work(connection: sqlite3.Connection) -> TaskRow | None:
            row = read_task(connection, task_id)
            if row is None or row.owner != self.host or row.status is not TaskStatus.PENDING:
                return None
            return change(
                connection,
                row,
                self.host,
                status=TaskStatus.RUNNING,
                attempt=row.attempt + 1,
                started=clock.microseconds(),
                progress=None,
                progress_text=None,
            )

        return await self._database.write(work)

    async def put_back(self, task_id: str) -> TaskRow | None:
        """Undo `begin`: the call was not made."""

        def work(connection: sqlite3.Connection) -> TaskRow | None:
            row = self._own_running(connection, task_id)
            if row is None:
                return None
            return change(connection, row, self.host, status=TaskStatus.PENDING, attempt=row.attempt - 1, started=None)

        return await self._database.write(work)

    async def progress(self, task_id: str, progress: float | None, text: str | None) -> TaskRow | None:
        """Keep how far a running task of this host is."""

        def work(connection: sqlite3.Connection) -> TaskRow | None:
            row = self._own_running(connection, task_id)
            return None if row is None else change(connection, row, self.host, progress=progress, progress_text=text)

        return await self._database.write(work)

    async def end(
        self,
        task_id: str,
        status: TaskStatus,
        result: ToolResult,
        progress: tuple[float | None, str | None] = (None, None),
    ) -> TaskRow | None:
        """Keep how a task of this host ended, begun or not; None where it is this host's no more, or has ended."""

        def work(connection: sqlite3.Connection) -> TaskRow | None:
            row = read_task(connection, task_id)
            if row is None or row.owner != self.host or row.status not in (TaskStatus.PENDING, TaskStatus.RUNNING):
                return None
            return self._end(connection, row, status, result, progress=progress[0], progress_text=progress[1])

        return await self._database.write(work)

    async def cancel(self, task_id: str, principal: Principal) -> TaskRow | None:
        """Cancel a task that has not begun; ask for it of one that runs. Returns how it stands."""

        def work(connection: sqlite3.Connection) -> TaskRow | None:
            row = read_task(connection, task_id)
            if row is None or row.is_final:
                return row
            if row.status is TaskStatus.RUNNING:
                if row.cancelled_by is not None:
                    return row
                return change(connection, row, self.host, cancelled_by=str(principal))
            result = failed(row.id, row.entry.request, ToolErrorType.CANCELLED, f"it was cancelled by {principal}")
            return self._end(connection, row, TaskStatus.CANCELLED, result, cancelled_by=str(principal))

        return await self._database.write(work)

    async def decide(
        self, task_id: str, approval: ToolApproval, arguments: dict[str, JsonValue] | None
    ) -> tuple[TaskRow | None, Outcome]:
        """Keep a decision about a task that waits for one; return how the task stands, and what came of it.

        Where its time was over, the default decides instead.
        """

        def work(connection: sqlite3.Connection) -> tuple[TaskRow | None, Outcome]:
            row = read_task(connection, task_id)
            if row is None or row.status is not TaskStatus.AWAITING_APPROVAL or row.approval is None:
                return row, "late"
            self._hosts.hold(self.host)
            if row.due is not None and row.due <= clock.microseconds():
                return self._decided(connection, row, closed(row.approval)), "expired"
            return self._decided(connection, row, approval, arguments), "decided"

        return await self._database.write(work)

    async def audited(self, task_id: str) -> None:
        """Keep that a decision is in the audit log."""
        await self._database.write(lambda c: c.execute("UPDATE tasks SET is_audited = 1 WHERE id = ?", (task_id,)))

    async def told(self, task_id: str, callback: TaskCallback, due: int | None) -> TaskRow | None:
        """Store the outcome of a delivery, and when it is retried."""

        def work(connection: sqlite3.Connection) -> TaskRow | None:
            row = read_task(connection, task_id)
            if row is None or row.owner != self.host or row.callback_due is None:
                return None
            values: dict[str, Any] = {"callback": blob(callback), "callback_due": due}
            if due is None:
                values |= {"is_open": 0, "owner": None, "entry": blob(row.entry.model_copy(update={"callback": None}))}
            return change(connection, row, self.host, **values)

        return await self._database.write(work)

    # --- looking ----------------------------------------------------------------------------------

    async def get(self, task_id: str) -> TaskRow | None:
        """Return a task."""
        return await self._database.read(lambda connection: read_task(connection, task_id), absent=None)

    async def find(self, filter: TaskFilter, only: Principal | None, since: int) -> list[TaskRow]:
        """Return tasks, newest first, without large results: those of the principal `only`, where given, and not those
        that ended before `since`."""
        statement, asked = listing(filter, only, since)
        return await self._database.read(lambda connection: self._read(connection, statement, asked), absent=[])

    async def look(self, *, takes_up: bool) -> Seen:
        """Return the changes of others since the last time; let the time of decisions be over; with `takes_up` take up
        what no living host has."""
        none: list[Step] = []
        steps = await self._database.read(lambda connection: self._steps(connection, takes_up), absent=none)

        def work(connection: sqlite3.Connection) -> list[tuple[list[TaskRow], bool]]:
            return [(step(connection), step != self._take_up) for step in steps]

        done = await self._database.write(work) if steps else []
        rows = [row for found, _ in done for row in found]
        unaudited = [row for found, is_decided in done if is_decided for row in found]
        seen = await self._database.read(self._changed, absent=Seen([], []))
        rows = [*{row.id: row for row in (*rows, *unaudited, *seen.rows)}.values()]
        return replace(seen, rows=rows, unaudited=unaudited)

    async def callbacks(self) -> list[TaskRow]:
        """Return this host's ended tasks whose callbacks are due."""
        values = [self.host, clock.microseconds()]
        return await self._database.read(lambda c: self._read(c, CALLBACKS_DUE, values), absent=[])

    async def release(self) -> None:
        """Leave what this host has, apart from what runs, to other hosts."""

        def work(connection: sqlite3.Connection) -> None:
            rows = self._read(
                connection,
                f"{WHOLE} WHERE is_open = 1 AND owner = ? AND status <> ?",
                [self.host, TaskStatus.RUNNING.value],
            )
            for row in rows:
                change(connection, row, self.host, owner=None)

        if await self._database.read(self._has_open, absent=False):
            await self._database.write(work)

    async def prune(self, before: int, max_bytes: int) -> int:
        """Forget tasks that ended before a moment, and the oldest as long as all take too much; return how many."""

        if not await self._database.read(lambda _: True, absent=False):
            return 0
        forgotten = 0
        steps = (lambda c: delete_old(c, before)), (lambda c: delete_beyond(c, max_bytes))
        for step in steps:
            while count := await self._database.write(step):
                forgotten += count
        return forgotten

    # --- on the thread ----------------------------------------------------------------------------

    def _steps(self, connection: sqlite3.Connection, takes_up: bool) -> list[Step]:
        """Return the steps that have to be written now."""
        self._begin_to_see(connection)
        steps: list[Step] = []
        if takes_up and self._orphans(connection):
            steps.append(self._take_up)
        if connection.execute(DUE, (self.host, clock.microseconds())).fetchone():
            steps.append(self._expire)
        if takes_up and connection.execute(UNAUDITED, (self.host,)).fetchone():
            steps.append(self._take_decisions)
        return steps

    def _changed(self, connection: sqlite3.Connection) -> Seen:
        """Return the changes of others since the last time."""
        changed = f"{WHOLE} WHERE changed > ? AND writer <> ? ORDER BY changed"
        rows = self._read(connection, changed, [self._seen, self.host])
        self._seen = latest_change(connection)
        tells = connection.execute(HAS_CALLBACKS_DUE, (self.host, clock.microseconds())).fetchone() is not None
        pending = connection.execute(OWN_PENDING, (self.host, TaskStatus.PENDING.value)).fetchall()
        return Seen(rows, [], tells, [id for (id,) in pending])

    def _begin_to_see(self, connection: sqlite3.Connection) -> None:
        """Take no notice of what was changed before this host had a task."""
        if self._seen < 0:
            self._seen = latest_change(connection)

    def _orphans(self, connection: sqlite3.Connection) -> list[str | None]:
        """Return the owners of open tasks that have ended."""
        owners = connection.execute("SELECT DISTINCT owner FROM tasks WHERE is_open = 1").fetchall()
        return [o for (o,) in owners if o is None or (o != self.host and self._hosts.is_gone(str(o)))]

    def _take_up(self, connection: sqlite3.Connection) -> list[TaskRow]:
        """Make tasks without an owner this host's; what became of calls that had begun is not known."""
        self._hosts.hold(self.host)
        taken: list[TaskRow] = []
        for owner in self._orphans(connection):
            whose = "owner IS NULL" if owner is None else "owner = ?"
            found = connection.execute(
                f"{WHOLE} WHERE is_open = 1 AND {whose} ORDER BY seq LIMIT ?", [*filter(None, [owner]), AT_ONCE]
            )
            for columns in found.fetchall():
                try:
                    row = read_row(columns)
                except TavernError as damage:
                    self._log.error("%s", damage.message)
                    end_unreadable(connection, str(columns[0]))
                    continue
                taken.append(self._taken_up(connection, row))
        return taken

    def _taken_up(self, connection: sqlite3.Connection, row: TaskRow) -> TaskRow:
        if row.status is not TaskStatus.RUNNING:
            return change(connection, row, self.host, owner=self.host)
        if row.is_idempotent and row.cancelled_by is None and row.attempt < ATTEMPTS:
            return change(connection, row, self.host, owner=self.host, status=TaskStatus.PENDING, started=None)
        times = f" {row.attempt} times" if row.attempt > 1 else ""
        message = f"the host ended{times} while it ran: it may have done what it does, or not"
        result = failed(row.id, row.entry.request, ToolErrorType.UNKNOWN_OUTCOME, message)
        return self._end(connection, row, TaskStatus.UNKNOWN, result)

    def _expire(self, connection: sqlite3.Connection) -> list[TaskRow]:
        rows = self._read(connection, DUE, [self.host, clock.microseconds()])
        return [self._decided(connection, row, closed(row.approval)) for row in rows if row.approval is not None]

    def _take_decisions(self, connection: sqlite3.Connection) -> list[TaskRow]:
        """Make decisions this host's to record that one made which ended before it did."""
        rows = self._read(connection, UNAUDITED, [self.host])
        return [change(connection, row, self.host) for row in rows if self._hosts.is_gone(row.writer)]

    def _decided(
        self,
        connection: sqlite3.Connection,
        row: TaskRow,
        approval: ToolApproval,
        arguments: dict[str, Any] | None = None,
    ) -> TaskRow:
        """Keep what was decided."""
        values: dict[str, Any] = {"approval": blob(approval), "due": None, "is_audited": 0}
        if approval.decision != "approved":
            return self._end(
                connection, row, TaskStatus.REFUSED, refusal(row.id, row.entry.request, approval), **values
            )
        if arguments is not None:
            request = row.entry.request.model_copy(update={"arguments": arguments})
            values["entry"] = blob(row.entry.model_copy(update={"request": request}))
        return change(connection, row, self.host, status=TaskStatus.PENDING, **values)

    def _end(
        self, connection: sqlite3.Connection, row: TaskRow, status: TaskStatus, result: ToolResult, **more: Any
    ) -> TaskRow:
        """Let a task end. Its owner delivers its callback, or the host that takes it over."""
        entry, kept = blob(without_secrets(row.entry)), blob(result)
        tells = row.callback is not None
        teller = self.host if row.status is TaskStatus.RUNNING else row.owner
        values: dict[str, Any] = {
            **more,
            "status": status,
            "is_final": 1,
            "is_open": tells,
            "owner": teller if tells else None,
            "callback_due": clock.microseconds() if tells else None,
            "finished": clock.microseconds(),
            "due": None,
            "entry": entry,
            "result": kept,
            "size": len(entry) + len(kept),
        }
        return change(connection, row, self.host, **values)

    def _own_running(self, connection: sqlite3.Connection, task_id: str) -> TaskRow | None:
        row = read_task(connection, task_id)
        return row if row is not None and row.owner == self.host and row.status is TaskStatus.RUNNING else None

    def _has_open(self, connection: sqlite3.Connection) -> bool:
        found = connection.execute("SELECT 1 FROM tasks WHERE is_open = 1 AND owner = ? LIMIT 1", (self.host,))
        return found.fetchone() is not None

    def _read(self, connection: sqlite3.Connection, statement: str, values: list[Any]) -> list[TaskRow]:
        """Return rows; those that cannot be read are left out, which the log says."""
        rows: list[TaskRow] = []
        for columns in connection.execute(statement, values).fetchall():
            try:
                rows.append(read_row(columns))
            except TavernError as damage:
                self._log.warning("%s", damage.message)
        return rows
