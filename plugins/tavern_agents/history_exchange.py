"""Conversations as JSON: every message with its parent, every branch, every summary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tavern_agents.api.histories import (
    ExportedBranch,
    ExportedMemory,
    ExportedSummary,
    HistoryDetails,
    HistoryExport,
    HistoryMessage,
)
from tavern_agents.history_tree import MAIN, MAX_NAME, exists, insert_message, read_details, read_history
from tavern_agents.rows import message_body, micros
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    import sqlite3


def export_history(connection: sqlite3.Connection, history: str) -> HistoryExport:
    """Return a whole conversation. Raises `NotFound`."""
    details = read_details(connection, history)
    summaries = connection.execute(
        "SELECT m.id, s.body FROM messages m JOIN summaries s ON s.until = m.seq WHERE m.history = ? ORDER BY m.seq",
        (history,),
    )
    (title,) = connection.execute("SELECT title FROM histories WHERE id = ?", (history,)).fetchone()
    return HistoryExport(
        id=history,
        title=title,
        created_at=details.created_at,
        changed_at=details.changed_at,
        active=details.active,
        branches=[ExportedBranch(**branch.model_dump(exclude={"messages"})) for branch in details.branches],
        messages=read_history(
            connection,
            "SELECT m.id, p.id, m.created, m.run, m.body FROM messages m LEFT JOIN messages p ON p.seq = m.parent "
            "WHERE m.history = ? ORDER BY m.seq",
            (history,),
        ),
        memories=[
            ExportedMemory(message_id=id, agents=json.loads(body))
            for id, body in connection.execute(
                "SELECT m.id, coalesce(s.body, '{}') FROM messages m LEFT JOIN messages p ON p.seq = m.parent "
                "LEFT JOIN states s ON s.seq = m.state WHERE m.history = ? AND m.state IS NOT p.state ORDER BY m.seq",
                (history,),
            )
        ],
        summaries=[ExportedSummary(until=until, text=text) for until, text in summaries],
    )


def export_before(connection: sqlite3.Connection, history: str, message: HistoryMessage) -> HistoryExport | None:
    """Return a conversation as it was before a message: what leads to it, as one branch. None where nothing does."""
    if message.parent_id is None:
        return None
    whole = export_history(connection, history)
    parents, path = {one.id: one.parent_id for one in whole.messages}, set[str]()
    at: str | None = message.parent_id
    while at is not None:
        path.add(at)
        at = parents[at]
    times = {"created_at": whole.created_at, "changed_at": message.created_at}
    return HistoryExport(
        id=history,
        active=MAIN,
        branches=[ExportedBranch(name=MAIN, head=message.parent_id, **times)],
        messages=[one for one in whole.messages if one.id in path],
        memories=[one for one in whole.memories if one.message_id in path],
        summaries=[one for one in whole.summaries if one.until in path],
        **times,
    )


def import_history(connection: sqlite3.Connection, exported: HistoryExport, history: str) -> HistoryDetails:
    """Keep an exported conversation. Raises `Conflict` where there is one of that id, `InvalidInput`."""
    if exists(connection, history):
        raise Conflict(f"there is a conversation {history!r} already; import it under another id")
    if exported.active not in {branch.name for branch in exported.branches}:
        raise InvalidInput(f"active: there is no branch {exported.active!r}")
    states: dict[str | None, int | None] = {}
    for index, memory in enumerate(exported.memories):
        if memory.message_id in states:
            raise InvalidInput(f"memories[{index}].messageId: {memory.message_id!r} stands twice")
        body = json.dumps({id: one.to_json() for id, one in memory.agents.items()}, ensure_ascii=False)
        (new,) = connection.execute("INSERT INTO states (body) VALUES (?) RETURNING seq", (body,)).fetchone()
        states[memory.message_id] = new if memory.agents else None
    kept: dict[str, tuple[int, int]] = {}
    for index, message in enumerate(exported.messages):
        states[message.id] = states.get(message.id, states.get(message.parent_id))
        kept[message.id] = _add(connection, history, message, kept, states[message.id], f"messages[{index}]")
    for index, memory in enumerate(exported.memories):
        if memory.message_id not in kept:
            raise InvalidInput(f"memories[{index}].messageId: {memory.message_id!r} is no message")
    names = set[str]()
    for index, branch in enumerate(exported.branches):
        if branch.name in names or branch.head not in kept:
            raise InvalidInput(f"branches[{index}]: the name is taken, or the head {branch.head!r} is no message")
        names.add(branch.name)
        times = micros(branch.created_at), micros(branch.changed_at)
        connection.execute(
            "INSERT INTO branches VALUES (?, ?, ?, ?, ?)", (history, branch.name, kept[branch.head][0], *times)
        )
    summarised = [summary.until for summary in exported.summaries]
    for index, summary in enumerate(exported.summaries):
        if summary.until not in kept or summary.until in summarised[:index]:
            raise InvalidInput(f"summaries[{index}].until: {summary.until!r} is no message, or stands twice")
        connection.execute("INSERT INTO summaries VALUES (?, ?)", (kept[summary.until][0], summary.text))
    times = micros(exported.created_at), micros(exported.changed_at)
    row = (history, *times, len(exported.messages), exported.active, exported.title)
    columns = "id, created, changed, messages, active, title"
    connection.execute(f"INSERT INTO histories ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
    return read_details(connection, history)


def _add(
    connection: sqlite3.Connection,
    history: str,
    message: HistoryMessage,
    kept: dict[str, tuple[int, int]],
    state: int | None,
    where: str,
) -> tuple[int, int]:
    """Keep a message whose parent is `kept` already; return its number and its depth."""
    if message.id in kept or not 0 < len(message.id) <= MAX_NAME:
        raise InvalidInput(f"{where}.id: {message.id[:MAX_NAME]!r} is empty, too long, or the id of another message")
    parent, depth = None, 0
    if message.parent_id is not None:
        if message.parent_id not in kept:
            raise InvalidInput(f"{where}.parentId: there is no message {message.parent_id!r} before this one")
        parent, depth = kept[message.parent_id]
    is_taken = connection.execute("SELECT 1 FROM messages WHERE id = ?", (message.id,)).fetchone() is not None
    id, body = new_id("msg") if is_taken else message.id, message_body(message.message)
    at = micros(message.created_at)
    return insert_message(connection, id, history, parent, depth + 1, at, message.run_id, body, state), depth + 1
