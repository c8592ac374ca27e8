"""What an answer of a model asks for: the calls in its text first, then the native ones.

Works on stored messages, so that a run that is resumed reads the same calls as the run that was interrupted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from tavern_host.contracts.llm import ChatMessage, LlmToolCall
from tavern_host.contracts.toolcalls import ToolCallRequest
from tavern_host.contracts.tools import ToolManager

CUT = frozenset({"length", "max_tokens", "MAX_TOKENS"})
"""Finish reasons of an answer that ended at the limit of tokens."""


@dataclass
class Decision:
    """An answer taken apart. `text` is what it says apart from calls. `calls` are those to be made; `unusable` are
    native ones that cannot be, each with the reason; `twins` are native calls that the text asks for as well, each with
    the place of that call. `warnings` are about the text."""

    message: ChatMessage
    text: str
    calls: list[ToolCallRequest] = field(default_factory=list)
    unusable: dict[str, str] = field(default_factory=dict)
    twins: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def blocks(self) -> list[list[int]]:
        """The places of the calls by chain: what belongs together."""
        found: list[list[int]] = []
        before = None
        for place, call in enumerate(self.calls):
            block = call.protocol, call.block
            if block != before:
                found.append([])
            found[-1].append(place)
            before = block
        return found


async def read_decision(
    tools: ToolManager, message: ChatMessage, tool_ids: Sequence[str], finish_reason: str | None = None
) -> Decision:
    """Return what an assistant's message asks for.

    Where the answer was cut off, a call that is not complete is not made.
    """
    is_cut = finish_reason in CUT
    decision = Decision(message, "")
    texts: list[str] = []
    is_whole = False

    async def once() -> AsyncIterator[str]:
        nonlocal is_whole
        yield message.content
        is_whole = True

    if message.content:
        async for event in tools.parse_stream(once()):
            if event.kind == "text":
                texts.append(event.text)
            elif event.kind == "warning":
                decision.warnings.append(event.text)
            elif event.call is not None:
                if is_cut and is_whole:
                    decision.warnings.append(_incomplete(event.call.tool_id))
                else:
                    decision.calls.append(event.call)
    decision.text = "".join(texts).strip()
    if message.tool_calls:
        await _add_native(tools, decision, message.tool_calls, tool_ids, is_cut)
    return decision


async def _add_native(
    tools: ToolManager, decision: Decision, calls: Sequence[LlmToolCall], tool_ids: Sequence[str], is_cut: bool
) -> None:
    block = len(decision.blocks)
    for number, call in enumerate(calls):
        wire: JsonValue = {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        parsed = await tools.native_calls([wire], tool_ids=list(tool_ids))
        if not parsed.calls:
            reason = "; ".join(parsed.warnings) or "it cannot be read"
            decision.unusable[call.id] = _incomplete(call.name) if is_cut else f"The call was not made: {reason}"
            continue
        request = parsed.calls[0].model_copy(update={"block": block + number, "request_id": call.id})
        twin = _twin(decision.calls, request)
        if twin is None:
            decision.calls.append(request)
        else:
            decision.twins[call.id] = twin


def _twin(calls: Sequence[ToolCallRequest], native: ToolCallRequest) -> int | None:
    """Return the place of the call in the text that is the same."""
    same = (
        place
        for place, call in enumerate(calls)
        if call.protocol != "native" and (call.tool_id, call.arguments) == (native.tool_id, native.arguments)
    )
    return next(same, None)


def _incomplete(tool_id: str) -> str:
    return f"the answer was cut off at the limit of tokens; the call of {tool_id} was not complete and was not made"
