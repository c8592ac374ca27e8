"""The SQL of the task store: statements about single tasks, each part of a transaction of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tavern_host import clock
from tavern_host.contracts.calls import Principal
from tavern_tools.api.tasks import NewTask, TaskRow
from tavern_tools.api.toolcalls import TaskFilter, TaskStatus
from tavern_tools.tasks.rows import LISTED, WHOLE, blob, micros, read_row

if TYPE_CHECKING:
    import sqlite3

AT_ONCE = 100
"""How many tasks one transaction takes up or forgets: others wait for it."""

DUE = f"{WHOLE} WHERE is_open = 1 AND owner = ? AND status = '{TaskStatus.AWAITING_APPROVAL.value}' AND due <= ?"
"""Selects a host's tasks whose time for a decision is over."""

_CALLBACK_DUE = "WHERE is_open = 1 AND owner = ? AND callback_due <= ?"
CALLBACKS_DUE = f"{WHOLE} {_CALLBACK_DUE} LIMIT {AT_ONCE}"
HAS_CALLBACKS_DUE = f"SELECT 1 FROM tasks {_CALLBACK_DUE} LIMIT 1"
"""Whether there is one of `CALLBACKS_DUE`: a host's ended tasks whose callbacks are to be delivered now."""

OWN_PENDING = "SELECT id FROM tasks WHERE is_open = 1 AND owner = ? AND status = ? ORDER BY seq"
"""Selects a host's tasks that wait to begin."""

UNAUDITED = f"{WHOLE} WHERE is_audited = 0 AND writer <> ? LIMIT {AT_ONCE}"
"""Selects tasks of other hosts with a decision that is not in the audit log."""


def insert(connection: sqlite3.Connection, task: NewTask, host: str) -> None:
    """Add a task of a host."""
    entry, approval = blob(task.entry), task.approval
    status = TaskStatus.PENDING if approval is None else TaskStatus.AWAITING_APPROVAL
    values: dict[str, Any] = {
        "id": task.id,
        "tool": task.tool_id,
        "principal": str(task.entry.call.principal),
        "status": status.value,
        "is_final": 0,
        "is_open": 1,
        "owner": host,
        "attempt": 0,
        "idempotent": task.is_idempotent,
        "created": clock.microseconds(),
        "due": None if approval is None else micros(approval.expires_at),
        "changed": _next_change(connection),
        "writer": host,
        "is_audited": 1,
        "size": len(entry),
        "approval": None if approval is None else blob(approval),
        "callback": None if task.callback is None else blob(task.callback),
        "entry": entry,
    }
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO tasks ({', '.join(values)}) VALUES ({marks})", _texts(values))


def change(connection: sqlite3.Connection, row: TaskRow, writer: str, **values: Any) -> TaskRow:
    """Change a task, and return it."""
    values |= {"changed": _next_change(connection), "writer": writer}
    changes = ", ".join(f"{column} = ?" for column in values)
    connection.execute(f"UPDATE tasks SET {changes} WHERE id = ?", [*_texts(values), row.id])
    changed = read_task(connection, row.id)
    assert changed is not None
    return changed


def end_unreadable(connection: sqlite3.Connection, task_id: str) -> None:
    """Let a task end whose row cannot be read."""
    connection.execute(
        "UPDATE tasks SET status = ?, is_final = 1, is_open = 0, owner = NULL, finished = ? WHERE id = ?",
        (TaskStatus.UNKNOWN.value, clock.microseconds(), task_id),
    )


def listing(filter: TaskFilter, only: Principal | None, since: int) -> tuple[str, list[Any]]:
    """Return the statement that lists tasks, newest first, and its values; see `TaskStore.find`."""
    conditions, values = ["(is_final = 0 OR finished >= ?)"], [since]
    asked: list[Any] = values
    if filter.statuses:
        conditions.append(f"status IN ({', '.join('?' * len(filter.statuses))})")
        asked += [status.value for status in filter.statuses]
    if filter.tool is not None:
        conditions.append("glob(?, tool)")
        asked.append(_text(filter.tool).replace("[", "[[]"))
    for principal in (filter.principal, None if only is None else str(only)):
        if principal is not None:
            conditions.append("principal = ?")
            asked.append(_text(principal))
    asked += [filter.limit, min(filter.offset, 2**62)]
    statement = f"{LISTED} WHERE {' AND '.join(conditions)} ORDER BY seq DESC LIMIT ? OFFSET ?"
    return statement, asked


def delete_old(connection: sqlite3.Connection, before: int) -> int:
    """Delete some of the tasks that ended before a moment; return how many."""
    return connection.execute(
        "DELETE FROM tasks WHERE seq IN (SELECT seq FROM tasks WHERE is_open = 0 AND finished < ? LIMIT ?)",
        (before, AT_ONCE),
    ).rowcount


def delete_beyond(connection: sqlite3.Connection, max_bytes: int) -> int:
    """Delete some of the oldest ended tasks while all take more than `max_bytes`; return how many."""
    surplus = connection.execute("SELECT coalesce(sum(size), 0) FROM tasks").fetchone()[0] - max_bytes
    count = 0
    ended = "SELECT seq, size FROM tasks WHERE is_open = 0 ORDER BY finished, seq LIMIT ?"
    for seq, size in connection.execute(ended, (AT_ONCE,)).fetchall() if surplus > 0 else []:
        if surplus <= 0:
            break
        connection.execute("DELETE FROM tasks WHERE seq = ?", (seq,))
        surplus, count = surplus - size, count + 1
    return count


def read_task(connection: sqlite3.Connection, task_id: str) -> TaskRow | None:
    """Return a task."""
    found = connection.execute(f"{WHOLE} WHERE id = ?", (_text(task_id),)).fetchone()
    return None if found is None else read_row(found)


def latest_change(connection: sqlite3.Connection) -> int:
    """Return the number of the latest change."""
    return int(connection.execute("SELECT value FROM counters WHERE name = 'changes'").fetchone()[0])


def _next_change(connection: sqlite3.Connection) -> int:
    """Return the number of a new change."""
    connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'changes'")
    return latest_change(connection)


def _texts(values: dict[str, Any]) -> list[Any]:
    """Return values as SQLite takes them."""
    return [_text(value) if isinstance(value, str) else value for value in values.values()]


def _text(text: str) -> str:
    """Return a text that SQLite takes: without halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode("utf-8")
