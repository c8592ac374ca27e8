"""What is written within a transaction of the store: how runs stand, and what is kept of them apart from their rows.

Of the latter, contents by hash, the table `contents` says that they are there, `uses` which runs need them, and
`bodies` has those that are in no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tavern_engine.api.runs import RunEnd, RunEntry
from tavern_engine.journal.run_store import rows
from tavern_host.contracts.errors import Interrupted, NotFound
from tavern_host.contracts.executions import RunStatus
from tavern_host.storage.content_files import hash_of

if TYPE_CHECKING:
    import sqlite3

_NOBODYS = {"owner": None, "lease_until": None, "seal": None}
"""Columns of a run that has ended. It has no seal: with its status reset by someone else, it is not resumed."""


def change(
    connection: sqlite3.Connection, which: str, values: list[Any], stands: dict[str, Any], more: int = 0
) -> int | None:
    """Write how a run stands, and that so many bytes `more` are kept of it; return its row, or None where none is such
    a run."""
    columns = {**stands, **_NOBODYS} if stands.get("is_final") else stands
    size, sizes = "size + ?", [more]
    if stands:
        size, sizes = f"{size} - length(state) + ?", [more, len(stands["state"])]
    sets = "".join(f", {column} = ?" for column in columns)
    changed = f"UPDATE runs SET size = {size}{sets} WHERE {which} RETURNING seq"
    found = connection.execute(changed, [*sizes, *columns.values(), *values]).fetchone()
    return None if found is None else int(found[0])


def write(
    connection: sqlite3.Connection,
    worker: str,
    run_id: str,
    stands: dict[str, Any],
    batch: bytes | None,
    contents: Iterable[str],
) -> None:
    """Write how a worker's run stands, and a batch of it with the contents that it refers to. Raises `Conflict` where
    the run is another's, has no owner or is gone, `NotFound` for a content that is not kept."""
    own = [rows.text(run_id), rows.text(worker)]
    seq = change(connection, "id = ? AND owner = ?", own, stands, len(batch or b""))
    if seq is None:
        raise rows.not_own(
            worker, run_id, connection.execute("SELECT owner FROM runs WHERE id = ?", own[:1]).fetchone()
        )
    if batch is not None:
        use(connection, seq, contents, f"a batch of the run {run_id}")
        connection.execute("INSERT INTO batches (run, content) VALUES (?, ?)", (seq, batch))


def end(connection: sqlite3.Connection, seq: int, run_id: str, how: RunEnd) -> None:
    """End a run that nobody has claimed."""
    change(connection, "seq = ?", [seq], rows.standing(how, run_id))


def begun_elsewhere(entry: RunEntry) -> RunEnd:
    """Return the end of a run that is not resumed here."""
    advice = f"`tavern runs resume {entry.id}` resumes it"
    if entry.not_resumable is not None:
        advice = f"it cannot be resumed: {entry.not_resumable}"
    message = f"it was started elsewhere, or before the project was moved, and was not resumed here; {advice}"
    return entry.end(RunStatus.INTERRUPTED, Interrupted(message).info)


def use(connection: sqlite3.Connection, seq: int, names: Iterable[str], who: str) -> None:
    """Write down that a run needs contents. Raises `NotFound` where one is not kept."""
    wanted = sorted({*names})
    among = f"hash IN ({', '.join('?' * len(wanted))})"
    used = f"INSERT INTO uses (run, hash) SELECT ?, hash FROM contents WHERE {among} ON CONFLICT DO NOTHING"
    if not wanted or connection.execute(used, (seq, *wanted)).rowcount == len(wanted):
        return
    kept = {name for (name,) in connection.execute(f"SELECT hash FROM contents WHERE {among}", wanted)}
    for missing in [name for name in wanted if name not in kept]:
        raise NotFound(f"{who} refers to {missing!r:.80}, which is not kept; put it first")


def keep_body(connection: sqlite3.Connection, content: bytes) -> str:
    """Store a content in the database; return its hash."""
    name = hash_of(content)
    know(connection, name, len(content))
    kept = "INSERT INTO bodies (hash, body) VALUES (?, ?) ON CONFLICT (hash) DO UPDATE SET body = excluded.body"
    connection.execute(kept, (name, content))
    return name


def know(connection: sqlite3.Connection, name: str, size: int) -> None:
    """Write down that a content is there, and was put now."""
    connection.execute(
        "INSERT INTO contents (hash, size, kept) VALUES (?, ?, microseconds())"
        " ON CONFLICT (hash) DO UPDATE SET size = excluded.size, kept = excluded.kept",
        (name, size),
    )


def body_of(connection: sqlite3.Connection, name: str) -> bytes | None:
    """Return a content that is in the database, or None where it is not there or not what it was."""
    row = connection.execute("SELECT body FROM bodies WHERE hash = ?", (rows.text(name),)).fetchone()
    return row[0] if row is not None and isinstance(row[0], bytes) and hash_of(row[0]) == name else None
