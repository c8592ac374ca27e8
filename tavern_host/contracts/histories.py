"""Conversations that are kept: the `chatHistory` service."""

from __future__ import annotations

from datetime import datetime

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.llm import ChatMessage
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model


class HistoryMessage(Model):
    """A message of a conversation; `parent_id` is the one that it follows, None for the first. `run_id` is the run of
    an agent, or of a workflow, that it came from."""

    id: str
    parent_id: str | None = None
    message: ChatMessage
    created_at: datetime
    run_id: str | None = None


class HistorySummary(Model):
    """What a list of conversations shows."""

    id: str
    messages: int
    created_at: datetime
    changed_at: datetime


class ChatHistory(ServiceInterface, name="chatHistory"):
    """Keeps conversations: messages that only grow, each with its parent."""

    @reads
    async def list_histories(self, *, limit: int = 50, offset: int = 0) -> list[HistorySummary]:
        """Return conversations, the latest changed first."""

    @reads
    async def load(self, history_id: str, *, last: int | None = None) -> list[HistoryMessage]:
        """Return the messages that lead to the latest one, oldest first, at most the `last` ones; none for a
        conversation that is not there yet."""

    @acts("chatHistory:write", "Write and delete conversations.")
    async def append(
        self,
        history_id: str,
        messages: list[ChatMessage],
        *,
        parent_id: str | None = None,
        run_id: str | None = None,
        call: CallContext | None = None,
    ) -> list[HistoryMessage]:
        """Keep messages behind `parent_id`, by default behind the latest message. They have survived the end of the
        process when this returns. Raises `Conflict` for a parent that is not there or not the latest, `InvalidInput`
        for a message that is too large."""

    @acts("chatHistory:write", "Write and delete conversations.")
    async def delete(self, history_id: str, *, call: CallContext | None = None) -> bool:
        """Forget a conversation; False where there is none."""


CHAT_HISTORY = ServiceKey(ChatHistory)
