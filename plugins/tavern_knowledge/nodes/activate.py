"""The node `core:ActivateKnowledge`: the entries that a conversation brings into a prompt."""

from typing import Annotated, Any, TypedDict

from tavern_host import InvalidInput, NodeContext, Slot, node
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, ActivationRequest, ActiveEntry
from tavern_knowledge.nodes.query import Bases


class Active(TypedDict):
    """What the node gives."""

    text: Annotated[str, Slot("The texts of the entries that have no depth, for the prompt.", display_name="Text")]
    messages: Annotated[
        list[Any],
        Slot(
            "The messages, with the entries that have a depth.",
            display_name="Messages",
            match_categories=("ChatHistory",),
        ),
    ]
    entries: Annotated[
        list[Any], Slot("The entries and why each is in.", display_name="Entries", match_categories=("Knowledge",))
    ]
    left_out: Annotated[list[Any], Slot("What was called up and stays out, and why.", display_name="Left out")]
    used: Annotated[list[str], Slot("What to give as used the next time.", display_name="Used")]


@node(type="ActivateKnowledge", category="Knowledge", display_name="📖 Activate knowledge", width=300, cached=False)
async def activate_knowledge(
    context: NodeContext,
    messages: Annotated[list[Any], Slot("The conversation, oldest first.", match_categories=("ChatHistory",))],
    bases: Bases = None,
    seed: Annotated[str, Slot("What chance comes from; the same seed gives the same entries.")] = "",
    budget: Annotated[int, Slot("How many tokens the entries may take; 0 for no limit.", min=0)] = 0,
    scan_depth: Annotated[int, Slot("How many of the last messages call entries up.", min=0, max=100)] = 4,
    used: Annotated[list[str] | None, Slot("The entries that were in before in this session.")] = None,
    variables: Annotated[dict[str, Any] | None, Slot("The variables that conditions are about.")] = None,
) -> Active:
    """Choose the entries of knowledge bases that a conversation calls up, on behalf of who runs the workflow."""
    request = ActivationRequest(
        messages=[_text(message, index) for index, message in enumerate(messages)],
        bases=bases or None,
        seed=seed,
        budget=budget,
        scan_depth=scan_depth,
        used=used or [],
        variables=variables or {},
    )
    found = await context.plugin.services.get(KNOWLEDGE_BASE).activate(request, call=context.call)
    return {
        "text": "\n\n".join(entry.text for entry in found.entries if entry.depth_offset is None),
        "messages": _with_depths(messages, found.entries),
        "entries": [entry.to_json() for entry in found.entries],
        "left_out": [entry.to_json() for entry in found.left_out],
        "used": list(found.used),
    }


def _text(message: Any, index: int) -> str:
    content = message.get("content") if isinstance(message, dict) else message
    if content is None:
        return ""
    if not isinstance(content, str):
        raise InvalidInput(f"messages[{index}]: expected a message with role and content, or a text")
    return content


def _is_result(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "tool"


def _with_depths(messages: list[Any], entries: list[ActiveEntry]) -> list[Any]:
    """Return the messages with each entry that has a depth so many messages before the end."""
    placed: dict[int, list[Any]] = {}
    for entry in entries:
        if entry.depth_offset is not None:
            message = {"role": entry.role or "system", "content": entry.text}
            place = max(0, len(messages) - entry.depth_offset)
            while 0 < place < len(messages) and _is_result(messages[place]):
                place -= 1  # nothing stands between a call and its result
            placed.setdefault(place, []).append(message)
    merged: list[Any] = []
    for index in range(len(messages) + 1):
        merged += [*placed.get(index, []), *messages[index : index + 1]]
    return merged
