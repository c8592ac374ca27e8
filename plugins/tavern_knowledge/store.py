"""Keeps the bases of a project: the files are what counts, the index follows them. Decides nothing about who may.

What a method wrote is in the file when it returns. Methods raise `TavernError`.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tavern_host import clock
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_host.contracts.names import did_you_mean
from tavern_host.storage.content_files import hash_of
from tavern_host.storage.sqlite import DatabaseThread
from tavern_knowledge import index
from tavern_knowledge.api.knowledge import BaseAccess, BaseHeader, KnowledgeEntry
from tavern_knowledge.files import MAX_ENTRIES, MAX_ENTRY, BaseFolder, check_id, parse
from tavern_knowledge.index import INDEX, Entries, Frequencies, Row

T = TypeVar("T")


@dataclass(frozen=True)
class StoredBase:
    """A base as it is stored; with a `problem` it has no entries that can be used."""

    header: BaseHeader
    id: str
    entries: int = 0
    problem: str | None = None


Tell = Callable[[str, list[str], bool], None]
"""Called with the id of a base, the ids of its entries that changed, and whether the base was removed."""


class Store(Entries):
    """One project's bases, as one host sees them. `tell` is called on the store's thread."""

    def __init__(self, files: BaseFolder, private: Path, log: logging.Logger, tell: Tell) -> None:
        self._files = files
        self._thread = DatabaseThread(private, INDEX, log, "store of knowledge")
        self._tell = tell
        self.frequencies = Frequencies()
        self._headers: dict[str, tuple[str, BaseHeader]] = {}

    async def close(self) -> None:
        """Finish the writes in flight, and close the store."""
        await self._thread.close()

    async def run(self, work: Callable[[], T]) -> T:
        """Return `work()`, called on the store's thread."""
        return await self._thread.run(work)

    # --- reading ----------------------------------------------------------------------------------

    async def read(self, work: Callable[[sqlite3.Connection], T], absent: T) -> T:
        """Return `work(connection)` once the index has what the files hold, `absent` where there are none."""

        def attempt(connection: sqlite3.Connection) -> tuple[bool, T]:
            follows = self._stamps(connection) == self._files.stamps()
            return follows, work(connection) if follows else absent

        await self._files.look()
        found = await self._thread.read(attempt, None)
        if found is None:
            found = not await self._thread.run(self._files.stamps), absent
        if found[0]:
            return found[1]
        await self._thread.write(self._follow)
        return await self._thread.read(work, absent)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`, done in one transaction."""
        return await self._thread.write(work)

    async def bases(self) -> list[StoredBase]:
        """Return all bases, by id, those with problems too."""
        return await self.read(_bases, [])

    def known(self, connection: sqlite3.Connection) -> list[tuple[str, BaseHeader]]:
        """Return the bases that can be used; their headers are read when they have changed."""
        found = {}
        for id, hash in connection.execute("SELECT id, hash FROM bases WHERE problem IS NULL ORDER BY id"):
            known = self._headers.get(id)
            if known is None or known[0] != hash:
                (header,) = connection.execute("SELECT header FROM bases WHERE id = ?", (id,)).fetchone()
                known = hash, BaseHeader.model_validate_json(header)
            found[id] = known
        self._headers = found
        return [(id, header) for id, (_, header) in found.items()]

    async def base(self, base: str) -> StoredBase:
        """Return a base that can be used. Raises `NotFound`, `InvalidInput` for one whose file is wrong."""
        return await self.read(lambda connection: _base(connection, base), None) or _unknown(base, [])

    # --- writing ----------------------------------------------------------------------------------

    async def put(self, base: str, entries: Sequence[KnowledgeEntry], revision: str | None) -> list[Row]:
        """Write entries of a base; see the interface."""
        now = _now()
        rows = [_stamped(entry, now) for entry in entries]
        if len({row.id for row in rows}) < len(rows):
            raise InvalidInput("two of the entries have the same id")

        def work(connection: sqlite3.Connection) -> list[Row]:
            header = _base(connection, base).header
            if revision is not None:
                _require(connection, base, rows[0].id, revision)
            index.put_rows(connection, base, rows)
            if index.count_of(connection, base) > MAX_ENTRIES:
                raise InvalidInput(f"the base {base!r} would have more than {MAX_ENTRIES:,} entries")
            self._save(connection, base, _dumped(header))
            return rows

        written = await self._change(work)
        self._tell(base, [row.id for row in rows], False)
        return written

    async def delete(self, base: str, ids: Sequence[str]) -> int:
        """Remove entries; return how many there were."""

        def work(connection: sqlite3.Connection) -> list[str]:
            header = _base(connection, base).header
            found = [id for id in dict.fromkeys(ids) if index.row_of(connection, base, id) is not None]
            if found:
                index.remove_rows(connection, base, found)
                self._save(connection, base, _dumped(header))
            return found

        found = await self._change(work)
        if found:
            self._tell(base, found, False)
        return len(found)

    async def save(
        self,
        base: str,
        header: BaseHeader,
        rows: Sequence[Row] | None = None,
        *,
        new: bool = False,
        picture: bytes | None = None,
    ) -> StoredBase:
        """Make a base, which may not be there if it must be `new`, or change its header; with `rows` they become its
        entries, and the picture the one beside it. Raises `InvalidInput`, `Conflict`."""
        check_id(base)
        read_model(BaseAccess, header.kb_extensions.get("access") or {}, "kb_extensions.access")

        def work(connection: sqlite3.Connection) -> StoredBase:
            if new and base in self._files.stamps():
                raise Conflict(f"there is a base {base!r} already; say that it is to be replaced, or give another id")
            if connection.execute("SELECT 1 FROM bases WHERE id = ? AND problem IS NULL", (base,)).fetchone() is None:
                if base in self._files.stamps():
                    _base(connection, base)  # its file is wrong: it says why, and is not replaced
                index.base_number(connection, base)
            if rows is not None:
                index.replace_all(connection, base, rows)
                if picture is not None:
                    self._files.write_picture(base, picture)
            self._save(connection, base, _dumped(header))
            return _base(connection, base)

        saved = await self._change(work)
        self._tell(base, [] if rows is None else [row.id for row in rows], False)
        return saved

    async def picture(self, base: str) -> bytes | None:
        """Return the picture beside a base, or None."""
        return await self._thread.run(lambda: self._files.picture(base))

    async def delete_base(self, base: str) -> bool:
        """Remove a base with its file, whatever is in that."""

        def work(connection: sqlite3.Connection) -> bool:
            is_there = base in self._files.stamps()
            self._files.remove(base)
            index.remove_base(connection, base)
            return is_there

        was_there = await self._change(work)
        if was_there:
            self._tell(base, [], True)
        return was_there

    async def _change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`, done while the index has what the files hold and nobody else writes, at whatever
        host."""

        def alone(connection: sqlite3.Connection) -> T:
            with self._files.exclusive():
                self._follow(connection)
                return work(connection)

        await self._files.look()
        return await self._thread.write(alone)

    # --- on the thread ----------------------------------------------------------------------------

    def _save(self, connection: sqlite3.Connection, base: str, header: str) -> None:
        """Write a base's file, and note it as read. A crash before the commit leaves an index that follows."""
        stamp, hash = self._files.write(base, header, (row.body for row in index.rows_of(connection, base)))
        _note(connection, base, stamp, hash, header, None)

    def _follow(self, connection: sqlite3.Connection) -> None:
        """Bring the index to what the files hold. Reads only files that changed."""
        now = self._files.stamps()
        known = self._stamps(connection)
        for base in known.keys() - now.keys():
            index.remove_base(connection, base)
            self._tell(base, [], True)
        for base, stamp in now.items():
            if stamp != known.get(base):
                self._read(connection, base)

    def _stamps(self, connection: sqlite3.Connection) -> dict[str, str]:
        return dict(connection.execute("SELECT id, stamp FROM bases"))

    def _read(self, connection: sqlite3.Connection, base: str) -> None:
        """Take what a file holds into the index."""
        stamp, hash, header, problem = self._files.stamps().get(base, ""), "", "{}", None
        rows: list[Row] = []
        try:
            data, stamp = self._files.read(base)
            hash = hash_of(data)
            if connection.execute("SELECT 1 FROM bases WHERE id = ? AND hash = ?", (base, hash)).fetchone():
                connection.execute("UPDATE bases SET stamp = ? WHERE id = ?", (stamp, base))
                return
            header, rows = parse(data, base)
        except FileNotFoundError:
            return
        except InvalidInput as error:
            problem = error.message
        changed = index.replace_all(connection, base, rows)
        _note(connection, base, stamp, hash, header, problem)
        self._tell(base, changed, False)


