"""The tables of the index, and what is done with them within one transaction. The index is derived: what is in it
follows from the files of the bases, or from the host's definitions, and it is rebuilt where it is lost."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tavern_host.contracts.errors import NotFound
from tavern_host.storage.sqlite import Schema
from tavern_knowledge.api.knowledge import BaseHeader, KnowledgeEntry
from tavern_knowledge.words import asked, indexed, is_pattern, normal

T = TypeVar("T")

TABLES = (
    # `stamp` is how the file was when it was read, `header` its JSON without entries, `problem` why it is not used.
    "CREATE TABLE bases (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, stamp TEXT NOT NULL, hash TEXT NOT NULL, "
    "header TEXT NOT NULL, problem TEXT)",
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, base INTEGER NOT NULL, id TEXT NOT NULL, place INTEGER NOT NULL, "
    # `keys` are those of which one must occur in a text for the entry to be activated, `*` for one that needs no key.
    "hash TEXT NOT NULL, body TEXT NOT NULL, keys TEXT, UNIQUE (base, id))",
    "CREATE INDEX entries_in_order ON entries (base, place)",
    # `scope` holds a word for the base, for each tag and for the type, by which a search is narrowed.
    "CREATE VIRTUAL TABLE words USING fts5(name, keys, text, scope, tokenize = 'porter unicode61')",
    "CREATE TABLE vectors (hash TEXT NOT NULL, model TEXT NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (hash, model)) "
    "WITHOUT ROWID",
)
READ_AGAIN = ("DELETE FROM words", "DELETE FROM entries", "DELETE FROM bases")
"""Regular expressions among the keys: all files are read once more."""
INDEX = Schema("knowledge.sqlite3", (TABLES, READ_AGAIN), is_derived=True)

MAX_WORDS = 24
"""How many words of a query count."""
MAX_INDEXED = 100_000
"""How many characters of an entry's text are indexed."""
FEW = 2_000
"""So many entries are ranked whatever words they have."""
ENOUGH = 200
"""How many entries are ranked at least, where so many have words of the query."""
_MAX_KNOWN = 50_000
_RANK = 60
"""Softens the difference between the first ranks of a ranking."""
_WEIGHTS = "5.0, 2.0, 1.0, 0.0"


@dataclass(frozen=True, slots=True)
class Row:
    """An entry as it is stored: the JSON text of it, and the hash of that."""

    id: str
    hash: str
    body: str

    @classmethod
    def of(cls, entry: KnowledgeEntry) -> Row:
        """Return the row of an entry, with the fields that were given and no others."""
        return cls.of_body(entry.id, json.dumps(entry.model_dump(mode="json", exclude_unset=True), ensure_ascii=False))

    @classmethod
    def of_body(cls, id: str, body: str) -> Row:
        return cls(id, hashlib.sha256(body.encode()).hexdigest()[:16], body)


@dataclass(frozen=True)
class Query:
    """What is looked for: the entries must have all `tags` and, if there are any, one of the types."""

    text: str
    tags: Sequence[str] = ()
    entry_types: Sequence[str] = ()
    limit: int = 5


Chooser = Callable[[list[tuple[str, BaseHeader]]], list[str]]
"""Says which of the bases are looked at."""


@dataclass(frozen=True)
class Match:
    """A row that a search found. A larger score is better."""

    base: str
    row: Row
    score: float


def entry_of(row: Row) -> KnowledgeEntry:
    """Return the entry that a row holds."""
    return KnowledgeEntry.model_validate_json(row.body)


# --- writing --------------------------------------------------------------------------------------


def base_number(connection: sqlite3.Connection, base: str) -> int:
    """Return the number of a base, a new one where it has none."""
    connection.execute("INSERT OR IGNORE INTO bases (id, stamp, hash, header) VALUES (?, '', '', '{}')", (base,))
    (number,) = connection.execute("SELECT number FROM bases WHERE id = ?", (base,)).fetchone()
    return int(number)


