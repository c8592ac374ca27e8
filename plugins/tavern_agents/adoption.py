"""What came of the agents that an agent had called when its host ended: they are resumed, and heard."""

from __future__ import annotations

import contextlib

from tavern_agents.api.agents import AGENT_RUNTIME
from tavern_agents.store import AgentStore
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import Conflict
from tavern_tools.api.toolcalls import ContentPart, ToolCallRequest, ToolResult


async def adopted(
    context: PluginContext, store: AgentStore, run_id: str, request: ToolCallRequest, message: int
) -> ToolResult | None:
    """Return the result of the run that a call of the run `run_id`, in this message, began; None where it began none,
    or that gave no reply."""
    if not request.tool_id.startswith("agent:"):
        return None
    said, profile_id = request.arguments.get("message"), request.tool_id.removeprefix("agent:")
    below = await store.sub_run(run_id, profile_id, str(said), message)
    if below is None:
        return None
    runtime = context.services.get(AGENT_RUNTIME)
    with contextlib.suppress(Conflict):  # it has ended, or is at work
        if not (await runtime.get_run(below)).status.is_final:
            await runtime.resume(below)
    reply = await runtime.wait(below)
    if reply.outcome != "reply":
        return None
    return ToolResult(
        **request.about,
        status="done",
        content=[ContentPart(type="text", text=reply.text)],
        structured=reply.text,
    )
