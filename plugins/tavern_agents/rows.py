"""Rows of the agents' database, as the store reads and writes them within a transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tavern_host.contracts.agents import AgentRequest, AgentRun, AgentStatus, AgentUsage
from tavern_host.contracts.calls import CallContext, new_id
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.llm import ChatMessage
from tavern_host.contracts.toolcalls import ToolResult
from tavern_host.contracts.wire import Model

if TYPE_CHECKING:
    import sqlite3

MAX_MESSAGE = 4 << 20
"""The largest message that is kept, in bytes of JSON."""

RUN = "id, profile, conversation, parent, status, started, finished, usage, text, reason, entry"
"""The columns of a run, as `read_run` takes them."""


class RunEntry(Model):
    """What a run was asked for, and on whose behalf. Among the messages that it began with, `number` is the place of
    the one that it works on."""

    request: AgentRequest
    call: CallContext
    number: int


@dataclass(frozen=True)
class Kept:
    """A message as it is kept; `seq` orders all messages of all conversations."""

    seq: int
    id: str
    message: ChatMessage
    run_id: str | None = None


@dataclass
class KeptRun:
    """A run as it is kept, and the calls of its last message: by place, the task that they wait as, and the result.
    `tasks` are those of all its calls."""

    run: AgentRun
    entry: RunEntry
    calls: dict[int, tuple[str | None, ToolResult | None]] = field(default_factory=dict)
    tasks: set[str] = field(default_factory=set)


def read_latest(connection: sqlite3.Connection, history: str) -> tuple[int, str] | None:
    row: tuple[int, str] | None = connection.execute(
        "SELECT m.seq, m.id FROM histories h JOIN messages m ON m.seq = h.latest WHERE h.id = ?", (history,)
    ).fetchone()
    return row


def add_messages(
    connection: sqlite3.Connection, history: str, bodies: Sequence[bytes], run: str | None
) -> list[tuple[int, str]]:
    """Add messages behind the latest one; return their places and ids."""
    latest = read_latest(connection, history)
    parent = None if latest is None else latest[0]
    at = now()
    added = []
    for body in bodies:
        id = new_id("msg")
        parent = connection.execute(
            "INSERT INTO messages (id, history, parent, created, run, body) VALUES (?, ?, ?, ?, ?, ?)",
            (id, history, parent, at, run, body),
        ).lastrowid
        assert parent is not None
        added.append((parent, id))
    connection.execute(
        "INSERT INTO histories (id, created, changed, messages, latest) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET changed = excluded.changed, messages = messages + excluded.messages, "
        "latest = excluded.latest",
        (history, at, at, len(bodies), parent),
    )
    return added


def insert_run(connection: sqlite3.Connection, run: AgentRun, entry: str, owner: str) -> None:
    connection.execute(
        "INSERT INTO runs (id, profile, conversation, parent, status, is_open, owner, started, usage, text, entry) "
        "VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, '', ?)",
        (
            run.id,
            run.profile_id,
            run.conversation_id,
            run.parent_run_id,
            run.status.value,
            owner,
            micros(run.started_at),
            run.usage.model_dump_json(),
            entry,
        ),
    )


def read_kept_run(connection: sqlite3.Connection, run_id: str) -> KeptRun:
    row = connection.execute(f"SELECT {RUN} FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise unknown_run(run_id)
    kept = KeptRun(*read_run(row))
    calls = connection.execute(
        "SELECT place, task, result FROM calls WHERE message = (SELECT max(message) FROM calls WHERE run = ?)",
        (run_id,),
    )
    kept.calls = {
        place: (task, None if result is None else ToolResult.model_validate_json(result))
        for place, task, result in calls
    }
    tasks = connection.execute("SELECT task FROM calls WHERE run = ? AND task IS NOT NULL", (run_id,))
    kept.tasks = {task for (task,) in tasks}
    return kept


def read_run(row: Sequence[Any]) -> tuple[AgentRun, RunEntry]:
    id, profile, conversation, parent, status, started, finished, usage, text, reason, body = row
    entry = RunEntry.model_validate_json(body)
    run = AgentRun(
        id=id,
        profile_id=profile,
        conversation_id=conversation,
        parent_run_id=parent,
        status=AgentStatus(status),
        started_at=moment(started),
        finished_at=None if finished is None else moment(finished),
        usage=AgentUsage.model_validate_json(usage),
        text=text,
        reason=reason,
        trace_id=entry.call.trace_id,
    )
    return run, entry


def unknown_run(run_id: str) -> NotFound:
    return NotFound(f"there is no run {run_id!r} of an agent; `tavern agent runs` lists them", run=run_id)


def read_message(body: bytes) -> ChatMessage:
    return ChatMessage.model_validate_json(body)


def message_body(message: ChatMessage) -> bytes:
    body = json.dumps(message.to_json(), ensure_ascii=False, separators=(",", ":")).encode()
    if len(body) > MAX_MESSAGE:
        raise InvalidInput(f"a message of {len(body):,} bytes is too large to be kept; at most {MAX_MESSAGE:,}")
    return body


def now() -> int:
    return time.time_ns() // 1000


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)


def moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)
