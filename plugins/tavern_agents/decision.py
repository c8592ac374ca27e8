"""What an answer of a model asks for: the calls in its text first, then the native ones.

Works on stored messages, so that a run that is resumed reads the same calls as the run that was interrupted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from tavern_llm.api.llm import ChatMessage, LlmToolCall
from tavern_tools.api.toolcalls import ToolCallRequest, take_call
from tavern_tools.api.tools import ToolManager

CUT = frozenset({"length", "max_tokens", "MAX_TOKENS"})
"""Finish reasons of an answer that ended at the limit of tokens."""


@dataclass
class Decision:
    """An answer taken apart. `text` is what it says apart from calls. `calls` are those to be made, the first
    `certain` of them complete before the text ended; `unusable` are native ones that cannot be, each with the reason;
    `twins` are native calls that the text asks for as well, each with the place of that call. `warnings` are about the
    text."""

    text: str = ""
    calls: list[ToolCallRequest] = field(default_factory=list)
    certain: int = 0
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
    manager: ToolManager, message: ChatMessage, tool_ids: Sequence[str], finish_reason: str | None = None
) -> Decision:
    """Return the decision that an assistant's message states: its text, and the calls in it."""

    async def whole() -> AsyncIterator[str]:
        yield message.content

    decision = Decision()
    if message.content:
        async for _ in read_text(manager, whole(), decision, tool_ids):
            pass
    await add_native(manager, decision, message.tool_calls, tool_ids, finish_reason)
    return decision


async def read_text(
    manager: ToolManager, pieces: AsyncIterator[str], decision: Decision, tool_ids: Sequence[str]
) -> AsyncIterator[str]:
    """Yield the text that is part of no call while it comes; add the rest to `decision`."""
    texts: list[str] = []
    is_whole = False

    async def watched() -> AsyncIterator[str]:
        nonlocal is_whole
        async for piece in pieces:
            yield piece
        is_whole = True

    async for event in manager.parse_stream(watched(), tool_ids=list(tool_ids)):
        if event.kind == "text":
            texts.append(event.text)
            yield event.text
        elif event.kind == "warning":
            decision.warnings.append(event.text)
        elif event.call is not None:
            before = len(decision.calls)
            take_call(decision.calls, event.call)
            decision.certain += 0 if is_whole else len(decision.calls) - before
    decision.text = "".join(texts).strip()


async def add_native(
    manager: ToolManager,
    decision: Decision,
    calls: Sequence[LlmToolCall],
    tool_ids: Sequence[str],
    finish_reason: str | None,
) -> None:
    """Add the native calls of an answer. Where it was cut off, drop the calls that are not complete."""
    is_cut = finish_reason in CUT
    if is_cut:
        decision.warnings += [_incomplete(call.tool_id) for call in decision.calls[decision.certain :]]
        del decision.calls[decision.certain :]
    block = len(decision.blocks)
    for number, call in enumerate(calls):
        wire: JsonValue = {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        parsed = await manager.native_calls([wire], tool_ids=list(tool_ids))
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
        if call.protocol != "native"
        and call.refused is None
        and (call.tool_id, call.arguments) == (native.tool_id, native.arguments)
    )
    return next(same, None)


def _incomplete(tool_id: str) -> str:
    return f"the answer was cut off at the limit of tokens; the call of {tool_id} was not complete and was not made"
