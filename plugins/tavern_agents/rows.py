"""Rows of the agents' database, as the store reads and writes them within a transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from tavern_agents.api.agents import AgentRequest, AgentRun, AgentStatus, AgentTrace, AgentUsage
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import ChatMessage
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult

if TYPE_CHECKING:
    import sqlite3

MAX_MESSAGE = 4 << 20
"""The largest message that is kept, in bytes of JSON."""

RUN = "id, profile, conversation, branch, parent, status, started, finished, usage, text, reason, entry"
"""The columns of a run, as `read_run` takes them."""


_MESSAGES = TypeAdapter(list[ChatMessage])
_STEPS = TypeAdapter(list[AgentTrace])


class RunEntry(Model):
    """What a run was asked for, and on whose behalf; `first` is the message that it works on. `is_replay`: it plays a
    recording, and is not resumed."""

    request: AgentRequest
    call: CallContext
    first: str = ""
    is_replay: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """A message as it is kept; `seq` orders all messages of all conversations."""

    seq: int
    id: str
    message: ChatMessage
    run_id: str | None = None


@dataclass(eq=False)
class InnerCall:
    """A call that a deliberation made itself, or a call while it ran, when the run stood at `message`: the task that it
    waits as, and its result. `number` is 0 until it is kept."""

    message: int
    request: ToolCallRequest
    number: int = 0
    task: str | None = None
    result: ToolResult | None = None
    expected: tuple[str, ToolResult] | None = None
    """What a replay expects, and how it is called."""


@dataclass
class KeptRun:
    """A run as it is kept, and the calls of its last message: by place, the task that they wait as, and the result.
    `tasks` are those of all its calls."""

    run: AgentRun
    entry: RunEntry
    calls: dict[int, tuple[str | None, ToolResult | None]] = field(default_factory=dict)
    tasks: set[str] = field(default_factory=set)


def insert_run(connection: sqlite3.Connection, run: AgentRun, head: int | None, entry: bytes, owner: str) -> None:
    connection.execute(
        "INSERT INTO runs (id, profile, conversation, branch, head, parent, status, is_open, owner, started, usage, "
        "text, entry) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, '', ?)",
        (
            run.id,
            run.profile_id,
            run.conversation_id,
            run.branch,
            head,
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
    query = "SELECT run, task FROM calls UNION ALL SELECT run, task FROM inner_calls"
    tasks = connection.execute(f"SELECT task FROM ({query}) AS made WHERE run = ? AND task IS NOT NULL", (run_id,))
    kept.tasks = {task for (task,) in tasks}
    return kept


def read_inner_calls(connection: sqlite3.Connection, run_id: str, since: int = 0) -> list[InnerCall]:
    """Return the inner calls of a run that were made since it stood at a message."""
    query = "SELECT message, request, seq, task, result FROM inner_calls WHERE run = ? AND message >= ? ORDER BY seq"
    return [
        InnerCall(
            message,
            ToolCallRequest.model_validate_json(request),
            number,
            task,
            None if result is None else ToolResult.model_validate_json(result),
        )
        for message, request, number, task, result in connection.execute(query, (run_id, since))
    ]


def keep_steps(connection: sqlite3.Connection, run_id: str, steps: Sequence[AgentTrace]) -> None:
    """Keep steps of a run; those that could not be kept before are among them."""
    keep = "INSERT INTO steps VALUES (?, ?, ?) ON CONFLICT (run, seq) DO UPDATE SET body = excluded.body"
    if steps:
        connection.execute(keep, (run_id, steps[0].seq, _STEPS.dump_json(list(steps))))


def read_steps(connection: sqlite3.Connection, run_id: str, after: int = 0) -> list[AgentTrace]:
    """Return the steps of a run with a number above one."""
    begins = "(SELECT coalesce(max(seq), 0) FROM steps WHERE run = ? AND seq <= ?)"
    rows = connection.execute(
        f"SELECT body FROM steps WHERE run = ? AND seq >= {begins} ORDER BY seq", (run_id, run_id, after)
    )
    found = {step.seq: step for (body,) in rows for step in _STEPS.validate_json(_listed(body))}
    return [step for seq, step in sorted(found.items()) if seq > after]


def _listed(body: bytes) -> bytes:
    """Return the steps of a row, as a list also where an earlier release has kept one by itself."""
    return body if body.startswith(b"[") else b"[" + body + b"]"


def read_run(row: Sequence[Any]) -> tuple[AgentRun, RunEntry]:
    id, profile, conversation, branch, parent, status, started, finished, usage, text, reason, body = row
    entry = RunEntry.model_validate_json(body)
    run = AgentRun(
        id=id,
        profile_id=profile,
        conversation_id=conversation,
        branch=branch,
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


def read_messages(bodies: Sequence[bytes]) -> list[ChatMessage]:
    """Return many messages, read at once."""
    return _MESSAGES.validate_json(b"[" + b",".join(bodies) + b"]")


def message_body(message: ChatMessage) -> bytes:
    body = json.dumps(message.to_json(), ensure_ascii=False, separators=(",", ":")).encode()
    if len(body) > MAX_MESSAGE:
        raise InvalidInput(f"a message of {len(body):,} bytes is too large to be kept; at most {MAX_MESSAGE:,}")
    return body


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)


def moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)
