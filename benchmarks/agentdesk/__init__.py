"""A language model that takes no time: it asks for the time of day once, then replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from tavern_host import hookimpl
from tavern_host.contracts.calls import CallContext
from tavern_llm.api.llm import LlmAdapterInfo, LlmChunk, LlmRequest, LlmResponse, LlmToolCall

REPLY = "It is late."
PAUSE = 0.2
"""Seconds between two pieces."""


class DeskAdapter:
    """Answers at once."""

    def __init__(self, options: dict[str, Any], context: Any) -> None:
        self._calls = 0
        self._pieces = int(options.get("pieces", 0))

    async def complete(self, request: LlmRequest, call: CallContext) -> LlmResponse:
        """Return a call after a person's message, and the reply after a result."""
        if self._pieces or request.messages[-1].role == "tool":
            return LlmResponse(text=REPLY, model="desk", finish_reason="stop")
        self._calls += 1
        made = LlmToolCall(id=f"call_{self._calls}", name="system_get_current_time", arguments="{}")
        return LlmResponse(text="", model="desk", tool_calls=[made], finish_reason="tool_calls")

    async def stream(self, request: LlmRequest, call: CallContext) -> AsyncIterator[LlmChunk]:
        """Yield the answer as one piece, and whole; with `pieces` so many moments by the clock before that."""
        answer = await self.complete(request, call)
        for _ in range(self._pieces):
            await asyncio.sleep(PAUSE)
            yield LlmChunk(text=f"{time.perf_counter()}\n")
        if answer.text:
            yield LlmChunk(text=answer.text)
        yield LlmChunk(response=answer)

    async def close(self) -> None:
        """Hold nothing."""


@hookimpl
def tavern_register_llm_adapters() -> list[LlmAdapterInfo]:
    """Return the adapter."""
    return [LlmAdapterInfo(name="desk", handler=DeskAdapter, network=False)]
