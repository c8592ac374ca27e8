"""Makes recordings of what the store keeps of runs, and plays them in conversations that are forgotten afterwards."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from tavern_agents.api.agents import AgentLimits, AgentRequest, AgentRun
from tavern_agents.api.histories import HistoryExport
from tavern_agents.api.recordings import AgentRecording, AgentReplay, RecordedCall, RecordedDeliberation, ReplayOptions
from tavern_agents.conversation import Conversation
from tavern_agents.decision import read_decision
from tavern_agents.history_exchange import export_before, import_history
from tavern_agents.history_tree import find_message, read_kept, read_path
from tavern_agents.replay.player import Player
from tavern_agents.rows import InnerCall, read_inner_calls
from tavern_agents.store import AgentStore
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import Conflict, NotFound
from tavern_host.contracts.settings import MASK
from tavern_llm.api.llm import ChatMessage, LlmResponse
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult
from tavern_tools.api.tools import ToolManager

if TYPE_CHECKING:
    import sqlite3

_FIXED = frozenset({"role", "type", "status", "id", "toolId", "format"})
"""Keys whose values are never a secret."""

PREFIX = "replay"
"""How the ids of conversations begin in which recordings are played."""


@dataclass
class _Row:
    """A deliberation as it is kept, with all that it was given, and the results of the calls that it asked for."""

    messages: list[ChatMessage]
    texts: dict[str, Any]
    latest: list[str]
    answer: LlmResponse
    results: dict[int, ToolResult]
    inner: list[InnerCall]


async def recording_of(store: AgentStore, tools: ToolManager, run_id: str, tool_ids: list[str]) -> AgentRecording:
    """Return the recording of a run; `tool_ids` are the tools that its agent may call. Raises `NotFound`, and
    `Conflict` for a run that has not ended."""
    kept = await store.run(run_id)
    if not kept.run.status.is_final:
        raise Conflict(f"the run {run_id} has not ended")

    def work(connection: sqlite3.Connection) -> tuple[str, HistoryExport | None, list[_Row]]:
        if not (rows := _read_rows(connection, kept.run)):
            raise NotFound(f"the run {run_id} was not recorded, see the setting extensions.tavern-agents.recordRuns")
        history = kept.run.conversation_id
        [message] = read_path(connection, find_message(connection, history, kept.entry.first), 1)
        return message.message.content, export_before(connection, history, message), rows

    nothing: tuple[str, HistoryExport | None, list[_Row]] = "", None, []
    message, history, rows = await store.database.read(work, nothing)
    deliberations, calls, secrets = list[RecordedDeliberation](), list[RecordedCall](), set[str]()
    before = _Row([], {}, [], rows[0].answer, {}, [])

    async def recorded(requests: list[ToolCallRequest], results: Sequence[ToolResult | None]) -> list[RecordedCall]:
        found = list[RecordedCall]()
        for request, shown, result in zip(requests, await tools.masked(requests), results, strict=True):
            found.append(
                RecordedCall(**request.model_dump(include={"tool_id", "arguments", "protocol"}), result=result)
            )
            if MASK in (known := texts_in(shown)):
                secrets.update(texts_in(request.arguments) - known)
        return found

    for row in rows:
        pairs = zip(before.messages, row.messages, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        new = {key: text for key, text in row.texts.items() if before.texts.get(key) != text}
        made = await recorded([one.request for one in row.inner], [one.result for one in row.inner])
        about: dict[str, Any] = {"messages": row.messages[same:], "latest": row.latest, "calls": made, **new}
        deliberations.append(RecordedDeliberation(kept=same, answer=row.answer, **about))
        decision = await read_decision(tools, row.answer.message(), tool_ids, row.answer.finish_reason)
        calls += await recorded(decision.calls, [row.results.get(place) for place in range(len(decision.calls))])
        before = row
    limits = kept.entry.request.limits
    recording = AgentRecording(
        run_id=run_id,
        profile_id=kept.run.profile_id,
        message=message,
        images=kept.entry.request.images,
        history=history,
        limits=None if limits is None else limits.to_json(),
        world_state=kept.entry.request.world_state,
        deliberations=deliberations,
        calls=calls,
        status=kept.run.status.value,
        text=kept.run.text,
    )
    return AgentRecording.model_validate(_without(secrets, recording.to_json())) if secrets else recording


def texts_in(value: JsonValue) -> set[str]:
    """Return all texts in a value, apart from the keys of objects."""
    if isinstance(value, dict | list):
        return set[str]().union(*map(texts_in, value.values() if isinstance(value, dict) else value))
    return {value} if isinstance(value, str) else set()


def _without(secrets: set[str], value: Any, key: str = "") -> Any:
    """Return a recording with `MASK` for each secret, also where it stands in a text or in the JSON text of a call."""
    if isinstance(value, dict):
        return {name: _without(secrets, inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without(secrets, inner, key) for inner in value]
    if isinstance(value, str) and key not in _FIXED:
        for secret in sorted(secrets, key=len, reverse=True):
            forms = (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
            value = functools.reduce(lambda text, form: text.replace(form, MASK) if form else text, forms, value)
    return value


def _read_rows(connection: sqlite3.Connection, run: AgentRun) -> list[_Row]:
    found = connection.execute("SELECT body FROM recordings WHERE run = ? ORDER BY seq", (run.id,))
    rows = [json.loads(body) for (body,) in found]
    texts = {
        key: json.loads(body)
        for key, body in connection.execute("SELECT key, body FROM texts WHERE history = ?", (run.conversation_id,))
    }
    results: dict[int, dict[int, ToolResult]] = {}
    query = "SELECT message, place, result FROM calls WHERE run = ? AND result IS NOT NULL"
    for message, place, body in connection.execute(query, (run.id,)):
        results.setdefault(message, {})[place] = ToolResult.model_validate_json(body)
    inner = {one.number: one for one in read_inner_calls(connection, run.id)}
    kept = read_kept(connection, run.id, min((row["first"] for row in rows), default=0))
    read = list[_Row]()
    for row in rows:
        said = Conversation(texts[row["summary"]], [one for one in kept if row["first"] <= one.seq <= row["last"]])
        outside = [ChatMessage(role="user", content=text) for text in texts[row["before"]]]
        note = [ChatMessage(role="user", content=row["note"])] if row["note"] else []
        answered = next((one.seq for one in kept if one.seq > row["last"]), 0)
        read.append(
            _Row(
                messages=[*outside, *said.messages(), *note],
                texts={key: texts[row[key]] for key in ("prompts", "tools", "tools_text")},
                latest=row["latest"],
                answer=LlmResponse.model_validate(row["answer"]),
                results=results.get(answered, {}),
                inner=[inner[number] for number in row["calls"]],
            )
        )
    return read


async def play(
    store: AgentStore,
    recording: AgentRecording,
    options: ReplayOptions,
    run: Callable[[AgentRequest, Player], Awaitable[AgentRun]],
) -> AgentReplay:
    """Let `run` work on what was recorded, in a conversation of its own that is forgotten afterwards."""
    player, place = Player(recording, options), new_id(PREFIX)
    history = recording.history
    request = AgentRequest(
        profile_id=options.profile_id or recording.profile_id,
        message=recording.message,
        images=recording.images,
        conversation_id=place,
        limits=None if recording.limits is None else AgentLimits.model_validate(recording.limits),
        world_state=recording.world_state,
    )
    if history is not None:
        await store.database.write(lambda connection: import_history(connection, history, place))
    try:
        ended = await run(request, player)
    finally:
        await store.forget(place)
    player.ended(ended)
    return AgentReplay(
        run_id=recording.run_id,
        profile_id=request.profile_id,
        difference=player.difference,
        deliberations=player.deliberations,
        calls=player.calls,
        status=ended.status.value,
        text=ended.text,
    )
