"""What a deliberation gives by a stream of its interface, said while it comes, in whatever way it is drawn.

Where that stream is the text of `core:ParseLlmDecision`, or there is none, that node says it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from tavern_agents.decision import Decision, read_text
from tavern_agents.tracing import Tracer
from tavern_engine.api.nodes import NODE_MANAGER
from tavern_engine.api.yields import INTERFACE_YIELD, interface_items
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, new_id
from tavern_host.contracts.errors import TavernError, describe
from tavern_host.contracts.workflows import Workflow
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_workflows.api.dataflow import GROUP_REFERENCE
from tavern_workflows.api.workflows import GROUP_OUTPUT, NODE_GROUP, WORKFLOW_MANAGER

STREAMS = ("text_stream",)
"""Interface outputs that the answer comes by, in order of precedence, after the one with the answer."""

_PARSES = "core:ParseLlmDecision"
_DEEPEST = 8


async def streamed_output(context: PluginContext, workflow: Workflow, answer: str) -> str | None:
    """Return the interface output by whose stream an agent says what it says; None where nodes say it themselves."""
    for name in dict.fromkeys((answer, *STREAMS, *workflow.interface_outputs)):
        source = await _source(context, workflow, name) if name in workflow.interface_outputs else None
        if source is not None and await _is_stream(context, *source):
            return name if source != (_PARSES, "text_stream") else None
    return None


async def _source(context: PluginContext, workflow: Workflow, output: str, depth: int = 0) -> tuple[str, str] | None:
    """Return the type of the node that an interface output comes from, in groups too, and its slot."""
    nodes = {node.id: node for node in workflow.nodes}
    for edge in workflow.edges:
        end, node = nodes.get(edge.target), nodes.get(edge.source)
        if end is None or node is None or end.type != GROUP_OUTPUT or edge.target_handle != output:
            continue
        if node.type != NODE_GROUP:
            return node.type, edge.source_handle
        within = node.config_values.get(GROUP_REFERENCE)
        if not isinstance(within, str) or depth == _DEEPEST:
            return None
        try:
            stored = await context.services.get(WORKFLOW_MANAGER).get(within)
        except TavernError:  # its run says why
            return None
        return await _source(context, stored.workflow, edge.source_handle, depth + 1)
    return None


async def _is_stream(context: PluginContext, node_type: str, slot: str) -> bool:
    try:
        found = (await context.services.get(NODE_MANAGER).get(node_type)).outputs.get(slot)
    except TavernError:
        return False
    return found is not None and found.is_stream is True


class Speaker(Protocol):
    """The run of an agent that deliberates."""

    context: PluginContext
    trace: Tracer
    tool_ids: list[str]
    deliberation: Any


@asynccontextmanager
async def speaking(run: Speaker, call: CallContext) -> AsyncIterator[CallContext]:
    """Give the call to run a deliberation with: its nodes find the agent's tracer meanwhile, and what comes by the
    stream of its interface is said, without the calls in it."""
    output: str | None = run.deliberation.streams
    run.trace.nodes_speak = output is None
    with run.trace.following(call):
        if output is None:
            yield call
            return
        call = call.model_copy(update={"idempotency_key": new_id("deliberation")})  # the run's id is known by it
        events = run.context.events.subscribe(INTERFACE_YIELD)
        items = interface_items(events, call.id_of("run"), (output,))
        saying = asyncio.create_task(_say(run, _texts(items), run.tool_ids), name="say what an agent says")
        try:
            yield call
        finally:
            await events.close()
            await asyncio.wait([saying])
            if not saying.cancelled() and (error := saying.exception()) is not None:
                run.context.log.warning("an answer could not be read while it came: %s", describe(error))


async def _say(run: Speaker, texts: AsyncIterator[str], tool_ids: Sequence[str]) -> None:
    async for text in read_text(run.context.services.get(TOOL_MANAGER), texts, Decision(), tool_ids):
        run.trace.fragment(text)


async def _texts(items: AsyncIterator[Any]) -> AsyncIterator[str]:
    """Yield the texts among the items of a stream: pieces of text, or of a model's answer."""
    async for item in items:
        text = item.get("text") if isinstance(item, dict) else item
        if isinstance(text, str) and text:
            yield text
