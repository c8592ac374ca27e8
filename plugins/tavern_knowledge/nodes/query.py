"""The node `core:QueryKnowledge`: entries of knowledge bases that fit a question."""

from typing import Annotated, Any, TypedDict

from tavern_host import NodeContext, Slot, node
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE

Bases = Annotated[
    list[str] | None, Slot("Ids of bases, aliases and patterns; empty for all of the project.", display_name="Bases")
]


class Found(TypedDict):
    """What the node gives."""

    text: Annotated[str, Slot("What the entries say, each with its name before it.", display_name="Text")]
    entries: Annotated[
        list[Any], Slot("The entries, best first.", display_name="Entries", match_categories=("Knowledge",))
    ]


@node(type="QueryKnowledge", category="Knowledge", display_name="📖 Query knowledge", width=300, cached=False)
async def query_knowledge(
    context: NodeContext,
    query: Annotated[str, Slot("What is looked for.", multiline=True)],
    bases: Bases = None,
    limit: Annotated[int, Slot("At most so many entries.", min=1, max=50)] = 5,
) -> Found:
    """Search knowledge bases, on behalf of who runs the workflow, and give the entries that fit best."""
    knowledge = context.plugin.services.get(KNOWLEDGE_BASE)
    found = await knowledge.search(query, bases=bases or None, limit=limit, call=context.call)
    text = "\n\n".join(f"## {hit.name}\n{hit.text}" for hit in found)
    return {"text": text, "entries": [hit.to_json() for hit in found]}