def replace_all(connection: sqlite3.Connection, base: str, rows: Sequence[Row]) -> list[str]:
    """Make these the entries of a base, in this order; return the ids of those that are new, changed or gone. Costs
    next to nothing for what did not change."""
    number = base_number(connection, base)
    found = connection.execute("SELECT id, hash, place FROM entries WHERE base = ?", (number,))
    known = {id: (hash, place) for id, hash, place in found}
    ids = {row.id for row in rows}
    changed = [id for id in known if id not in ids]
    remove_rows(connection, base, changed)
    for place, row in enumerate(rows):
        before = known.get(row.id)
        if before is None or before[0] != row.hash:
            _write(connection, base, number, place, row)
            changed.append(row.id)
        elif before[1] != place:
            connection.execute("UPDATE entries SET place = ? WHERE base = ? AND id = ?", (place, number, row.id))
    return changed


def put_rows(connection: sqlite3.Connection, base: str, rows: Iterable[Row]) -> None:
    """Write entries: known ones in their place, new ones behind all others."""
    number = base_number(connection, base)
    (last,) = connection.execute("SELECT ifnull(max(place), -1) FROM entries WHERE base = ?", (number,)).fetchone()
    for row in rows:
        known = connection.execute("SELECT place FROM entries WHERE base = ? AND id = ?", (number, row.id)).fetchone()
        last += known is None
        _write(connection, base, number, last if known is None else known[0], row)


def remove_rows(connection: sqlite3.Connection, base: str, ids: Iterable[str]) -> None:
    """Remove entries, those that there are."""
    number = base_number(connection, base)
    for id in ids:
        row = connection.execute("SELECT seq FROM entries WHERE base = ? AND id = ?", (number, id)).fetchone()
        if row is not None:
            connection.execute("DELETE FROM words WHERE rowid = ?", row)
            connection.execute("DELETE FROM entries WHERE seq = ?", row)


def remove_base(connection: sqlite3.Connection, base: str) -> None:
    """Remove a base with its entries."""
    number = base_number(connection, base)
    connection.execute("DELETE FROM words WHERE rowid IN (SELECT seq FROM entries WHERE base = ?)", (number,))
    connection.execute("DELETE FROM entries WHERE base = ?", (number,))
    connection.execute("DELETE FROM bases WHERE number = ?", (number,))


def _write(connection: sqlite3.Connection, base: str, number: int, place: int, row: Row) -> None:
    entry = entry_of(row)
    (seq,) = connection.execute(
        "INSERT INTO entries (base, id, place, hash, body, keys) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (base, id) DO "
        "UPDATE SET place = excluded.place, hash = excluded.hash, body = excluded.body, keys = excluded.keys "
        "RETURNING seq",
        (number, row.id, place, row.hash, row.body, _trigger(entry)),
    ).fetchone()
    connection.execute("DELETE FROM words WHERE rowid = ?", (seq,))
    if not entry.management_metadata.is_enabled:
        return
    criteria, tags = entry.activation_criteria, entry.management_metadata.tags
    keys = [*criteria.keywords, *(key for group in criteria.key_groups for key in group.keys), *tags]
    scope = [_scope("b", base), _scope("y", entry.entry_type), *(_scope("t", tag) for tag in tags)]
    connection.execute(
        "INSERT INTO words (rowid, name, keys, text, scope) VALUES (?, ?, ?, ?, ?)",
        (
            seq,
            indexed([entry.name, entry.id] if entry.display_name else [entry.id]),
            indexed(keys),
            indexed([entry.content.value[:MAX_INDEXED]]),
            " ".join(scope),
        ),
    )


