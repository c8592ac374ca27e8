"""Whose runs are, within a transaction of the store: names of workers, leases, and seals of what was accepted here."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tavern_engine.api.runs import RunEnd, RunEntry
from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.run_store import rows
from tavern_engine.journal.run_store.statements import begun_elsewhere, end
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.executions import RunStatus
from tavern_host.storage.databases import HostNames, SharedDatabase

if TYPE_CHECKING:
    import sqlite3

AT_ONCE = 50
"""How many unclaimed runs one transaction looks at: others wait for it."""

BACK = 10.0
"""Seconds in which the workers of runs can prolong leases that ended while the shared database did not answer."""

_KEPT = rows.ENTRY_COLUMNS.split(", ").index("entry")

# Leases. A run that has not ended is its `owner`'s, a worker of one host, until `lease_until`, by the clock of the
# database (`microseconds()`): clocks of hosts are not compared. Another worker may claim it when it has no owner, when
# the lease is over, when the owner's host is known to have ended (`names`), or when the owner lets it wait (`waits`).
# Transactions that write exclude each other, in SQLite by `BEGIN IMMEDIATE` and in PostgreSQL by a lock of the schema:
# what `claimable` finds is still so when `claim` changes the owner.
# A lease that is over takes nothing away by itself: what a worker writes of a run names the owner (`statements.write`),
# and so does `renew`; both succeed until somebody else has claimed the run, and from then on neither does. So two hosts
# may execute a run for a moment, but one of them alone can write of it. A host for which the shared database was away
# claims no abandoned run for `BACK` seconds, in which those that are alive prolong what ran out meanwhile.


class Ownership:
    """The owners of the runs of a store. Only runs in files are sealed, with `key`: a `shared` database is its
    operator's."""

    def __init__(
        self, names: HostNames, key: ProjectKey, log: logging.Logger, shared: SharedDatabase | None = None
    ) -> None:
        self.names = names
        self.held: set[str] = set()
        self._key = key
        self._log = log
        self._shared = shared
        self._is_key_logged = False

    def hold(self, worker: str) -> None:
        """Mark a worker as alive. Raises `Conflict`."""
        self.names.hold(worker)
        self.held.add(worker)

    def is_claimed(self, owner: str | None, is_leased: int | None) -> bool:
        """Return whether a worker has a run, by its owner and whether the lease holds."""
        return owner is not None and bool(is_leased) and not self.names.is_gone(owner)

    def claim(
        self,
        connection: sqlite3.Connection,
        worker: str,
        length: int,
        *,
        run_id: str | None = None,
        takes: bool = False,
    ) -> tuple[RunEntry | None, int]:
        """Claim a run of this id, or one that nobody has, or one that waits at another worker. Return it, if there is
        one, and how many ended since they are not from here, at most `AT_ONCE`."""
        elsewhere = 0
        found = f"SELECT {rows.ENTRY_COLUMNS}, seal FROM runs WHERE seq = ?"
        while elsewhere < AT_ONCE and (seq := self.claimable(connection, worker, run_id, takes)) is not None:
            *row, seal = connection.execute(found, (seq,)).fetchone()
            try:
                entry, kept = rows.entry(tuple(row)), row[_KEPT]
                if run_id is not None:  # requested here: from now on it counts as started here
                    seal = self.seal(entry.id, kept)
                elif self._shared is None and not self._key.has_sealed(entry.id, kept, seal):
                    end(connection, seq, entry.id, begun_elsewhere(entry))
                    elsewhere += 1
                    continue
            except TavernError as damage:
                if run_id is not None:
                    raise
                how = RunEnd(status=RunStatus.ERROR, error=damage.info, not_resumable=damage.message)
                end(connection, seq, row[0], how)  # the others must not wait behind it
                continue
            self.hold(worker)
            claimed = (
                "UPDATE runs SET owner = ?, lease_until = microseconds() + ?, waits = 0, seal = ?,"
                f" is_unwanted = is_unwanted * ? WHERE seq = ? RETURNING {rows.ENTRY_COLUMNS}"
            )
            values = (worker, length, seal, run_id is None, seq)
            return rows.entry(connection.execute(claimed, values).fetchone()), elsewhere
        return None, elsewhere

    def claimable(
        self, connection: sqlite3.Connection, worker: str, run_id: str | None = None, takes: bool = False
    ) -> int | None:
        """Return the row of the run that a worker may claim; see `claim`."""
        values: list[Any] = [worker]
        if run_id is not None:
            sought = "SELECT seq, owner, lease_until >= microseconds() FROM runs WHERE id = ?"
            found = connection.execute(sought, (rows.text(run_id),)).fetchone()
            return None if found is None or (found[1] != worker and self.is_claimed(*found[1:])) else int(found[0])
        if takes:
            free = "waits = 1 AND owner <> ?"
        elif self._shared is not None and self._shared.is_back(BACK):
            return None
        else:
            free = "owner IS NULL OR lease_until < microseconds() AND owner <> ?"
            others = (
                "SELECT DISTINCT owner FROM runs WHERE is_final = 0 AND lease_until >= microseconds() AND owner <> ?"
            )
            gone = [owner for (owner,) in connection.execute(others, values) if self.names.is_gone(owner)]
            free, values = free + " OR owner = ?" * len(gone), values + gone
        line = f"SELECT seq FROM runs WHERE is_final = 0 AND ({free}) ORDER BY priority DESC, submitted, seq LIMIT 1"
        found = connection.execute(line, values).fetchone()
        return None if found is None else int(found[0])

    def seal(self, run_id: str, kept: Any) -> bytes | None:
        """Return the seal that shows that a run was written here; None where the operator's folder does not allow for a
        key, or none is needed."""
        is_sealed = self._shared is None and isinstance(kept, bytes) and self.has_key()
        return self._key.seal(run_id, kept) if is_sealed else None

    def has_key(self) -> bool:
        """Return whether it can be known which runs are from here; where it cannot, the log says so once."""
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
