"""The provider of `toolManager`: knows which part does what, and does nothing itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

from pydantic import JsonValue

from tavern_host.common.redaction import masked
from tavern_host.context import PluginContext
from tavern_host.contracts.accounts import SettledWork, WorkFilter
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.services import gives_new, takes_shared
from tavern_host.contracts.tools import ToolDefinition
from tavern_tools import State
from tavern_tools.api.protocols import ActionProtocolInfo, ParseEvent
from tavern_tools.api.toolcalls import (
    ParsedText,
    StreamItems,
    TaskFilter,
    TextResult,
    ToolCallRequest,
    ToolFeedback,
    ToolResult,
    ToolScope,
    ToolTask,
)
from tavern_tools.api.tools import ExpandedPrompt, ToolFilter, ToolManager, ToolStatistics
from tavern_tools.calls import chains
from tavern_tools.calls.caller import Caller
from tavern_tools.calls.runners import Runners
from tavern_tools.catalog.documentation import describe_tool, describe_unknown, tool_schema
from tavern_tools.catalog.registry import Tool
from tavern_tools.protocols.feedback import feedback
from tavern_tools.protocols.native import aliases, native_schemas, with_aliases
from tavern_tools.protocols.prompt_macros import PromptMacros
from tavern_tools.protocols.run_outputs import DEFAULT_LIMIT, LIMIT, act_on

MAX_WAIT = 60.0
"""How many seconds a read of a stream waits at most."""


class Tools(ToolManager):
    """The tools of one host."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        state = context.own(State)
        self._registry, self._protocols, self._streams = state.registry, state.protocols, state.streams
        self._macros = PromptMacros(context)
        self._caller = Caller(context, self._registry, Runners(context, self._streams))
        state.manager = self

    async def adopt_tasks(self) -> None:
        """Look after the tasks that are left over from before, from now on."""
        await self._caller.tasks.adopt_tasks()

    async def leave_tasks(self) -> None:
        """Leave the tasks to the next host."""
        await self._caller.tasks.close()

    async def end_work(self, which: WorkFilter, by: CallContext) -> list[SettledWork]:
        """End the tasks and calls that a filter means."""
        return await self._caller.end_work(which, by)

    async def close(self) -> None:
        """End tasks and streams."""
        await self._caller.tasks.close()
        await self._caller.statistics.close()
        await self._streams.close()

    # --- tools ----------------------------------------------------------------------------------------

    async def list_tools(self, filter: ToolFilter | None = None) -> list[ToolDefinition]:
        """Return the tools that fit, by id."""
        return (await self._registry.catalog()).listed(filter)

    async def get(self, tool_id: str) -> ToolDefinition:
        """Return one tool. Raises `NotFound` with near names."""
        return (await self._registry.get(tool_id)).definition

    async def describe(self, tool_ids: list[str]) -> str:
        """Return the documentation of these tools, in this order."""
        catalog = await self._registry.catalog()
        found = [(tool_id, catalog.find(tool_id)) for tool_id in tool_ids]
        return "\n".join(describe_tool(tool.definition) if tool else describe_unknown(name) for name, tool in found)

    async def statistics(self, tool_ids: list[str] | None = None) -> dict[str, ToolStatistics]:
        """Return the counts of calls by tool, with their outcomes and times; see the interface."""
        return await self._caller.statistics.of(tool_ids)

    async def schemas(self, tool_ids: list[str]) -> list[dict[str, JsonValue]]:
        """Return `{name, description, parameters}` of those of these tools that exist, in this order."""
        return [tool_schema(tool) for tool in await self._found(tool_ids)]

    async def native_schemas(self, tool_ids: list[str]) -> list[dict[str, JsonValue]]:
        """Return those of these tools that exist as native function calling has them."""
        catalog = await self._registry.catalog()
        found = {tool_id: tool.definition for tool_id in tool_ids if (tool := catalog.find(tool_id)) is not None}
        return native_schemas(tool_ids, found)

    async def callable_tools(self, *, call: CallContext | None = None) -> list[ToolDefinition]:
        """Return the tools that may be called within `call`."""
        return await self._caller.callable_tools(self._call(call))

    async def _found(self, tool_ids: list[str]) -> list[ToolDefinition]:
        catalog = await self._registry.catalog()
        return [tool.definition for tool_id in tool_ids if (tool := catalog.find(tool_id)) is not None]

    # --- text -----------------------------------------------------------------------------------------

    async def native_calls(self, tool_calls: list[JsonValue], *, tool_ids: list[str]) -> ParsedText:
        """Return the calls in an LLM's `tool_calls`."""
        return await self._protocols.parse_native(tool_calls, aliases(tool_ids))

    async def protocols(self) -> list[ActionProtocolInfo]:
        """Return the action protocols."""
        return await self._protocols.infos()

    async def instructions(self, *, protocols: list[str] | None = None) -> str:
        """Return the instructions for an LLM. Raises `InvalidInput` for a protocol that is not registered."""
        return await self._protocols.instructions(protocols)

    async def parse_text(
        self, text: str, *, protocols: list[str] | None = None, tool_ids: list[str] | None = None
    ) -> ParsedText:
        """Return the calls in `text`. Raises `InvalidInput` for a protocol that is not registered."""
        options = with_aliases((await self._registry.recent()).parser_options, tool_ids or ())
        return await self._protocols.parse(text, protocols, options)

    async def parse_stream(
        self, chunks: AsyncIterator[str], *, protocols: list[str] | None = None, tool_ids: list[str] | None = None
    ) -> AsyncIterator[ParseEvent]:
        """Yield what is found in a text while it comes."""
        options = with_aliases((await self._registry.recent()).parser_options, tool_ids or ())
        async for event in self._protocols.parse_stream(chunks, protocols, options):
            yield event

    @takes_shared
    async def feedback(
        self, calls: list[ToolCallRequest], results: list[ToolResult], *, limit: int = 16_000
    ) -> list[ToolFeedback]:
        """Return the texts by which a language model reads the results of calls."""
        return feedback(calls, results, limit)

    async def masked(self, calls: list[ToolCallRequest]) -> list[dict[str, JsonValue]]:
        """Return the arguments of calls without their secrets."""
        catalog = await self._registry.recent()
        found = []
        for call in calls:
            tool, arguments = catalog.find(call.tool_id), call.arguments
            if tool is not None:  # a text may spell the names in other ways
                arguments = tool.parameters.bind(arguments, text=call.protocol not in (None, "native")).arguments
            found.append(masked(arguments, () if tool is None else tool.parameters.secrets))
        return found

    async def expand(
        self, value: JsonValue, *, tool_ids: list[str] | None = None, call: CallContext | None = None
    ) -> ExpandedPrompt:
        """Fill in prompt macros."""
        return await self._macros.expand(value, tool_ids or [], self._call(call).child())

    # --- calls ----------------------------------------------------------------------------------------

    @gives_new
    @takes_shared
    async def call(
        self, request: ToolCallRequest, *, scope: ToolScope | None = None, call: CallContext | None = None
    ) -> ToolResult:
        """Make one call."""
        return await self._caller.call(request, scope, call or self._call(None))

    async def try_out(self, tool: Tool, request: ToolCallRequest, call: CallContext) -> ToolResult:
        """Call a tool that is not in the catalog."""
        return await self._caller.try_out(tool, request, call)

    @takes_shared
    async def call_all(
        self, requests: list[ToolCallRequest], *, scope: ToolScope | None = None, call: CallContext | None = None
    ) -> list[ToolResult]:
        """Make calls in order."""
        context = self._call(call)
        return await chains.carry_out(requests, lambda request: self._caller.call(request, scope, context))

    async def call_text(
        self,
        text: str,
        *,
        protocols: list[str] | None = None,
        scope: ToolScope | None = None,
        call: CallContext | None = None,
    ) -> TextResult:
        """Make the calls that `text` asks for."""
        parsed = await self.parse_text(text, protocols=protocols)
        return TextResult(parsed=parsed, results=await self.call_all(parsed.calls, scope=scope, call=call))

    async def call_outputs(
        self,
        outputs: dict[str, JsonValue],
        *,
        protocols: list[str] | None = None,
        call: CallContext | None = None,
    ) -> dict[str, JsonValue]:
        """Make the calls in a run's outputs; see the interface."""
        return await act_on(
            outputs,
            parse=lambda text: self.parse_text(text, protocols=protocols),
            carry_out=lambda calls: self.call_all(calls, call=call),
            limit=int(self._context.settings.get(LIMIT, DEFAULT_LIMIT)),
        )

    async def read_stream(
        self, handle: str, *, max: int = 100, wait: float = 10.0, call: CallContext | None = None
    ) -> StreamItems:
        """Return the next items of a stream."""
        return await self._streams.read(handle, self._call(call).principal, max, min(wait, MAX_WAIT))

    async def leave_stream(self, handle: str, *, call: CallContext | None = None) -> None:
        """Close a stream."""
        self._streams.leave(handle, self._call(call).principal)

    # --- tasks ----------------------------------------------------------------------------------------

    async def tasks(self, filter: TaskFilter | None = None, *, call: CallContext | None = None) -> list[ToolTask]:
        """Return tasks."""
        return await self._caller.tasks.list(filter or TaskFilter(), self._call(call))

    async def task(self, task_id: str, *, wait: float = 0.0, call: CallContext | None = None) -> ToolTask:
        """Return a task."""
        return await self._caller.tasks.get(task_id, wait, self._call(call))

    async def cancel_task(self, task_id: str, *, call: CallContext | None = None) -> ToolTask:
        """Cancel a task."""
        return await self._caller.tasks.cancel(task_id, self._call(call))

    async def decide(
        self,
        task_id: str,
        decision: Literal["approve", "refuse"],
        *,
        arguments: dict[str, JsonValue] | None = None,
        comment: str = "",
        call: CallContext | None = None,
    ) -> ToolTask:
        """Approve or refuse a call that waits."""
        return await self._caller.tasks.decide(task_id, decision, arguments, comment, self._call(call))

    def _call(self, call: CallContext | None) -> CallContext:
        return call or system_call(self._context.project.id)
