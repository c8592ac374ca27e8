"""Action text in the outputs of a run: what it asks for is carried out, and the texts are left without it.

For which runs this is done is not decided here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import JsonValue

from tavern_tools.api.toolcalls import ContentPart, ParsedText, ToolCallRequest, ToolError, ToolErrorType, ToolResult
from tavern_tools.api.tools import ACTIONS

LIMIT = "maxActions"
DEFAULT_LIMIT = 32
"""The setting, and its default: how many calls the outputs of one run may ask for."""


async def act_on(
    outputs: dict[str, JsonValue],
    *,
    parse: Callable[[str], Awaitable[ParsedText]],
    carry_out: Callable[[list[ToolCallRequest]], Awaitable[list[ToolResult]]],
    limit: int,
) -> dict[str, JsonValue]:
    """Return the outputs as `ToolManager.call_outputs` says.

    Calls beyond `limit` are not made; one failed result says how many those are.
    """
    changed = {key: value for key, value in outputs.items() if key != ACTIONS}
    results: list[JsonValue] = []
    too_many: list[ToolCallRequest] = []
    left = limit
    for key, text in list(changed.items()):
        if not isinstance(text, str):
            continue
        parsed = await parse(text)
        if not parsed.calls:
            continue
        changed[key] = parsed.text
        made = parsed.calls[:left]
        left -= len(made)
        too_many += parsed.calls[len(made) :]
        results += [{"output": key, **result.to_json()} for result in await carry_out(made)]
    if too_many:
        results.append(_not_made(too_many, limit).to_json())
    return {**changed, ACTIONS: results}


def _not_made(calls: list[ToolCallRequest], limit: int) -> ToolResult:
    first = calls[0]
    message = (
        f"{len(calls)} of the calls were not made, {first.tool_id} the first of them: the outputs of one run may ask "
        f"for {limit} (extensions.tavern-tools.{LIMIT})"
    )
    error = ToolError(type=ToolErrorType.PERMISSION_DENIED, message=message, tool_id=first.tool_id, index=first.index)
    content = [ContentPart(type="text", text=f"{error.type}: {message}")]
    return ToolResult(tool_id=first.tool_id, index=first.index, status="error", content=content, error=error)
