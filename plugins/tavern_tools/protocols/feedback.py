"""What a language model reads about its tool calls: a sentence per call, in the frame of its protocol.

Texts only; who reads them and when is not decided here. Results are framed as `<OBSERVATION>`, with the tool's
id, for whatever text protocol asked for them; an answer to a native call is the plain content of a message.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence

from pydantic import JsonValue

from tavern_tools.api.observations import cut_middle, observation
from tavern_tools.api.toolcalls import ContentPart, ToolCallRequest, ToolFeedback, ToolResult

SHORTEST = 200
"""No text is cut to fewer characters than this."""

_NATIVE = "native"


def feedback(
    calls: Sequence[ToolCallRequest], results: Sequence[ToolResult], limit: int = 16_000
) -> list[ToolFeedback]:
    """Return the feedback on each call, in order, including those that were not made since an earlier step failed.

    A result is that of the next call with its block and index; one that fits none comes at the end. A text longer
    than `limit` characters loses its middle.
    """
    feedback = []
    waiting = deque(results)
    for call in calls:
        if waiting and (waiting[0].block, waiting[0].index) == (call.block, call.index):
            feedback.append(_feedback(call.tool_id, feedback_text(waiting.popleft()), call.protocol, limit))
        else:
            feedback.append(_feedback(call.tool_id, _not_called(call), call.protocol, limit))
    return [*feedback, *(_feedback(result.tool_id, feedback_text(result), None, limit) for result in waiting)]


def feedback_text(result: ToolResult) -> str:
    """Return the sentence for a result: that the tool succeeded and its output, why it failed, or what it waits for."""
    if result.status == "awaiting_approval":
        text = (
            f"Tool {result.tool_id} was not carried out yet: the call waits until a person approves it, as task "
            f"{result.task_id}. Do not call it again; {_how_to_ask(result)}"
        )
    elif result.status == "pending":
        text = f"Tool {result.tool_id} is at work, as task {result.task_id}; {_how_to_ask(result)}"
    elif result.error is not None:
        error = result.error
        text = f"Tool {result.tool_id} failed. Error type: {error.type.value}. Message: {error.message}"
        if error.details:
            text = f"{text} Details: {_json(error.details)}"
    elif result.status == "error":
        text = f"Tool {result.tool_id} failed. Message: {_output(result)}"
    else:
        text = f"Tool {result.tool_id} executed successfully. Output: {_output(result)}"
    return f"{text}\nWarnings: {'; '.join(result.warnings)}" if result.warnings else text


def _feedback(tool_id: str, text: str, protocol: str | None, limit: int) -> ToolFeedback:
    text = cut_middle(text, max(SHORTEST, limit))
    return ToolFeedback(tool_id=tool_id, text=text, framed=text if protocol == _NATIVE else observation(text, tool_id))


def _not_called(call: ToolCallRequest) -> str:
    return f"Tool {call.tool_id} was not called, because an earlier step failed."


def _how_to_ask(result: ToolResult) -> str:
    return f"system:task_status with task_id {result.task_id} tells how it stands, system:task_result gives its result."


def _output(result: ToolResult) -> str:
    parts = [_part(part) for part in result.content]
    return "\n".join(parts) if parts else _json(result.structured)


def _part(part: ContentPart) -> str:
    if part.type == "text":
        return part.text or ""
    if part.type == "data":
        return _json(part.data)
    if part.type == "stream":
        return f"[a stream; system:stream_read with handle {part.uri} reads it]"
    about = [part.mime_type, None if part.size is None else f"{part.size} bytes"]
    known = ", ".join(text for text in about if text)
    name = part.uri or part.name or "without a name"
    return f"[{part.type} {name}{f' ({known})' if known else ''}]"


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
