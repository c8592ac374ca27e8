"""How a run of an agent ended: as its caller hears it, and as a span says it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from tavern_agents.api.agents import AgentReply, AgentRun, AgentStatus, TraceKind
from tavern_agents.store import AgentStore
from tavern_llm.api.llm import ChatMessage, LlmUsage
from tavern_llm.api.spans import of_usage
from tavern_tools.api.toolcalls import ToolResult

_OUTCOMES: dict[AgentStatus, Literal["reply", "limit", "interrupted"]] = {
    AgentStatus.REPLY: "reply",
    AgentStatus.LIMIT: "limit",
    AgentStatus.INTERRUPTED: "interrupted",
}


class End(Exception):
    """A run has ended: how, with what text, and why, and with these last messages."""

    def __init__(
        self, status: AgentStatus, text: str = "", reason: str | None = None, messages: Sequence[ChatMessage] = ()
    ) -> None:
        super().__init__(reason)
        self.status, self.text, self.reason, self.messages = status, text, reason, messages


async def reply_of(store: AgentStore, run_id: str, known: AgentReply | None = None) -> AgentReply:
    """Return how a run ended, with what it added to its conversation, where that is not `known`. Raises `NotFound`."""
    if known is not None:
        return known
    run = (await store.run(run_id)).run
    return reply_from(run, *await asyncio.gather(store.messages(run), store.results(run_id)))


def reply_from(run: AgentRun, messages: list[ChatMessage], results: list[ToolResult]) -> AgentReply:
    """Return how a run ended that added these messages, and whose calls had these results."""
    return AgentReply(
        agent_run_id=run.id,
        profile_id=run.profile_id,
        conversation_id=run.conversation_id,
        outcome=_OUTCOMES.get(run.status, "error"),
        text=run.text,
        steps=run.usage.steps,
        tool_results=results,
        history=messages,
        usage=run.usage,
        error=run.reason,
    )


def traced_end(status: AgentStatus, text: str, reason: str | None) -> tuple[TraceKind, str]:
    """Return the kind and the text of the step that says how a run ended."""
    said = {AgentStatus.REPLY: text, AgentStatus.LIMIT: f"Stopped: {reason}"}.get(status, reason or "")
    return _OUTCOMES.get(status, "error"), said


def span_of(run: AgentRun) -> dict[str, Any]:
    """Return the attributes that a span has about the end of a run."""
    failed = run.status in (AgentStatus.ERROR, AgentStatus.INTERRUPTED)
    usage = LlmUsage(
        prompt_tokens=run.usage.prompt_tokens or None, completion_tokens=run.usage.completion_tokens or None
    )
    status = run.status.value
    return {**of_usage(usage), "tavern.run.status": status, "error.type": status if failed else None}