def _trigger(entry: KnowledgeEntry) -> str | None:
    """Return the keys of which one must occur for the entry to be activated, `*` where it may be without."""
    criteria = entry.activation_criteria
    if not entry.management_metadata.is_enabled:
        return None
    if criteria.trigger_conditions:
        return "*"
    enough = [group for group in criteria.key_groups if not group.required]
    if any(group.logic in ("NOT", "NOT_ALL") for group in enough):
        return "*"
    keys = [*criteria.keywords, *(key for group in enough for key in group.keys)]
    if (not keys and criteria.key_groups) or any(is_pattern(key) for key in keys):
        return "*"
    return "\n".join(dict.fromkeys(normal(key.strip()) for key in keys if key.strip())) or None


def _scope(kind: str, text: str) -> str:
    """Return a word that no text has."""
    return f"{kind}{hashlib.sha256(text.encode()).hexdigest()[:16]}"


# --- reading --------------------------------------------------------------------------------------


class Frequencies:
    """In how many entries words stand, as far as they were asked for; about right also while entries change."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._size = 0

    def telling(self, connection: sqlite3.Connection, terms: Sequence[str], enough: int) -> Sequence[str]:
        """Return the rarest of the terms, as many as stand in enough entries together; in a small index all."""
        (size,) = connection.execute("SELECT ifnull(max(seq), 0) FROM entries").fetchone()
        if size < FEW:
            return terms
        if abs(size - self._size) > self._size // 10 or len(self._known) > _MAX_KNOWN:
            self._known, self._size = {}, size
        for term in terms:
            if term not in self._known:
                (count,) = connection.execute("SELECT count(*) FROM words WHERE words MATCH ?", (term,)).fetchone()
                self._known[term] = count
        chosen, sum = [], 0
        for term in sorted(terms, key=self._known.__getitem__):
            if sum >= enough:
                break
            chosen.append(term)
            sum += self._known[term]
        return chosen


class Entries(ABC):
    """Entries of bases that can be read."""

    frequencies: Frequencies

    @abstractmethod
    async def read(self, work: Callable[[sqlite3.Connection], T], absent: T) -> T:
        """Return `work(connection)`, or `absent` where there is nothing."""

    async def rows(self, base: str, limit: int, offset: int) -> tuple[list[Row], int]:
        """Return entries of a base in order, and how many it has."""
        return await self.read(lambda c: (list(rows_of(c, base, limit, offset)), count_of(c, base)), ([], 0))

    async def row(self, base: str, id: str) -> Row:
        """Return an entry. Raises `NotFound`."""
        found = await self.read(lambda connection: row_of(connection, base, id), None)
        if found is None:
            raise NotFound(f"the base {base!r} has no entry {id!r:.200}", base=base, entry=id)
        return found

    @abstractmethod
    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return `work(connection)`, done in one transaction. For what is in the index alone."""

    @abstractmethod
    def known(self, connection: sqlite3.Connection) -> list[tuple[str, BaseHeader]]:
        """Return the bases that can be used, by id."""

    async def search(self, query: Query, choose: Chooser) -> list[Match]:
        """Return the entries of the chosen bases that fit best by their words."""
        return await self.read(lambda c: search_words(c, query, choose(self.known(c)), self.frequencies), [])


def rows_of(connection: sqlite3.Connection, base: str, limit: int = -1, offset: int = 0) -> Iterable[Row]:
    """Yield entries of a base, in its order."""
    found = connection.execute(
        "SELECT e.id, e.hash, e.body FROM entries e JOIN bases b ON b.number = e.base WHERE b.id = ? "
        "ORDER BY e.place LIMIT ? OFFSET ?",
        (base, limit, offset),
    )
    return (Row(*row) for row in found)


def row_of(connection: sqlite3.Connection, base: str, id: str) -> Row | None:
    """Return an entry of a base, or None."""
    found = connection.execute(
        "SELECT e.id, e.hash, e.body FROM entries e JOIN bases b ON b.number = e.base WHERE b.id = ? AND e.id = ?",
        (base, id),
    ).fetchone()
    return None if found is None else Row(*found)


