"""The node `core:ExecuteTool`: carries out calls of tools."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Annotated, Any, TypedDict

from tavern_agents.answers import read_answer
from tavern_agents.conversation import result_messages
from tavern_agents.feedback import limit_for
from tavern_agents.tracing import tracer_for
from tavern_host import Config, InvalidInput, NodeContext, Slot, node
from tavern_host.contracts.documents import read_model
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult, ToolScope, passing_pieces_to
from tavern_tools.api.tools import TOOL_MANAGER


class Executed(TypedDict, total=False):
    """What the node gives."""

    results: Annotated[list[Any], Slot("One result for each call that was begun.", match_categories=("ToolResults",))]
    observation: Annotated[str, Slot("What came of the calls, in sentences.", match_categories=("Observation",))]
    messages: Annotated[
        list[Any],
        Slot("The conversation with the answer and with what came of its calls.", match_categories=("ChatHistory",)),
    ]
    status: Annotated[str, Slot("none, done, error, pending or awaiting_approval: the weightiest of all.")]
    stream: Annotated[
        Any,
        Slot("What streaming tools give, piece by piece.", stream=True, match_categories=("ToolStream", "TextStream")),
    ]


_WEIGHT = ("awaiting_approval", "pending", "error", "done")


@node(type="ExecuteTool", category="Agent", display_name="Execute tool", width=300, cached=False)
async def execute_tool(
    context: NodeContext,
    tool_call_requests: Annotated[
        Any,
        Slot(
            "One call or a list: objects with toolId and arguments, as Parse LLM decision gives them.",
            match_categories=("ToolCallRequests",),
        ),
    ] = None,
    messages: Annotated[
        list[Any] | None, Slot("The conversation that the calls belong to.", match_categories=("ChatHistory",))
    ] = None,
    response: Annotated[
        dict[str, Any] | None,
        Slot("The answer that asked for the calls, to be added to the conversation.", match_categories=("LlmOutput",)),
    ] = None,
    allowed: Annotated[
        list[str] | None,
        Config(
            "Ids of tools, and patterns, that may be called; empty for all that the caller may.", widget="tool-picker"
        ),
    ] = None,
) -> AsyncIterator[Executed]:
    """Carry out the calls; one that fails is a result. In an agent's deliberation, its inventory holds."""
    requests = _read(tool_call_requests)
    manager = context.plugin.services.get(TOOL_MANAGER)
    scope = ToolScope(allowed=allowed) if allowed else None
    steps = tracer_for(context)
    is_told = steps.is_of_run and bool(requests)  # calls of an agent are in its account
    if is_told:
        for request, arguments in zip(requests, await manager.masked(requests), strict=True):
            steps.say("tool_running", f"Calls {request.tool_id}", toolId=request.tool_id, arguments=arguments)
    calls = _Calls()
    making = calls.made(lambda: manager.call_all(requests, scope=scope, call=context.call), requests)
    async with aclosing(making) as pieces:
        async for piece in pieces:
            yield {"stream": piece}
    results = calls.results
    answers = await manager.feedback(requests, results, limit=limit_for(len(requests)))
    if is_told:
        for answer, result in zip(answers, results, strict=False):
            steps.say("tool_output", answer.text, toolId=result.tool_id, status=result.status)
    statuses = {result.status for result in results}
    yield {
        "results": [result.to_json() for result in results],
        "observation": "\n".join(answer.text for answer in answers),
        "messages": [
            *(messages or []),
            *([] if response is None else [read_answer(response).message().to_json()]),
            *(message.to_json() for message in result_messages(requests, answers)),
        ],
        "status": next((status for status in _WEIGHT if status in statuses), "none"),
    }


class _Calls:
    """Calls while they are made, with what streaming tools among them give."""

    def __init__(self) -> None:
        self.results: list[ToolResult] = []
        self._pieces = asyncio.Queue[tuple[Any] | None]()

    async def made(
        self, call: Callable[[], Awaitable[list[ToolResult]]], requests: list[ToolCallRequest]
    ) -> AsyncGenerator[Any, None]:
        """Make the calls, and yield each piece as it comes."""
        if not requests:
            return
        making = asyncio.create_task(self._make(call), name="carry out calls")
        making.add_done_callback(lambda _: self._pieces.put_nowait(None))
        try:
            while (piece := await self._pieces.get()) is not None:
                yield piece[0]
            self.results = await making
        finally:
            if not making.done():
                making.cancel()
                await asyncio.wait([making])

    async def _make(self, call: Callable[[], Awaitable[list[ToolResult]]]) -> list[ToolResult]:
        with passing_pieces_to(lambda piece: self._pieces.put_nowait((piece,))):
            return await call()


def _read(value: Any) -> list[ToolCallRequest]:
    if value is None:
        return []
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise InvalidInput(f"ExecuteTool: expected a call or a list of calls, found {type(value).__name__}")
    return [
        read_model(ToolCallRequest, call, f"ExecuteTool: tool_call_requests[{index}]")
        for index, call in enumerate(value)
    ]
