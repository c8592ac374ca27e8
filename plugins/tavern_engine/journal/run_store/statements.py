"""What is written of single runs, within a transaction of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tavern_engine.api.run_rows import not_own
from tavern_engine.journal.run_store import rows
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.executions import RunStatus

if TYPE_CHECKING:
    import sqlite3


def owned(connection: sqlite3.Connection, worker: str, run_id: str) -> int:
    """Return the row of a worker's run. Raises `Conflict` where it is another's, has no owner or is gone."""
    found = connection.execute("SELECT owner, seq FROM runs WHERE id = ?", (rows.text(run_id),)).fetchone()
    if found is None or found[0] != worker:
        raise not_own(worker, run_id, found)
    return int(found[1])


def write(connection: sqlite3.Connection, seq: int, stands: dict[str, Any], more: int = 0) -> None:
    """Write how a run stands, and that so many bytes `more` are kept of it. A finished one has no seal: with its status
    reset by someone else, it is not resumed."""
    if stands["is_final"]:
        stands = {**stands, "owner": None, "lease_until": None, "seal": None}
    changes = ", ".join(f"{column} = :{column}" for column in stands)
    connection.execute(
        f"UPDATE runs SET size = size + :more - length(state) + length(:state), {changes} WHERE seq = :seq",
        {**stands, "seq": seq, "more": more},
    )


def give_up(connection: sqlite3.Connection, seq: int, damage: TavernError, now: int) -> None:
    """End a run whose record cannot be read."""
    connection.execute(
        "UPDATE runs SET status = ?, is_final = 1, finished = ?, error = ?, fault = ?, not_resumable = ?,"
        " owner = NULL, lease_until = NULL, seal = NULL WHERE seq = ?",
        (RunStatus.ERROR.value, now, damage.message, damage.message.casefold(), damage.message, seq),
    )
