"""Conversations as trees: rows of messages and branches, as they are read and written within a transaction.

A message's number is above its parent's, so that the numbers of a path rise from the first message to the last.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pydantic import JsonValue

from tavern_agents.api.histories import HistoryBranch, HistoryDetails, HistoryMessage, HistoryNode
from tavern_agents.conversation import Conversation
from tavern_agents.history_titles import read_summaries
from tavern_agents.rows import Kept, moment, read_message, read_messages
from tavern_host import clock
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_llm.api.llm import ChatMessage

if TYPE_CHECKING:
    import sqlite3

MAIN = "main"
"""The branch that a conversation begins with."""

MAX_NAME = 200

MAX_TEXT = 200
"""How many characters of a message the tree shows."""

_PATH = (
    "WITH RECURSIVE path (seq, parent, rest) AS (SELECT seq, parent, ? FROM messages WHERE seq = ? UNION ALL "
    "SELECT m.seq, m.parent, path.rest - 1 FROM path JOIN messages m ON m.seq = path.parent WHERE path.rest != 1) "
)
"""The messages that lead to one: at most the last so many, all for 0."""

_UNSUMMARISED = (
    "WITH RECURSIVE path (seq, parent) AS (SELECT seq, parent FROM messages WHERE seq = ? UNION ALL "
    "SELECT m.seq, m.parent FROM path JOIN messages m ON m.seq = path.parent "
    "WHERE NOT EXISTS (SELECT 1 FROM summaries WHERE until = m.seq)) "
)

_BELOW = (
    "WITH RECURSIVE below (seq) AS (SELECT ? UNION ALL "
    "SELECT m.seq FROM below JOIN messages m ON m.history = ? AND m.parent = below.seq) SELECT max(seq) FROM below"
)

# A CROSS JOIN keeps SQLite from looking through the whole conversation first.
_RUNS_BESIDE = (
    "WITH beside (run) AS (SELECT DISTINCT answer.run FROM messages first "
    "CROSS JOIN messages instead ON instead.history = first.history AND instead.parent IS first.parent "
    "CROSS JOIN messages answer ON answer.history = instead.history AND answer.parent = instead.seq "
    "WHERE first.id = ? AND first.history = ? AND answer.run != ?)"
)


@dataclass(frozen=True)
class Place:
    """Where messages are to be added: in a branch whose head is the message `head`, behind the message `parent`; None
    for no message."""

    branch: str = MAIN
    head: int | None = None
    parent: int | None = None


def named(text: str, what: str) -> str:
    """Return a name or id without blanks around it. Raises `InvalidInput`."""
    if not text.strip() or len(text) > MAX_NAME:
        raise InvalidInput(f"{what} must have 1 to {MAX_NAME} characters")
    return text.strip()


# --- reading ------------------------------------------------------------------------------------------


def read_details(connection: sqlite3.Connection, history: str) -> HistoryDetails:
    """Return a conversation and its branches. Raises `NotFound`."""
    require(connection, history)
    (summary,) = read_summaries(connection, "WHERE h.id = ?", (history,))
    (active,) = connection.execute("SELECT active FROM histories WHERE id = ?", (history,)).fetchone()
    branches = connection.execute(
        "SELECT b.name, m.id, m.depth, b.created, b.changed FROM branches b JOIN messages m ON m.seq = b.head "
        "WHERE b.history = ? ORDER BY b.created, b.name",
        (history,),
    )
    return HistoryDetails(
        **summary.model_dump(),
        active=active,
        branches=[
            HistoryBranch(name=name, head=head, messages=depth, created_at=moment(created), changed_at=moment(changed))
            for name, head, depth, created, changed in branches
        ],
    )


def require(connection: sqlite3.Connection, history: str) -> None:
    """Raise `NotFound` for a conversation that is not there."""
    if not exists(connection, history):
        raise NotFound(f"there is no conversation {history!r}; `tavern history list` lists them", history=history)


def exists(connection: sqlite3.Connection, history: str) -> bool:
    """Return whether there is such a conversation."""
    return connection.execute("SELECT 1 FROM histories WHERE id = ?", (history,)).fetchone() is not None


def find_branch(connection: sqlite3.Connection, history: str, name: str | None = None) -> Place | None:
    """Return the end of a branch, of the active one by default; None for a conversation that is not there. Raises
    `NotFound`."""
    row = connection.execute(
        "SELECT b.name, b.head, b.head FROM histories h JOIN branches b ON b.history = h.id "
        "AND b.name = coalesce(?, h.active) WHERE h.id = ?",
        (name, history),
    ).fetchone()
    if row is not None:
        return Place(*row)
    if not exists(connection, history):
        return None
    known = [name for (name,) in connection.execute("SELECT name FROM branches WHERE history = ?", (history,))]
    near = difflib.get_close_matches(name or "", known, n=3) or known[:10]
    raise NotFound(f"the conversation {history!r} has no branch {name!r}; it has {', '.join(near)}", branch=name)


def find_message(connection: sqlite3.Connection, history: str, message_id: str) -> int:
    """Return the number of a message. Raises `NotFound`."""
    row = connection.execute("SELECT seq FROM messages WHERE id = ? AND history = ?", (message_id, history)).fetchone()
    if row is None:
        raise NotFound(f"the conversation {history!r} has no message {message_id!r}", messageId=message_id)
    return int(row[0])


def find_end(
    connection: sqlite3.Connection, history: str, branch: str | None = None, message_id: str | None = None
) -> int:
    """Return a message, by default the head of a branch. Raises `NotFound`."""
    require(connection, history)
    if message_id is not None:
        return find_message(connection, history, message_id)
    place = find_branch(connection, history, branch)
    assert place is not None and place.head is not None
    return place.head


def read_path(connection: sqlite3.Connection, leaf: int | None, last: int | None = None) -> list[HistoryMessage]:
    """Return the messages that lead to one, oldest first, at most the `last` ones."""
    if last == 0:
        return []
    where = "FROM path JOIN messages m ON m.seq = path.seq LEFT JOIN messages p ON p.seq = path.parent ORDER BY m.seq"
    return read_history(connection, f"{_PATH} SELECT m.id, p.id, m.created, m.run, m.body {where}", (last or 0, leaf))


def read_history(connection: sqlite3.Connection, query: str, values: Sequence[object]) -> list[HistoryMessage]:
    """Return the messages of a query of `id, parent's id, created, run, body`."""
    return [
        HistoryMessage(id=id, parent_id=parent, created_at=moment(created), run_id=run, message=read_message(body))
        for id, parent, created, run, body in connection.execute(query, values)
    ]


def read_children(connection: sqlite3.Connection, history: str, parent: int | None) -> list[HistoryMessage]:
    """Return the messages right behind one, oldest first; None stands for the beginning."""
    return read_history(
        connection,
        "SELECT m.id, p.id, m.created, m.run, m.body FROM messages m LEFT JOIN messages p ON p.seq = m.parent "
        "WHERE m.history = ? AND m.parent IS ? ORDER BY m.seq",
        (history, parent),
    )


def read_tree(connection: sqlite3.Connection, history: str, limit: int, offset: int) -> list[HistoryNode]:
    """Return the messages of all branches, parents before children."""
    rows = connection.execute(
        "SELECT m.id, p.id, m.depth, m.created, m.run, m.body, s.body FROM messages m "
        "LEFT JOIN messages p ON p.seq = m.parent LEFT JOIN summaries s ON s.until = m.seq "
        "WHERE m.history = ? ORDER BY m.seq LIMIT ? OFFSET ?",
        (history, limit, offset),
    )
    return [
        HistoryNode(
            id=id,
            parent_id=parent,
            depth=depth,
            role=(message := read_message(body)).role,
            text=message.content[:MAX_TEXT],
            calls=[call.name for call in message.tool_calls],
            created_at=moment(created),
            run_id=run,
            summary=summary,
        )
        for id, parent, depth, created, run, body, summary in rows
    ]


def read_conversation(connection: sqlite3.Connection, leaf: int | None) -> Conversation:
    """Return the messages on the way to `leaf`, with the summary that stands for the first, where there is one."""
    rows = connection.execute(
        f"{_UNSUMMARISED} SELECT m.seq, m.id, m.body, m.run, m.parent FROM path JOIN messages m ON m.seq = path.seq "
        "ORDER BY m.seq",
        (leaf,),
    ).fetchall()
    if not rows:
        return Conversation()
    until = rows[0][4]
    summary = connection.execute("SELECT body FROM summaries WHERE until = ?", (until,)).fetchone()
    messages = read_messages([row[2] for row in rows])
    kept = [Kept(seq, id, message, run) for (seq, id, _, run, _), message in zip(rows, messages, strict=True)]
    return Conversation(summary[0], kept, until) if summary else Conversation("", kept)


def read_kept(connection: sqlite3.Connection, run: str, first: int) -> list[Kept]:
    """Return the messages that lead to where a run stands, from the one with the number `first` on."""
    rows = connection.execute(
        "WITH RECURSIVE path (seq, parent) AS (SELECT seq, parent FROM messages "
        "WHERE seq = (SELECT head FROM runs WHERE id = ?) UNION ALL SELECT m.seq, m.parent FROM path "
        "JOIN messages m ON m.seq = path.parent WHERE m.seq >= ?) "
        "SELECT m.seq, m.id, m.body, m.run FROM path JOIN messages m ON m.seq = path.seq ORDER BY m.seq",
        (run, first),
    ).fetchall()
    messages = read_messages([row[2] for row in rows])
    return [Kept(seq, id, message, run) for (seq, id, _, run), message in zip(rows, messages, strict=True)]


def read_added(connection: sqlite3.Connection, run: str) -> list[ChatMessage]:
    """Return the messages that a run added, which lie one behind the other up to where it stands."""
    rows = connection.execute(
        "WITH RECURSIVE path (seq, parent, body) AS (SELECT m.seq, m.parent, m.body FROM runs "
        "JOIN messages m ON m.seq = runs.head AND m.run = runs.id WHERE runs.id = ? UNION ALL "
        "SELECT m.seq, m.parent, m.body FROM path JOIN messages m ON m.seq = path.parent WHERE m.run = ?) "
        "SELECT body FROM path ORDER BY seq",
        (run, run),
    )
    return read_messages([body for (body,) in rows])


def turn_start(connection: sqlite3.Connection, message: int) -> int | None:
    """Return the message that the turn of a message answers: itself where a person said it. None where nothing was
    said before."""
    at: int | None = message
    while at is not None:
        parent, body = connection.execute("SELECT parent, body FROM messages WHERE seq = ?", (at,)).fetchone()
        said = read_message(body)
        if said.role == "user" and not said.content.startswith("<OBSERVATION>"):
            return at
        at = parent
    return None


def called_beside(connection: sqlite3.Connection, history: str, message_id: str, run: str) -> list[str]:
    """Return the tools that other runs have called, or tried to, which answered a message or one in its place."""
    runs, values = "IN (SELECT run FROM beside)", (message_id, history, run)
    steps = connection.execute(f"{_RUNS_BESIDE} SELECT body FROM steps WHERE run {runs}", values)
    parts = chain.from_iterable(kept if isinstance(kept := json.loads(body), list) else [kept] for (body,) in steps)
    begun = [step["data"] for step in parts if step["kind"] == "tool_running"]
    results = connection.execute(
        f"{_RUNS_BESIDE} SELECT result FROM calls WHERE result IS NOT NULL AND run {runs}", values
    )
    called = [*begun, *(json.loads(body) for (body,) in results)]
    return sorted({tool for call in called if isinstance(tool := call.get("toolId"), str)})


def latest_below(connection: sqlite3.Connection, history: str, message: int) -> int:
    """Return the last that was kept of the messages that follow one; itself where none does."""
    return int(connection.execute(_BELOW, (message, history)).fetchone()[0])


# --- writing ------------------------------------------------------------------------------------------


def find_place(
    connection: sqlite3.Connection, history: str, branch: str | None, parent_id: str | None, head: str | None
) -> Place:
    """Return where messages are to be added: behind a message, by default the head of a branch.

    Raises `NotFound`, and `Conflict` where the branch's head is not the `head` that the caller knows, or where it is
    not the parent and the caller does not say that it knows it.
    """
    place = find_branch(connection, history, branch)
    if place is None:
        if parent_id is not None:
            require(connection, history)
        if head is not None:
            raise Conflict(f"the conversation {history!r} has no messages yet, so none is {head}", head=None)
        return Place(MAIN if branch is None else named(branch, "the name of a branch"))
    check_head(connection, history, place, head)
    if parent_id is None:
        return place
    parent = find_message(connection, history, parent_id)
    if parent != place.head and head is None:
        raise _moved(connection, history, place, parent_id)
    return Place(place.branch, place.head, parent)


def check_head(connection: sqlite3.Connection, history: str, place: Place, known: str | None) -> None:
    """Raise `Conflict` where a branch's head is not the one that the caller knows, if it says so."""
    if known is not None and (place.head is None or known != id_of(connection, place.head)):
        raise _moved(connection, history, place, known)


