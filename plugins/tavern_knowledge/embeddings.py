"""Finds entries by the vectors that a model makes of them, where the operator names one; off by default.

Vectors are kept in the index by the hash of the entry, so that an entry that is written again unchanged costs nothing.
Where the model cannot be reached the search does with words.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from array import array
from collections.abc import Sequence
from functools import partial
from operator import mul

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import TavernError
from tavern_knowledge.index import Chooser, Entries, Match, Query, Row, conditions, entry_of, match_of
from tavern_llm.api.llm import LLM

SETTING = "embeddingModel"
_BATCH, _MAX_NEW = 64, 512
"""How many entries one request embeds, and how many one search at most; the rest come with the next searches."""
_MAX_TEXT = 8_000
_MIN_SIMILARITY = 0.3


async def nearest(context: PluginContext, entries: Entries, query: Query, choose: Chooser) -> list[Match]:
    """Return the entries nearest to the query by the cosine of their vectors, best first; none where no model is named
    or it fails."""
    model = str(context.settings.get(SETTING) or "")
    if not model or not query.text.strip():
        return []
    try:
        await _embed_new(context, entries, model, choose)
        (vector,) = await _vectors(context, [query.text], model)
    except TavernError as error:
        context.log.warning("knowledge is searched by words alone: %s", error.message)
        return []
    return await entries.read(lambda found: _nearest(found, vector, model, query, choose(entries.known(found))), [])


async def _embed_new(context: PluginContext, entries: Entries, model: str, choose: Chooser) -> None:
    rows: list[Row] = []
    rows = await entries.read(lambda found: _without_vector(found, model, choose(entries.known(found))), rows)
    for begin in range(0, len(rows), _BATCH):
        batch = rows[begin : begin + _BATCH]
        texts = [f"{(entry := entry_of(row)).name}\n{entry.content.value}"[:_MAX_TEXT] for row in batch]
        made = await _vectors(context, texts, model)
        values = [(row.hash, model, vector.tobytes()) for row, vector in zip(batch, made, strict=True)]
        await entries.write(partial(_keep, values=values))


async def _vectors(context: PluginContext, texts: list[str], model: str) -> list[array[float]]:
    found = await context.services.get(LLM).embed(texts, model=model)
    return [_normal(vector) for vector in found.vectors]


def _keep(connection: sqlite3.Connection, values: Sequence[tuple[str, str, bytes]]) -> None:
    connection.execute("DELETE FROM vectors WHERE hash NOT IN (SELECT hash FROM entries)")
    connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", values)


def _normal(vector: Sequence[float]) -> array[float]:
    length = math.hypot(*vector) or 1.0
    return array("f", (value / length for value in vector))


def _without_vector(connection: sqlite3.Connection, model: str, bases: Sequence[str]) -> list[Row]:
    if not bases:
        return []
    found = connection.execute(
        "SELECT e.id, e.hash, e.body FROM words w JOIN entries e ON e.seq = w.rowid WHERE w.words MATCH ? "
        "AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.hash = e.hash AND v.model = ?) LIMIT ?",
        (" AND ".join(conditions(Query(""), bases)), model, _MAX_NEW),
    )
    return [Row(*row) for row in found]


def _nearest(
    connection: sqlite3.Connection, vector: array[float], model: str, query: Query, bases: Sequence[str]
) -> list[Match]:
    if not bases:
        return []
    found = connection.execute(
        "SELECT e.seq, v.vector FROM words w JOIN entries e ON e.seq = w.rowid JOIN vectors v ON v.hash = e.hash "
        "WHERE w.words MATCH ? AND v.model = ?",
        (" AND ".join(conditions(query, bases)), model),
    )
    scored = ((sum(map(mul, vector, array("f", kept))), seq) for seq, kept in found)
    best = heapq.nlargest(query.limit, (pair for pair in scored if pair[0] >= _MIN_SIMILARITY))
    return [match_of(connection, seq, score) for score, seq in best]