def _note(connection: sqlite3.Connection, base: str, stamp: str, hash: str, header: str, problem: str | None) -> None:
    number = index.base_number(connection, base)
    connection.execute(
        "UPDATE bases SET stamp = ?, hash = ?, header = ?, problem = ? WHERE number = ?",
        (stamp, hash, header, problem, number),
    )


def _bases(connection: sqlite3.Connection) -> list[StoredBase]:
    found = connection.execute("SELECT id FROM bases ORDER BY id")
    return [_base(connection, id, usable=False) for (id,) in found]


def _base(connection: sqlite3.Connection, base: str, *, usable: bool = True) -> StoredBase:
    row = connection.execute(
        "SELECT id, header, problem FROM bases WHERE id = ?1 OR "
        "(problem IS NULL AND json_extract(header, '$.kb_id') = ?1) ORDER BY id != ?1 LIMIT 1",
        (base,),
    ).fetchone()
    if row is None:
        return _unknown(base, [id for (id,) in connection.execute("SELECT id FROM bases")])
    base, header, problem = row
    if problem is not None:
        if usable:
            raise InvalidInput(f"the base {base!r} cannot be used: knowledge/{base}.json: {problem}", base=base)
        return StoredBase(BaseHeader(kb_id=base), base, 0, problem)
    return StoredBase(BaseHeader.model_validate_json(header), base, index.count_of(connection, base))