def _moved(connection: sqlite3.Connection, history: str, place: Place, known: str) -> Conflict:
    head = None if place.head is None else id_of(connection, place.head)
    return Conflict(
        f"the head of the branch {place.branch!r} of the conversation {history!r} is {head}, not {known}; "
        "load it again",
        head=head,
        branch=place.branch,
    )


def check_idle(connection: sqlite3.Connection, history: str, branch: str | None = None, but: str = "") -> None:
    """Raise `Conflict` while a run of an agent, other than `but`, works on a branch, or on any."""
    row = connection.execute(
        "SELECT id FROM runs INDEXED BY runs_open WHERE conversation = ? AND branch = coalesce(?, branch) "
        "AND is_open = 1 AND id != ?",
        (history, branch, but),
    ).fetchone()
    if row is not None:
        where = f"the conversation {history!r}" + ("" if branch in (None, MAIN) else f" (branch {branch!r})")
        raise Conflict(f"the run {row[0]} works on {where} already; say it to that run, or interrupt it", run=row[0])


def id_of(connection: sqlite3.Connection, message: int) -> str:
    """Return the id of a message."""
    return str(connection.execute("SELECT id FROM messages WHERE seq = ?", (message,)).fetchone()[0])


def add_messages(
    connection: sqlite3.Connection,
    history: str,
    place: Place,
    bodies: Sequence[bytes],
    run: str | None,
    copied: Sequence[str] = (),
) -> list[tuple[int, str]]:
    """Add messages at a place, move its branch to the last, and return their numbers and ids. A conversation or branch
    that is not there begins with them. They are at the states of the messages that are `copied`, else at their
    parent's."""
    at, parent, added = clock.microseconds(), place.parent, []
    depth, state = 0, None
    if parent is not None:
        depth, state = connection.execute("SELECT depth, state FROM messages WHERE seq = ?", (parent,)).fetchone()
    for number, body in enumerate(bodies):
        id, depth = new_id("msg"), depth + 1
        if copied:
            (state,) = connection.execute("SELECT state FROM messages WHERE id = ?", (copied[number],)).fetchone()
        parent = insert_message(connection, id, history, parent, depth, at, run, body, state)
        added.append((parent, id))
    if parent is not None:
        move_branch(connection, history, place.branch, parent, at)
        connection.execute(
            "INSERT INTO histories (id, created, changed, messages, active) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) "
            "DO UPDATE SET changed = excluded.changed, messages = histories.messages + excluded.messages",
            (history, at, at, len(bodies), place.branch),
        )
    return added


