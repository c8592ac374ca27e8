"""What an agent is told of its tool calls (`spec/003` §3.4): one sentence per call, framed for the model.

Texts only; who reads them and when is the loop's business.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Sequence

from pydantic import JsonValue

from tavern_host.contracts.tools import ToolCallRequest, ToolResult

MAX_OBSERVATION = 16_000
"""The longest observation, in characters, that goes into a conversation."""

MAX_STEP = 64_000
"""How long all observations of one step may be together."""

MIN_OBSERVATION = 500

_FRAME = re.compile(r"<(?=/?observation\b)", re.IGNORECASE)


def feedback_text(result: ToolResult) -> str:
    """Return the sentence for a result: that the tool succeeded and its output, or why it failed."""
    if result.error is not None:
        error = result.error
        text = f"Tool {result.tool_id} failed. Error type: {error.type.value}. Message: {error.message}"
        return f"{text} Details: {_json(error.details)}" if error.details else text
    return f"Tool {result.tool_id} executed successfully. Output: {_output(result)}"


def feedback(calls: Sequence[ToolCallRequest], results: Sequence[ToolResult]) -> list[tuple[str, str]]:
    """Return tool and sentence for each call in order, including those that were not made because an
    earlier step of their chain had failed."""
    said = []
    waiting = deque(results)
    for call in calls:
        if waiting and (waiting[0].block, waiting[0].index) == (call.block, call.index):
            said.append((call.tool_id, feedback_text(waiting.popleft())))
        else:
            said.append((call.tool_id, f"Tool {call.tool_id} was not called, because an earlier step failed."))
    return [*said, *((result.tool_id, feedback_text(result)) for result in waiting)]


def not_understood_text(warnings: list[str]) -> str:
    """Return what an agent is told whose text looks like a call and holds none that can be made."""
    problems = "; ".join(warnings)
    return f"Your text seems to ask for a tool, but no call could be read from it: {problems}"


def observation(text: str, tool_id: str | None = None, *, limit: int = MAX_OBSERVATION) -> str:
    """Return a sentence in its `<OBSERVATION>` frame. The text cannot end the frame or begin another."""
    inner = _FRAME.sub("&lt;", cut_middle(text, limit))
    about = f"<tool_id>{tool_id}</tool_id>\n" if tool_id is not None else ""
    return f"<OBSERVATION>\n{about}{inner}\n</OBSERVATION>"


def limit_for(count: int) -> int:
    """Return how long each of `count` observations of one step may be."""
    return max(MIN_OBSERVATION, min(MAX_OBSERVATION, MAX_STEP // max(1, count)))


def cut_middle(text: str, limit: int) -> str:
    """Return `text`, its middle replaced by a mark where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    mark = f"\n[… {len(text) - limit} characters left out …]\n"
    tail = limit // 3
    return f"{text[: limit - tail]}{mark}{text[len(text) - tail :]}"


def _output(result: ToolResult) -> str:
    parts = [
        part.text if part.type == "text" and part.text is not None else _json(part.data) for part in result.content
    ]
    return "\n".join(parts) if parts else _json(result.structured)


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
