"""A workflow as a model: its interface takes the message or all of them, and gives a text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import (
    Conflict,
    DeadlineExceeded,
    LimitReached,
    NotFound,
    PermissionDenied,
    PluginFailure,
    TavernError,
)
from tavern_llm.api.llm import LlmChunk, LlmResponse
from tavern_openai.errors import wrong
from tavern_openai.reading import Asked, refuse_tools, require_text
from tavern_tools.api.toolcalls import ToolCallRequest, ToolErrorType, ToolResult, ToolScope
from tavern_tools.api.tools import TOOL_MANAGER

TEXTS = ("user_message", "message", "prompt", "question", "query", "text", "input")
"""Inputs that take the last message, the first of them that there is; else the only one that must be given."""

_CONVERSATIONS = ("conversation_id", "conversation", "history_id")
_ANSWERS = ("response", "text", "answer", "reply", "output")
_WAIT = 20.0
_ERRORS: dict[ToolErrorType, type[TavernError]] = {
    ToolErrorType.TOOL_NOT_FOUND: NotFound,
    ToolErrorType.PERMISSION_DENIED: PermissionDenied,
    ToolErrorType.VETOED: PermissionDenied,
    ToolErrorType.SECURITY: PermissionDenied,
    ToolErrorType.RATE_LIMITED: LimitReached,
    ToolErrorType.TIMEOUT: DeadlineExceeded,
}


class WorkflowTarget:
    """A workflow, which is called as the tool `workflow:ID`: by those who may call that, and within its limits."""

    def __init__(self, asked: Asked, name: str, context: PluginContext, call: CallContext) -> None:
        refuse_tools(asked, f"the workflow {name!r}")
        self._asked, self._id, self._call = asked, f"workflow:{name}", call
        self._tools = context.services.get(TOOL_MANAGER)

    async def whole(self) -> LlmResponse:
        return self._answer(_text((await self._called(streams=False)).structured))

    async def stream(self) -> AsyncIterator[LlmChunk]:
        result = await self._called(streams=True)
        handle = next((part.uri for part in result.content if part.type == "stream"), None)
        if handle is None:
            text = _text(result.structured)
            yield LlmChunk(text=text)
        else:
            text = ""
            try:
                async for piece in self._items(handle):
                    text += piece
                    yield LlmChunk(text=piece)
            finally:
                await self._tools.leave_stream(handle, call=self._call)
        yield LlmChunk(response=self._answer(text))

    async def _items(self, handle: str) -> AsyncIterator[str]:
        while True:
            read = await self._tools.read_stream(handle, wait=_WAIT, call=self._call)
            for item in read.items:
                yield _text(item["item"] if isinstance(item, dict) and item.keys() == {"output", "item"} else item)
            if read.error is not None:
                raise PluginFailure(f"{self._id} broke off: {read.error}")
            if read.finished:
                return

    async def _called(self, *, streams: bool) -> ToolResult:
        """Return the workflow's result. Raises the error that it failed with, and `Conflict` where a person has to
        approve it first."""
        request = ToolCallRequest(tool_id=self._id, arguments=await self._arguments())
        scope = ToolScope(allowed=[self._id], streams=streams)
        result = await self._tools.call(request, scope=scope, call=self._call)
        if result.status == "awaiting_approval":
            raise Conflict(f"{self._id} waits for a person to approve the call {result.task_id}")
        if result.status == "pending" and result.task_id is not None:
            result = await self._ended(result.task_id)
        if result.error is not None:
            if result.error.type is ToolErrorType.PARAMETER_VALIDATION:
                raise wrong(result.error.message, "messages")
            raise _ERRORS.get(result.error.type, PluginFailure)(result.error.message)
        return result

    async def _ended(self, task_id: str) -> ToolResult:
        try:
            while not (task := await self._tools.task(task_id, wait=_WAIT, call=self._call)).status.is_final:
                pass
        except asyncio.CancelledError:
            await asyncio.shield(self._tools.cancel_task(task_id, call=self._call))
            raise
        if task.result is None:
            raise PluginFailure(f"{self._id} ended as {task.status}")
        return task.result

    async def _arguments(self) -> dict[str, JsonValue]:
        """Return the values of the workflow's inputs. Raises `NotFound`, and `InvalidInput` where none takes a text."""
        schema: Any = (await self._tools.get(self._id)).parameters
        inputs = list(schema.get("properties", {}))
        needed = [name for name in schema.get("required", ()) if name not in _CONVERSATIONS]
        found: dict[str, JsonValue] = {}
        if self._asked.conversation is not None:
            found = {name: self._asked.conversation for name in _CONVERSATIONS if name in inputs}
        if "messages" in inputs:
            return {**found, "messages": [message.to_json() for message in self._asked.messages]}
        known = [name for name in TEXTS if name in inputs]
        named = known[:1] or (needed if len(needed) == 1 else inputs if len(inputs) == 1 else [])
        if not named:
            takes = ", ".join(inputs) or "nothing"
            raise wrong(f"{self._id} takes {takes}: no input of these is for messages or a message", "model")
        return {**found, named[0]: require_text(self._asked.last)}

    def _answer(self, text: str) -> LlmResponse:
        return LlmResponse(text=text, model=self._id, finish_reason="stop")


def _text(value: JsonValue) -> str:
    """Return a result as text: of several outputs the one that is named like an answer."""
    if isinstance(value, dict):
        value = next((value[name] for name in _ANSWERS if isinstance(value.get(name), str | dict)), value)
    if isinstance(value, dict) and isinstance(value.get("text"), str):  # the whole answer of a model
        value = value["text"]
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