def _unknown(base: str, known: Sequence[str]) -> StoredBase:
    raise NotFound(f"there is no knowledge base {base!r:.200}{did_you_mean(base, known)}", base=base)


def _require(connection: sqlite3.Connection, base: str, id: str, revision: str) -> None:
    """Raise `Conflict` unless an entry is still what the caller saw."""
    row = index.row_of(connection, base, id)
    if (row.hash if row is not None else "") != revision:
        now = f"it is {row.hash} now; read it again" if row is not None else "it is gone"
        raise Conflict(f"the entry {id!r} of the base {base!r} is not of the revision {revision!r}: {now}")


def _stamped(entry: KnowledgeEntry, now: str) -> Row:
    """Return an entry as it is written: with an id and the time."""
    about = entry.management_metadata
    known = {"updated_at": now} | ({} if about.created_at is not None else {"created_at": now})
    id = entry.id.strip() or new_id("caiu")
    row = Row.of(entry.model_copy(update={"id": id, "management_metadata": about.model_copy(update=known)}))
    if len(row.body.encode("utf-8", "replace")) > MAX_ENTRY:
        raise InvalidInput(f"the entry {id!r:.200} has more than {MAX_ENTRY >> 20} MiB of JSON")
    return row


def _dumped(header: BaseHeader) -> str:
    now = _now()
    known = {"updated_at": now} | ({} if header.created_at is not None else {"created_at": now})
    return json.dumps(header.model_copy(update=known).model_dump(mode="json", exclude_unset=True), ensure_ascii=False)


def _now() -> str:
    return clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