def insert_message(connection: sqlite3.Connection, *values: str | int | bytes | None) -> int:
    """Keep one message: its id, conversation, parent, depth, time, run, body and state. Return its number."""
    row = connection.execute(
        "INSERT INTO messages (id, history, parent, depth, created, run, body, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
        "RETURNING seq",
        values,
    ).fetchone()
    return int(row[0])


def move_branch(connection: sqlite3.Connection, history: str, branch: str, head: int, at: int) -> None:
    """Let a branch, which is made if need be, point at a message."""
    connection.execute(
        "INSERT INTO branches VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (history, name) DO UPDATE SET head = excluded.head, changed = excluded.changed",
        (history, branch, head, at, at),
    )


def rename_branch(connection: sqlite3.Connection, history: str, branch: str, new: str) -> None:
    """Give a branch another name. Raises `Conflict` for one that is taken."""
    taken = connection.execute("SELECT 1 FROM branches WHERE history = ? AND name = ?", (history, new)).fetchone()
    if taken is not None and new != branch:
        raise Conflict(f"the conversation {history!r} has a branch {new!r} already")
    for table, key, column in (
        ("branches", "history", "name"),
        ("histories", "id", "active"),
        ("runs", "conversation", "branch"),
    ):
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ? AND {column} = ?", (new, history, branch))


