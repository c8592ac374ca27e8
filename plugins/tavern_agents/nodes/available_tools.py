"""The node `core:AvailableTools`: the tools that a model may ask for."""

from typing import Annotated, Any, TypedDict

from tavern_agents.inventory import chosen_tools, tools_text
from tavern_agents.tracing import tracer_for, tracer_of
from tavern_host import Config, NodeContext, Slot, node
from tavern_tools.api.tools import TOOL_MANAGER


class Tools(TypedDict):
    """What the node gives."""

    tools: Annotated[
        list[Any],
        Slot("The tools as native function calling has them.", display_name="Tools", match_categories=("NativeTools",)),
    ]
    tools_text: Annotated[
        str, Slot("Their documentation, and how to ask for them in text.", display_name="Tools as text")
    ]
    tool_ids: Annotated[list[str], Slot("Their ids.", display_name="Tool ids", match_categories=("ToolIds",))]


@node(type="AvailableTools", category="Agent", display_name="Available tools", width=300, cached=False)
async def available_tools(
    context: NodeContext,
    tools: Annotated[
        list[str] | None,
        Config(
            "Ids of tools, and patterns such as `FileOperator.*`; empty for all that the agent may call.",
            display_name="Tools",
            widget="tool-picker",
            optionsUrl="/api/tools",
        ),
    ] = None,
) -> Tools:
    """Give the tools that were chosen. In the deliberation of an agent, they are among those of its inventory."""
    manager = context.plugin.services.get(TOOL_MANAGER)
    tracer = tracer_of(context.plugin, context.call)
    tracer_for(context)
    if tracer is None:
        ids = await chosen_tools(manager, tools or [], None)
    else:
        ids = await chosen_tools(manager, tools or tracer.shown or [], tracer.allowed)
    return {
        "tools": list(await manager.native_schemas(ids)),
        "tools_text": await tools_text(manager, ids),
        "tool_ids": ids,
    }
