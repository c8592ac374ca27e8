"""The conversations that agents worked on last, in memory by the message at which they stand.

What leads to a message never changes; a summary for some of it may be added, by another host too, and a conversation
may be forgotten. So each is compared with the store, in the transaction that continues it.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from tavern_agents.conversation import Conversation

if TYPE_CHECKING:
    import sqlite3

MAX_BYTES = 64 << 20
"""How many bytes the conversations have at most, together."""


class RecentConversations:
    """Conversations that are not worked on; those that stood still for longest make room for others."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._limit = limit
        self._kept: OrderedDict[int, tuple[str, Conversation]] = OrderedDict()
        self._lock = Lock()  # the store takes them on threads of its own
        self.size = 0
        """How many bytes they have."""

    def put(self, history: str, conversation: Conversation) -> None:
        """Keep a conversation, which is not changed from now on."""
        if not conversation.kept or conversation.bytes > self._limit:
            return
        head = conversation.kept[-1].seq
        with self._lock:
            self._pop(head)
            self._kept[head] = history, conversation
            self.size += conversation.bytes
            while self.size > self._limit:
                self._pop(next(iter(self._kept)))

    def take(self, connection: sqlite3.Connection, head: int | None) -> Conversation | None:
        """Return the conversation that stands at a message, for the caller alone, if it is here and as it is stored."""
        with self._lock:
            found = None if head is None else self._pop(head)
        return found if found is not None and _is_current(connection, found) else None

    def forget(self, history: str) -> None:
        """Drop what there is of a conversation."""
        with self._lock:
            for head in [head for head, (name, _) in self._kept.items() if name == history]:
                self._pop(head)

    def _pop(self, head: int) -> Conversation | None:
        _, found = self._kept.pop(head, (None, None))
        self.size -= 0 if found is None else found.bytes
        return found


def _is_current(connection: sqlite3.Connection, known: Conversation) -> bool:
    """Return whether a conversation is stored, with the same summary."""
    head = known.kept[-1]
    row = connection.execute("SELECT id FROM messages WHERE seq = ?", (head.seq,)).fetchone()
    if row is None or row[0] != head.id:
        return False
    first = known.until or known.kept[0].seq
    query = "SELECT until, body FROM summaries WHERE until BETWEEN ? AND ?"  # other conversations' among them
    summaries = dict(connection.execute(query, (first, head.seq)).fetchall())
    if known.until and summaries.get(known.until) != known.summary:
        return False
    return not summaries or not any(one.seq in summaries for one in known.kept)
