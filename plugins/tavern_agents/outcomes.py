"""How a run of an agent ended: as its caller hears it, and as a span says it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tavern_agents.api.agents import AgentReply, AgentRun, AgentStatus
from tavern_agents.store import AgentStore
from tavern_llm.api.llm import ChatMessage, LlmUsage
from tavern_llm.api.spans import of_usage

_OUTCOMES = {AgentStatus.REPLY: "reply", AgentStatus.LIMIT: "limit", AgentStatus.INTERRUPTED: "interrupted"}


class End(Exception):
    """A run has ended: how, with what text, and why, and with these last messages."""

    def __init__(
        self, status: AgentStatus, text: str = "", reason: str | None = None, messages: Sequence[ChatMessage] = ()
    ) -> None:
        super().__init__(reason)
        self.status, self.text, self.reason, self.messages = status, text, reason, messages


async def reply_of(store: AgentStore, run_id: str) -> AgentReply:
    """Return how a run ended, with what it added to its conversation. Raises `NotFound`."""
    run = (await store.run(run_id)).run
    messages, results = await asyncio.gather(store.messages(run), store.results(run_id))
    return AgentReply.model_validate(
        {
            "agent_run_id": run.id,
            "profile_id": run.profile_id,
            "conversation_id": run.conversation_id,
            "outcome": _OUTCOMES.get(run.status, "error"),
            "text": run.text,
            "steps": run.usage.steps,
            "tool_results": results,
            "history": messages,
            "usage": run.usage,
            "error": run.reason,
        }
    )


def span_of(run: AgentRun) -> dict[str, Any]:
    """Return the attributes that a span has about the end of a run."""
    failed = run.status in (AgentStatus.ERROR, AgentStatus.INTERRUPTED)
    usage = LlmUsage(
        prompt_tokens=run.usage.prompt_tokens or None, completion_tokens=run.usage.completion_tokens or None
    )
    status = run.status.value
    return {**of_usage(usage), "tavern.run.status": status, "error.type": status if failed else None}
