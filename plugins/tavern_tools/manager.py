"""The provider of `toolManager`: finds, checks and carries out calls, and never raises for a failed one."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, new_id, system_call
from tavern_host.contracts.errors import NotFound, TavernError, describe, error_info
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.tools import (
    ContentPart,
    ParsedText,
    TextResult,
    ToolCallRequest,
    ToolDefinition,
    ToolError,
    ToolErrorType,
    ToolManager,
    ToolResult,
)
from tavern_tools.documentation import describe_tool, describe_unknown, tool_schema
from tavern_tools.failures import ToolFailure, failure_of, value_failure
from tavern_tools.outputs import DEFAULT_LIMIT, LIMIT, act_on
from tavern_tools.parameters import Bound
from tavern_tools.protocols import protocols_of
from tavern_tools.registry import Tool, registry_of
from tavern_tools.runners import run_tool

_BEFORE, _AFTER = "tavern_before_tool_call", "tavern_after_tool_call"


class Tools(ToolManager):
    """The tools of one host."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._registry = registry_of(context)
        self._protocols = protocols_of(context)

    async def list_tools(self) -> list[ToolDefinition]:
        """Return all tools, by id."""
        return [tool.definition for tool in (await self._registry.catalogue()).tools.values()]

    async def get(self, tool_id: str) -> ToolDefinition:
        """Return one tool. Raises `NotFound` with near names."""
        return (await self._registry.catalogue()).get(tool_id).definition

    async def describe(self, tool_ids: list[str]) -> str:
        """Return the documentation of these tools, in this order."""
        tools = (await self._registry.catalogue()).tools
        return "\n".join(
            describe_tool(tools[tool_id].definition) if tool_id in tools else describe_unknown(tool_id)
            for tool_id in tool_ids
        )

    async def schemas(self, tool_ids: list[str]) -> list[dict[str, JsonValue]]:
        """Return `{name, description, parameters}` of those of these tools that exist, in this order."""
        tools = (await self._registry.catalogue()).tools
        return [tool_schema(tools[tool_id].definition) for tool_id in tool_ids if tool_id in tools]

    async def parse_text(self, text: str, *, protocols: list[str] | None = None) -> ParsedText:
        """Return the calls in `text`. Raises `InvalidInput` for a protocol that nobody registered."""
        catalogue = await self._registry.catalogue()
        return await self._protocols.parse(text, protocols, catalogue.parameter_names)

    async def call_text(
        self, text: str, *, allowed: list[str] | None = None, call: CallContext | None = None
    ) -> TextResult:
        """Parse `text` and carry out its calls in order; see the interface."""
        parsed = await self.parse_text(text)
        return TextResult(parsed=parsed, results=await self._carry_out_all(parsed.calls, allowed, call))

    async def call_outputs(
        self, outputs: dict[str, JsonValue], *, call: CallContext | None = None
    ) -> dict[str, JsonValue]:
        """Carry out the calls in a run's outputs; see the interface."""
        return await act_on(
            outputs,
            parse=self.parse_text,
            carry_out=lambda calls: self._carry_out_all(calls, None, call),
            limit=int(self._context.settings.get(LIMIT, DEFAULT_LIMIT)),
        )

    async def _carry_out_all(
        self, calls: list[ToolCallRequest], allowed: list[str] | None, call: CallContext | None
    ) -> list[ToolResult]:
        """Return the results of calls, one for each that was begun."""
        results: list[ToolResult] = []
        for block in blocks(calls):
            for request in block:
                if allowed is None or request.tool_id in allowed:
                    result = await self.call(request, call=call)
                else:
                    result = _failed(request, _not_allowed(request.tool_id, allowed))
                results.append(result)
                if result.status == "error" and request.on_error == "stop":
                    break
        return results

    async def call(self, request: ToolCallRequest, *, call: CallContext | None = None) -> ToolResult:
        """Validate and carry out one call; publishes `TOOL_CALL_UPDATE` when it begins and when it ends."""
        context = call or system_call(self._context.project.id)
        call_id = new_id("toolcall")
        began = time.perf_counter()
        self._publish(call_id, request, context, status="running")
        try:
            result = await self._attempt(request, context)
        except asyncio.CancelledError:
            gone = ToolFailure(ToolErrorType.INTERRUPTED, "the call was cancelled")
            self._report(call_id, _failed(request, gone), request, context)
            raise
        result = result.model_copy(update={"duration_ms": round((time.perf_counter() - began) * 1000, 3)})
        self._report(call_id, result, request, context)
        return result

    # --- one call, step by step -----------------------------------------------------------------------

    async def _attempt(self, request: ToolCallRequest, call: CallContext) -> ToolResult:
        coercions: list[str] = []
        try:
            tool = await self._find(request.tool_id)
            bound = _bind(tool, request.arguments, text=request.protocol is not None)
            coercions = bound.coercions
            request = request.model_copy(update={"arguments": bound.arguments})
            request = await self._asked_before(tool, request, call)
        except Exception as error:
            return _failed(request, self._failure(error), coercions)
        try:
            structured = await self._carry_out(tool, request, call)
        except Exception as error:
            result = _failed(request, self._failure(error), coercions)
        else:
            result = _done(request, structured, coercions)
        return await self._asked_after(result, request, call)

    async def _find(self, tool_id: str) -> Tool:
        try:
            tool = (await self._registry.catalogue()).get(tool_id)
        except NotFound as error:
            raise ToolFailure(ToolErrorType.TOOL_NOT_FOUND, error.message) from None
        if tool.lack is not None:
            message = f"{tool_id} cannot be called now: {tool.lack.reason}"
            raise ToolFailure(tool.lack.type, message, unavailable=tool.lack.reason)
        return tool

    async def _asked_before(self, tool: Tool, request: ToolCallRequest, call: CallContext) -> ToolCallRequest:
        if not self._context.hooks.implemented(_BEFORE):
            return request
        answer = await self._context.hooks.filter(_BEFORE, request, call=call)
        if answer.arguments == request.arguments:
            return request
        bound = _bind(tool, answer.arguments)
        return request.model_copy(update={"arguments": bound.arguments})

    async def _carry_out(self, tool: Tool, request: ToolCallRequest, call: CallContext) -> JsonValue:
        timeout = tool.definition.implementation.timeout
        child = call.child(timeout=None if timeout is None else timeout / 1000)
        timer = asyncio.timeout(child.remaining())
        try:
            async with timer:
                result = await run_tool(self._context, tool, request.arguments, child)
        except TimeoutError:
            if not timer.expired():
                raise
            limit = f"its limit of {timeout:g} ms" if timeout is not None else "the caller's deadline"
            message = f"{tool.definition.id} did not end within {limit}"
            raise ToolFailure(ToolErrorType.TIMEOUT, message) from None
        problems = tool.output.problems(result) if tool.output is not None else []
        if problems:
            what = f"the result of {tool.definition.id} is not what the tool declares"
            raise value_failure(ToolErrorType.OUTPUT, what, problems)
        return result

    async def _asked_after(self, result: ToolResult, request: ToolCallRequest, call: CallContext) -> ToolResult:
        if not self._context.hooks.implemented(_AFTER):
            return result
        try:
            answer = await self._context.hooks.filter(_AFTER, result, request=request, call=call)
        except TavernError as error:
            return _failed(request, failure_of(error.info), result.coercions)
        return answer.model_copy(update={"tool_id": result.tool_id, "index": result.index, "block": result.block})

    def _failure(self, error: Exception) -> ToolFailure:
        if isinstance(error, ToolFailure):
            return error
        if not isinstance(error, TavernError):
            self._context.log.error("a tool call failed: %s", describe(error), exc_info=error)
        return failure_of(error_info(error))

    # --- what the world is told -----------------------------------------------------------------------

    def _report(self, call_id: str, result: ToolResult, request: ToolCallRequest, call: CallContext) -> None:
        error = {} if result.error is None else {"error": result.error.to_json()}
        self._publish(call_id, request, call, status=result.status, durationMs=result.duration_ms, **error)

    def _publish(self, call_id: str, request: ToolCallRequest, call: CallContext, **more: JsonValue) -> None:
        about = {"callId": call_id, "toolId": request.tool_id, "index": request.index, "caller": str(call.principal)}
        known = {"requestId": request.request_id, "runId": call.run_id, "traceId": call.trace_id}
        payload = {**about, **{key: value for key, value in known.items() if value is not None}, **more}
        self._context.events.publish("TOOL_CALL_UPDATE", payload)


