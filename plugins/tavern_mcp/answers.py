"""What a server asks while it is asked itself: a language model's answer, or something of a person.

A person is asked by a call that waits for an approval: who approves it decides, and may say something else.
"""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext
from pydantic import JsonValue, ValidationError

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import LimitReached, ServiceUnavailable, TavernError
from tavern_llm.api.llm import LLM, ChatMessage, LlmRequest
from tavern_mcp.declarations import Declared
from tavern_mcp.definitions import ANSWER, clean
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.tools import TOOL_MANAGER

_MOST = 4
"""How many questions of one server are open at once."""
_MOST_TEXT = 100_000
_LOOK = 1.0


class Answers:
    """Answers one server. `calls` are what it is asked at this moment, and on whose behalf it asks; `ended` is set when
    the connection is lost."""

    def __init__(self, context: PluginContext, declared: Declared) -> None:
        self.calls: list[CallContext] = []
        self.ended = asyncio.Event()
        self._context = context
        self._declared = declared
        self._open = 0

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Answer by a language model, with the rights and the budget of who called the tool."""
        try:
            call = self._caller()
            messages = [ChatMessage(role=one.role, content=_text(one.content_as_list)) for one in params.messages]
            if params.system_prompt:
                messages.insert(0, ChatMessage(role="system", content=params.system_prompt))
            if sum(len(one.content) for one in messages) > _MOST_TEXT:
                raise LimitReached(f"a question to a model has at most {_MOST_TEXT:,} characters")
            if self._declared.server.sampling == "ask":
                shown: JsonValue = [one.to_json() for one in messages]
                await self._person("asks a language model", call, {"messages": shown}, {})
            most = min(params.max_tokens, int(self._context.settings.get("samplingTokens", 2000)))
            parameters: dict[str, JsonValue] = {"max_tokens": most}
            parameters |= {"temperature": params.temperature} if params.temperature is not None else {}
            parameters |= {"stop": list(params.stop_sequences)} if params.stop_sequences else {}
            request = LlmRequest(messages=messages, parameters=parameters)
            answer = await self._context.services.get(LLM).complete(request, call=call.child())
        except TavernError as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=error.message)
        content = types.TextContent(type="text", text=answer.text)
        return types.CreateMessageResult(role="assistant", content=content, model=answer.model, stop_reason="endTurn")

    async def elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask a person, who answers in the arguments of what is approved."""
        try:
            if not isinstance(params, types.ElicitRequestFormParams):
                return types.ElicitResult(action="decline")  # nobody is sent to an address that a server names
            schema: dict[str, Any] = dict(params.requested_schema)
            properties = schema.get("properties", {})
            fields = properties if isinstance(properties, dict) else {}
            start = {key: one["default"] for key, one in fields.items() if isinstance(one, dict) and "default" in one}
            answer = await self._person(clean(params.message, 2000), self._caller(), {"schema": schema}, start)
        except ServiceUnavailable:
            return types.ElicitResult(action="decline")
        except TavernError as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=error.message)
        if not isinstance(answer, dict) or any(key not in answer for key in schema.get("required", ())):
            return types.ElicitResult(action="cancel")
        try:
            return types.ElicitResult(action="accept", content={key: answer[key] for key in answer if key in fields})
        except ValidationError:  # of values the protocol carries plain ones only
            return types.ElicitResult(action="cancel")

    def _caller(self) -> CallContext:
        """Return on whose behalf a server asks. Raises `ServiceUnavailable` where that cannot be said."""
        whose = {str(call.principal): call for call in self.calls}
        if len(whose) != 1:
            raise ServiceUnavailable("a server is answered while it carries out calls of one caller, and of no other")
        return next(iter(whose.values()))

    async def _person(
        self, message: str, call: CallContext, about: dict[str, JsonValue], answer: JsonValue
    ) -> JsonValue:
        """Return the answer of a person. Raises `ServiceUnavailable` where they decline."""
        if self._open >= _MOST:
            raise LimitReached(f"{_MOST} questions of the MCP server {self._declared.name} wait for a person already")
        self._open += 1
        ended = self.ended
        tools = self._context.services.get(TOOL_MANAGER)
        arguments: dict[str, JsonValue] = {
            "server": self._declared.name,
            "message": message,
            "for": str(call.principal),
            "about": about,
            "answer": answer,
        }
        task_id: str | None = None
        try:
            result = await tools.call(ToolCallRequest(tool_id=ANSWER, arguments=arguments))
            task_id = result.task_id
            while task_id is not None:
                if ended.is_set():
                    raise ServiceUnavailable("the server is gone")
                task = await tools.task(task_id, wait=_LOOK)
                if task.status.is_final:
                    task_id = None
                    if task.result is not None:
                        result = task.result
            if result.status != "done":
                raise ServiceUnavailable("a person said no, or nothing in time")
            return result.structured
        finally:
            self._open -= 1
            if task_id is not None:
                await asyncio.shield(tools.cancel_task(task_id))


def _text(content: list[Any]) -> str:
    return "\n".join(one.text if isinstance(one, types.TextContent) else f"[{one.type}]" for one in content)
