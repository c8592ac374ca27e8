"""The node `core:ExecuteTool`: carries out calls of tools."""

import asyncio
from collections.abc import AsyncIterator
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
    results: list[ToolResult] = []
    if requests:
        pieces = _Pieces()

        async def make() -> list[ToolResult]:
            with passing_pieces_to(pieces.take):
                return await manager.call_all(requests, scope=scope, call=context.call)

        making = asyncio.create_task(make(), name="carry out calls")
        making.add_done_callback(pieces.end)
        try:
            async for piece in pieces:
                yield {"stream": piece}
            results = await making
        finally:
            if not making.done():
                making.cancel()
                await asyncio.wait([making])
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


class _Pieces:
    """What streaming tools give, until all calls have ended."""

    def __init__(self) -> None:
        self._queue = asyncio.Queue[tuple[Any] | None]()

    def take(self, piece: Any) -> None:
        self._queue.put_nowait((piece,))

    def end(self, _: object) -> None:
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (found := await self._queue.get()) is not None:
            yield found[0]


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
