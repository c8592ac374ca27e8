"""The node `core:PatchContext`: what the assistant's model reads."""

import asyncio
from typing import Annotated, Any, TypedDict

from tavern_assistant.deliberation.prompt import PANEL_RULES, RULES, SCHEMA, conversation, situation
from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host import NodeContext, Slot, node
from tavern_host.contracts.nodes import NodeDefinition

MOST_USED = 40
"""How many of the node types of the open workflow are described at most."""

_OWN = ("core:PatchContext", "core:ReadPatch", "core:JudgePatch")
_ALWAYS = ("core:GroupInput", "core:GroupOutput")


class Context(TypedDict):
    """What the node gives."""

    messages: Annotated[list[Any], Slot("The messages for the model.", match_categories=("ChatHistory",))]
    response_schema: Annotated[dict[str, Any], Slot("The JSON Schema of its answer.", display_name="Response schema")]
    model: Annotated[str, Slot("The model that the assistant is set to use; empty for the default.")]


@node(type="PatchContext", category="Assistant", display_name="Context for a patch", width=300, cached=False)
async def patch_context(
    context: NodeContext,
    request: Annotated[str, Slot("What is asked for.", multiline=True)],
    world_state: Annotated[dict[str, Any] | None, Slot("The open workflow, and what belongs to it.")] = None,
    history: Annotated[list[Any] | None, Slot("What was said before.", match_categories=("ChatHistory",))] = None,
    entries: Annotated[
        list[Any] | None,
        Slot("Node types that fit the request, as entries of host:nodes.", match_categories=("Knowledge",)),
    ] = None,
) -> Context:
    """Put the rules of patches, the node types that fit, the workflow and the request together for a model."""
    world = world_state or {}
    known = {one.full_type: one for one in await context.plugin.services.get(NODE_MANAGER).list_nodes()}
    about = await asyncio.to_thread(situation, world, _chosen(known, world, entries or []), request)
    model = context.plugin.settings.get("model", "")
    return {
        "messages": conversation(history or [], about, RULES if world.get("panel") is None else PANEL_RULES),
        "response_schema": SCHEMA,
        "model": model if isinstance(model, str) else "",
    }


def _chosen(known: dict[str, NodeDefinition], world: dict[str, Any], entries: list[Any]) -> list[NodeDefinition]:
    """Return the node types that were found, then those of the workflow."""
    workflow = world.get("workflow") or {}
    used = [str(one.get("type")) for one in workflow.get("nodes", []) if isinstance(one, dict)]
    found = [str(one.get("id")) for one in entries if isinstance(one, dict)]
    found = [type for type in found if type not in _OWN]
    types = [*found, *list(dict.fromkeys(used))[:MOST_USED], *_ALWAYS]
    return [known[type] for type in dict.fromkeys(types) if type in known]
