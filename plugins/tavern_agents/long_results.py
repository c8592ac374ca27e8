"""Results that are too long for a prompt: their ends are shown, or a summary, and the whole is read part by part."""

from __future__ import annotations

import re

from tavern_agents.api.agents import AgentProfile, ResultPart
from tavern_agents.compaction import MAX_TEXT
from tavern_agents.conversation import READER
from tavern_agents.deliberation import TEXT_OUTPUTS
from tavern_agents.store import AgentStore
from tavern_agents.tracing import Tracer
from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput, NotFound, PluginFailure, TavernError
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.api.observations import cut_middle
from tavern_tools.api.toolcalls import ToolResult
from tavern_tools.api.tools import ToolManager

MAX_PART = 16_000
"""The most characters that are read at once."""

_HANDLE = re.compile(r"result:(\d{1,18}):(\d{1,9})", re.ASCII)


def reader_tool() -> ToolDefinition:
    """Return the tool; agents have it from their first long result on."""
    numbers = {"type": "integer", "minimum": 0}
    return ToolDefinition(
        id=READER,
        display_name="Read a long result",
        description="Reads on in a result of this conversation of which only parts were shown.",
        version="1.0.0",
        implementation=ToolImplementation(kind="service", service="agentRuntime", method="read_result"),
        parameters={
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "The result's handle, such as result:12:0."},
                "offset": {**numbers, "default": 0, "description": "How many characters to leave out."},
                "length": {
                    **numbers,
                    "minimum": 1,
                    "maximum": MAX_PART,
                    "default": 8000,
                    "description": "How many characters to read.",
                },
                "find": {"type": "string", "description": "A text; reading begins where it next stands."},
            },
            "required": ["handle"],
        },
        read_only=True,
        idempotent=True,
        volatile=True,
        listed=False,
    )


def how_to_read(message: int, place: int, characters: int) -> str:
    """Return how the result of a call is read whole."""
    return f"[{READER} with handle result:{message}:{place} reads all {characters} characters of it]"


async def whole_text(tools: ToolManager, result: ToolResult) -> str:
    """Return all of what a model may read about a result."""
    [found] = await tools.feedback([], [result], limit=2**53)
    return found.text


async def read_part(
    store: AgentStore, tools: ToolManager, conversation: str, handle: str, offset: int, length: int, find: str | None
) -> ResultPart:
    """Return a part of a result of a conversation. Raises `InvalidInput`, `NotFound`."""
    known = _HANDLE.fullmatch(handle.strip())
    if known is None:
        raise InvalidInput(f"{handle!r:.100} is no handle of a result; one looks like result:12:0")
    result = await store.result(conversation, int(known[1]), int(known[2]))
    if result is None:
        raise NotFound(f"this conversation has no result {handle!r}")
    text = await whole_text(tools, result)
    begin = max(0, offset) if not find else text.find(find, max(0, offset))
    if begin < 0:
        raise NotFound(f"{find!r:.100} does not stand in {handle} behind its first {offset} characters")
    end = min(len(text), begin + max(1, min(length, MAX_PART)))
    return ResultPart(text=text[begin:end], offset=begin, total=len(text), next=end if end < len(text) else None)


async def shortened(
    context: PluginContext, profile: AgentProfile, trace: Tracer, call: CallContext, tool_id: str, text: str
) -> str | None:
    """Return a result's summary by the profile's workflow for observations; None where there is none, or it fails."""
    reference = profile.observation_workflow_id
    if reference is None:
        return None
    request = RunRequest(workflow_id=reference, inputs={"observation": cut_middle(text, MAX_TEXT)}, recover=False)
    try:
        run = await context.services.get(EXECUTION_ENGINE).run(request, call=call)
        found = next((run.outputs[key] for key in ("summary", *TEXT_OUTPUTS) if run.outputs.get(key)), None)
        if not isinstance(found, str):
            raise PluginFailure(run.error.message if run.error else "it gave no output summary or text")
    except TavernError as error:
        trace.say("warning", f"the result of {tool_id} could not be shortened by {reference!r}: {error.message}")
        return None
    trace.say("compacted", f"Shortened the result of {tool_id}", toolId=tool_id, runId=run.id)
    return found
