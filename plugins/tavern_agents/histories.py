"""The `chatHistory` service: hands over to the store."""

from __future__ import annotations

from tavern_agents.store import store_of
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.histories import ChatHistory, HistoryMessage, HistorySummary
from tavern_host.contracts.llm import ChatMessage

MAX_ID = 200


class Histories(ChatHistory):
    """The conversations of the project."""

    def __init__(self, context: PluginContext) -> None:
        self._store = store_of(context)

    async def list_histories(self, *, limit: int = 50, offset: int = 0) -> list[HistorySummary]:
        """Return conversations, the latest changed first."""
        return await self._store.histories(max(1, min(limit, 1000)), max(0, offset))

    async def load(self, history_id: str, *, last: int | None = None) -> list[HistoryMessage]:
        """Return the messages of a conversation, oldest first."""
        return await self._store.messages(history_id, None if last is None else max(0, last))

    async def append(
        self,
        history_id: str,
        messages: list[ChatMessage],
        *,
        parent_id: str | None = None,
        run_id: str | None = None,
        call: CallContext | None = None,
    ) -> list[HistoryMessage]:
        """Keep messages. Raises `Conflict`, `InvalidInput`."""
        if not history_id.strip() or len(history_id) > MAX_ID:
            raise InvalidInput(f"the id of a conversation must have 1 to {MAX_ID} characters")
        return await self._store.append(history_id, messages, parent_id, run_id)

    async def delete(self, history_id: str, *, call: CallContext | None = None) -> bool:
        """Forget a conversation. Raises `Conflict` while an agent works on it."""
        return await self._store.delete(history_id)