def blocks(calls: list[ToolCallRequest]) -> Iterator[list[ToolCallRequest]]:
    """Yield the calls of each block of action text."""
    for _, block in itertools.groupby(calls, key=lambda request: (request.protocol, request.block)):
        yield list(block)


def _bind(tool: Tool, arguments: dict[str, JsonValue], *, text: bool = False) -> Bound:
    bound = tool.parameters.bind(arguments, text=text)
    if bound.problems:
        what = f"the arguments of {tool.definition.id} are not right"
        raise value_failure(ToolErrorType.PARAMETER_VALIDATION, what, bound.problems)
    return bound


def _not_allowed(tool_id: str, allowed: list[str]) -> ToolFailure:
    message = f'the tool "{tool_id}" is not one of those that may be called here{did_you_mean(tool_id, allowed)}'
    return ToolFailure(ToolErrorType.PERMISSION_DENIED, message, allowed=list(allowed))


def _done(request: ToolCallRequest, structured: JsonValue, coercions: list[str]) -> ToolResult:
    text = structured if isinstance(structured, str) else json.dumps(structured, ensure_ascii=False)
    return ToolResult(
        tool_id=request.tool_id,
        index=request.index,
        block=request.block,
        status="done",
        content=[ContentPart(type="text", text=text)],
        structured=structured,
        coercions=coercions,
    )


def _failed(request: ToolCallRequest, failure: ToolFailure, coercions: list[str] | None = None) -> ToolResult:
    error = ToolError(
        type=failure.type,
        message=failure.message,
        tool_id=request.tool_id,
        index=request.index,
        details=failure.details,
    )
    return ToolResult(
        tool_id=request.tool_id,
        index=request.index,
        block=request.block,
        status="error",
        content=[ContentPart(type="text", text=f"{error.type}: {error.message}")],
        error=error,
        coercions=coercions or [],
    )