def count_of(connection: sqlite3.Connection, base: str) -> int:
    """Return how many entries a base has."""
    (count,) = connection.execute(
        "SELECT count(*) FROM entries e JOIN bases b ON b.number = e.base WHERE b.id = ?", (base,)
    ).fetchone()
    return int(count)


def search_words(
    connection: sqlite3.Connection, query: Query, bases: Sequence[str], frequencies: Frequencies
) -> list[Match]:
    """Return the entries of these bases that have words of the query, the best by BM25 first.

    In a large index an entry must have one of the rarer words if enough have one; the others count all the same.
    """
    words = asked(query.text, MAX_WORDS)
    if not words or not bases:
        return []
    narrowed = conditions(query, bases)
    terms = [f'"{word[:-1]}" *' if word.endswith("*") else f'"{word}"' for word in words]
    telling = frequencies.telling(connection, terms, max(ENOUGH, 10 * query.limit))
    found: list[tuple[int, float]] = []
    if len(telling) < len(terms):
        found = _ranked(connection, [*narrowed, _any(telling), _any(terms)], query.limit)
    if len(found) < query.limit:
        found = _ranked(connection, [*narrowed, _any(terms)], query.limit)
    return [match_of(connection, seq, -score) for seq, score in found]


def conditions(query: Query, bases: Sequence[str]) -> list[str]:
    """Return, for `MATCH`, what is asked of an entry besides its words; there must be a base."""
    narrowed = [_any(_scope("b", base) for base in bases), *(_any([_scope("t", tag)]) for tag in query.tags)]
    return narrowed + ([_any(_scope("y", kind) for kind in query.entry_types)] if query.entry_types else [])


def match_of(connection: sqlite3.Connection, seq: int, score: float) -> Match:
    """Return the entry of a number as a match."""
    base, *row = connection.execute(
        "SELECT b.id, e.id, e.hash, e.body FROM entries e JOIN bases b ON b.number = e.base WHERE e.seq = ?", (seq,)
    ).fetchone()
    return Match(base, Row(*row), score)


def _ranked(connection: sqlite3.Connection, conditions: Sequence[str], limit: int) -> list[tuple[int, float]]:
    return connection.execute(
        f"SELECT rowid, bm25(words, {_WEIGHTS}) AS score FROM words WHERE words MATCH ? ORDER BY score LIMIT ?",
        (" AND ".join(conditions), limit),
    ).fetchall()


def candidates(connection: sqlite3.Connection, bases: Sequence[str], text: str) -> list[Match]:
    """Return the entries of these bases that a text may activate, by the keys that stand in it somewhere; `text` is in
    normal form. Reads only those that are returned."""
    marks = ", ".join("?" * len(bases))
    found = connection.execute(
        f"SELECT e.seq, e.keys FROM entries e JOIN bases b ON b.number = e.base WHERE b.id IN ({marks}) "
        "AND e.keys IS NOT NULL",
        list(bases),
    )
    chosen = [seq for seq, keys in found if keys == "*" or any(key in text for key in keys.split("\n"))]
    return [match_of(connection, seq, 0.0) for seq in chosen]


def _any(words: Iterable[str]) -> str:
    return f"({' OR '.join(words)})"


def fused(rankings: Sequence[Sequence[Match]]) -> list[Match]:
    """Return matches of several rankings as one, by the sum of their reciprocal ranks; one ranking stays as it is."""
    if len(rankings) < 2:
        return [match for ranking in rankings for match in ranking]
    scores: dict[tuple[str, str], float] = {}
    matches: dict[tuple[str, str], Match] = {}
    for ranking in rankings:
        for rank, match in enumerate(ranking):
            key = (match.base, match.row.id)
            matches[key] = match
            scores[key] = scores.get(key, 0.0) + 1 / (_RANK + rank)
    return [replace(matches[key], score=scores[key]) for key in sorted(scores, key=lambda key: -scores[key])]
