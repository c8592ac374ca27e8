"""What a list of conversations shows, with the title of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tavern_agents.api.histories import HistorySummary
from tavern_agents.rows import moment

if TYPE_CHECKING:
    import sqlite3

MAX_TITLE = 80
"""How many characters of a first message are a title at most."""


def read_summaries(connection: sqlite3.Connection, where: str, values: tuple[str | int, ...]) -> list[HistorySummary]:
    """Return the conversations that a clause of SQL selects from `histories h`."""
    begins = "SELECT body FROM messages m WHERE m.history = h.id AND m.parent IS NULL ORDER BY m.seq LIMIT 1"
    rows = connection.execute(
        f"SELECT h.id, h.messages, h.created, h.changed, h.title, CASE WHEN h.title IS NULL THEN ({begins}) END "
        f"FROM histories h {where}",
        values,
    )
    return [
        HistorySummary(
            id=id,
            title=title or _title_in(body),
            messages=messages,
            created_at=moment(created),
            changed_at=moment(changed),
        )
        for id, messages, created, changed, title, body in rows
    ]


def _title_in(body: bytes | None) -> str:
    """Return how the first paragraph of a message begins, in one line."""
    content = "" if body is None else str(json.loads(body).get("content", ""))[: 4 * MAX_TITLE]
    words = content.strip().split("\n\n")[0].split()
    text = " ".join(words)
    return text if len(text) <= MAX_TITLE else f"{text[: MAX_TITLE - 1]}…"
