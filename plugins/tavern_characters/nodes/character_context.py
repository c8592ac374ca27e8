"""The node `core:CharacterContext`: what a character's prompt is made of, for `core:ContextBuilder`."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any, TypedDict

from tavern_agents.api.agents import AGENT_RUNTIME
from tavern_characters.api.characters import Persona
from tavern_characters.conversations import PERSONA, USER
from tavern_characters.files import CharacterFolder
from tavern_characters.personas import person_of, read_persona
from tavern_host import InvalidInput, NodeContext, Slot, TavernError, node
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, ActivationRequest, ActiveEntry

_PLACES = ("before_char", "after_char", "before_an", "after_an", "at_depth", "before_examples", "after_examples")


class CharacterParts(TypedDict):
    """What the node gives."""

    preset: Annotated[dict[str, Any], Slot("The preset, with who the user is.", display_name="Preset")]
    world: Annotated[dict[str, Any], Slot("The entries that the conversation calls up.", display_name="World book")]
    character: Annotated[
        dict[str, Any], Slot("The card.", display_name="Character", match_categories=("CharacterProfile",))
    ]
    left_out: Annotated[list[Any], Slot("Entries that were called up and stay out, and why.", display_name="Left out")]


@node(type="CharacterContext", category="Knowledge", display_name="🎭 Character", width=320, cached=False)
async def character_context(
    context: NodeContext,
    messages: Annotated[list[Any], Slot("The conversation, oldest first.", match_categories=("ChatHistory",))],
    character: Annotated[str, Slot("The character's id; empty for that of the agent that thinks.")] = "",
    preset: Annotated[dict[str, Any] | None, Slot("A preset, from PresetLoader.")] = None,
    scan_depth: Annotated[int, Slot("How many of the last messages call entries up.", min=0, max=100)] = 4,
    budget: Annotated[int, Slot("How many tokens the entries may take; 0 for no limit.", min=0)] = 0,
) -> CharacterParts:
    """Gather a character's card, the entries of its books that the conversation calls up, and who the user is."""
    plugin, caller = context.plugin, context.call.principal
    id = character.strip()
    if not id and caller.kind == "agent":
        profile = await plugin.services.get(AGENT_RUNTIME).get(caller.id)
        id = str(profile.custom_metadata.get("character") or caller.id)
    if not id:
        raise InvalidInput("CharacterContext: name a character, or let an agent that was made of a card think")
    card = await asyncio.to_thread(CharacterFolder(plugin.project.root).card, id)
    persona = await asyncio.to_thread(read_persona, plugin.operator_dir, person_of(context.call))
    chat = ""
    with suppress(TavernError):  # it is run by hand, or by an agent without a memory
        memory = await plugin.services.get(AGENT_RUNTIME).recall(call=context.call)
        chat = memory.conversation_id
        if isinstance(name := memory.state.get(USER), str) and name.strip():
            persona = Persona.model_construct(name=name, description=str(memory.state.get(PERSONA) or ""))
    request = ActivationRequest(
        messages=[_text(one) for one in messages],
        bases=None if caller.kind == "agent" else [id],
        seed=chat,
        budget=budget,
        scan_depth=scan_depth,
    )
    found = await plugin.services.get(KNOWLEDGE_BASE).activate(request, call=context.call)
    entries = [_entry(one) for one in found.entries if one.placement != "outlet"]
    seed = f"{chat}:{len(messages)}"
    about = {"user_name": persona.name, "persona_description": persona.description}
    return {
        "preset": {**(preset or {}), **about, "macro_seed": seed, "macro_chat": chat},
        "world": {"entries": [*entries, *([card.note] if card.note is not None else [])]},
        "character": card.for_prompts(id),
        "left_out": [one.to_json() for one in found.left_out],
    }


def _text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else getattr(message, "content", message)
    return content if isinstance(content, str) else ""


def _entry(entry: ActiveEntry) -> dict[str, Any]:
    """Return an entry that was called up as one of a world book that is always there."""
    at_depth = entry.depth_offset is not None
    place = _PLACES.index("at_depth" if at_depth else entry.placement if entry.placement in _PLACES else "before_char")
    return {
        "content": entry.text,
        "constant": True,
        "position": place,
        "depth": entry.depth_offset if at_depth else 4,
        "role": entry.role or "system",
        "insertion_order": entry.priority,
    }