def delete_history(connection: sqlite3.Connection, history: str) -> bool:
    """Forget a conversation with its runs; return whether there was one. Raises `Conflict`."""
    check_idle(connection, history)
    runs = "(SELECT id FROM runs WHERE conversation = ?)"
    for table in ("steps", "calls", "inner_calls", "inbox", "recordings"):
        connection.execute(f"DELETE FROM {table} WHERE run IN {runs}", (history,))
    connection.execute("DELETE FROM summaries WHERE until IN (SELECT seq FROM messages WHERE history = ?)", (history,))
    states = connection.execute(
        "SELECT DISTINCT state FROM messages WHERE history = ? AND state IS NOT NULL", (history,)
    ).fetchall()
    for table, column in (
        ("runs", "conversation"),
        ("messages", "history"),
        ("branches", "history"),
        ("texts", "history"),
    ):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (history,))
    drop_states(connection, [state for (state,) in states])
    return connection.execute("DELETE FROM histories WHERE id = ?", (history,)).rowcount > 0


# --- states -------------------------------------------------------------------------------------------


def read_states(connection: sqlite3.Connection, message: int) -> tuple[int, dict[str, JsonValue]]:
    """Return the number of the state at a message, 0 for none yet, and what each agent remembers there."""
    row = connection.execute(
        "SELECT s.seq, s.body FROM messages m JOIN states s ON s.seq = m.state WHERE m.seq = ?", (message,)
    ).fetchone()
    return (0, {}) if row is None else (row[0], json.loads(row[1]))


def write_states(connection: sqlite3.Connection, message: int, agents: dict[str, JsonValue]) -> None:
    """Keep what each agent remembers at a message; those that were added behind it are not changed."""
    (old,) = connection.execute("SELECT state FROM messages WHERE seq = ?", (message,)).fetchone()
    body = json.dumps(agents, ensure_ascii=False)
    (new,) = connection.execute("INSERT INTO states (body) VALUES (?) RETURNING seq", (body,)).fetchone()
    connection.execute("UPDATE messages SET state = ? WHERE seq = ?", (new, message))
    drop_states(connection, [old])


def drop_states(connection: sqlite3.Connection, states: Sequence[int | None]) -> None:
    """Forget those of the states at which no message is."""
    connection.executemany(
        "DELETE FROM states WHERE seq = ? AND NOT EXISTS (SELECT 1 FROM messages WHERE state = states.seq)",
        [(state,) for state in states],
    )
