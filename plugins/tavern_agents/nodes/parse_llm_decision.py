"""The node `core:ParseLlmDecision`: tells what a model says from what it asks for."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

from tavern_agents.answers import read_answer
from tavern_agents.decision import Decision, add_native, read_text
from tavern_agents.inventory import chosen_tools
from tavern_agents.tracing import Tracer, tracer_for, tracer_of
from tavern_host import InvalidInput, NodeContext, Slot, node
from tavern_llm.api.llm import LlmChunk, LlmResponse
from tavern_tools.api.tools import TOOL_MANAGER, ToolManager


class DecisionParts(TypedDict, total=False):
    """What the node gives."""

    llm_text_output: Annotated[
        str, Slot("The model's text as it wrote it.", display_name="Text", match_categories=("LlmOutput",))
    ]
    tool_call_requests: Annotated[
        list[Any],
        Slot("The calls that it asks for, those in the text first.", match_categories=("ToolCallRequests",)),
    ]
    has_calls: Annotated[bool, Slot("Whether there are calls.")]
    response: Annotated[dict[str, Any], Slot("The whole answer.", match_categories=("LlmOutput",))]
    warnings: Annotated[list[str], Slot("What could not be read as a call, and why.")]
    text_stream: Annotated[
        str,
        Slot(
            "The text that is part of no call, as it comes.",
            stream=True,
            match_categories=("LlmOutput", "TextStream"),
        ),
    ]


@node(type="ParseLlmDecision", category="Agent", display_name="Parse LLM decision", width=300, cached=False)
async def parse_llm_decision(
    context: NodeContext,
    response: Annotated[
        dict[str, Any] | None,
        Slot("The whole answer of a model.", display_name="Response", match_categories=("LlmOutput",)),
    ] = None,
    chunks: Annotated[
        AsyncIterator[dict[str, Any]] | None,
        Slot("The answer as it comes, from `chunks` of LLM request.", match_categories=("LlmOutput", "StreamChunk")),
    ] = None,
    tool_ids: Annotated[
        list[str] | None,
        Slot("The tools that native calls may name: those of Available tools.", match_categories=("ToolIds",)),
    ] = None,
) -> AsyncIterator[DecisionParts]:
    """Give the text while it comes, and the calls as soon as all is there. Raises `InvalidInput` for no answer."""
    manager = context.plugin.services.get(TOOL_MANAGER)
    tracer, steps = tracer_of(context.plugin, context.call), tracer_for(context)
    speaks = tracer is not None and tracer.nodes_speak
    answer = _Answer(response)
    while True:
        decision = Decision()
        async for text in read_text(manager, answer.texts(chunks), decision, tool_ids or []):
            if speaks:
                steps.fragment(text)
            yield {"text_stream": text}
        if answer.restarted is None:
            break
        if speaks:
            steps.fragment("", restarted=answer.restarted)
        yield {"text_stream": f"\n\n[{answer.restarted}]\n\n"}
    whole = answer.whole()
    allowed = None if tracer is None else tracer.allowed
    ids = tool_ids or (await chosen_tools(manager, [], allowed) if whole.tool_calls else [])
    await add_native(manager, decision, whole.tool_calls, ids, whole.finish_reason)
    if tracer is None or (decision.calls and context.iteration is not None):
        await _say(steps, decision, manager)
    yield {
        "llm_text_output": whole.text,
        "tool_call_requests": [call.to_json() for call in decision.calls],
        "has_calls": bool(decision.calls),
        "response": whole.model_dump(mode="json"),
        "warnings": [*decision.warnings, *decision.unusable.values()],
    }


async def _say(steps: Tracer, decision: Decision, manager: ToolManager) -> None:
    """Say what was decided, where no loop of the host does: in a run by hand, and in a loop that is drawn."""
    if decision.text:
        steps.say("thought", decision.text)
    for call, arguments in zip(decision.calls, await manager.masked(decision.calls), strict=True):
        steps.say("tool_call", f"Calls {call.tool_id}", toolId=call.tool_id, index=call.index, arguments=arguments)


class _Answer:
    """An answer, whole or as it comes."""

    def __init__(self, response: dict[str, Any] | None) -> None:
        self._response = response
        self.restarted: str | None = None
        """Why the answer restarts, so that what came before is void."""

    async def texts(self, chunks: AsyncIterator[dict[str, Any]] | None) -> AsyncIterator[str]:
        """Yield the text of the answer in pieces, up to where it is complete or restarts."""
        self.restarted = None
        if self._response is not None or chunks is None:
            yield self.whole().text
            return
        async for piece in chunks:
            chunk = LlmChunk.model_validate(piece)
            if chunk.restarted is not None:
                self.restarted = chunk.restarted
                return
            if chunk.response is not None:
                self._response = chunk.response.model_dump(mode="json")
            elif chunk.text:
                yield chunk.text

    def whole(self) -> LlmResponse:
        """Return the whole answer. Raises `InvalidInput`."""
        if self._response is None:
            raise InvalidInput("ParseLlmDecision: connect `response`, or `chunks`, of an LLM request")
        return read_answer(self._response)
