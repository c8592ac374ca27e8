"""How a conversation with a character begins: its greetings as versions of the first message."""

from __future__ import annotations

from tavern_agents.api.histories import ExportedBranch, ExportedMemory, HistoryExport, HistoryMessage
from tavern_agents.api.memory import KeptMemory
from tavern_characters.api.characters import Persona
from tavern_characters.cards import Card
from tavern_host import clock
from tavern_host.contracts.calls import new_id
from tavern_llm.api.llm import ChatMessage
from tavern_nodes.api.macros import Macros

USER, PERSONA = "user", "persona"
"""The keys of an agent's private state for whom it talks with: who that was when the conversation began."""


def macros_of(card: Card, persona: Persona, name: str, seed: str) -> Macros:
    """Return the macros of what a character says first."""
    values = {"user": persona.name, "char": card.text("nickname").strip() or name}
    macros = Macros(values, name, seed, seed)
    for key in ("description", "personality", "scenario"):
        values[key] = macros.fill(card.text(key))
    values[PERSONA] = macros.fill(persona.description)
    return macros


def group_greeting(card: Card, persona: Persona, name: str, conversation: str) -> str:
    """Return a character's first words where others are; empty for one that has no greeting."""
    texts = [one for one in card.texts("group_only_greetings") if one.strip()] or card.greetings
    return macros_of(card, persona, name, conversation).fill(texts[0]) if texts else ""


def beginning(conversation: str, agent: str, card: Card, persona: Persona, name: str) -> HistoryExport | None:
    """Return a conversation that has only the greetings of a character, the first of them shown; None where it has no
    greeting."""
    macros, now = macros_of(card, persona, name, conversation), clock.now()
    texts = [macros.fill(text) for text in card.greetings]
    messages = [
        HistoryMessage(id=new_id("msg"), message=ChatMessage(role="assistant", content=text, name=name), created_at=now)
        for text in texts
    ]
    if not messages:
        return None
    state = KeptMemory(state={USER: persona.name, PERSONA: persona.description})
    return HistoryExport(
        id=conversation,
        title=name,
        created_at=now,
        changed_at=now,
        active="main",
        branches=[ExportedBranch(name="main", head=messages[0].id, created_at=now, changed_at=now)],
        messages=messages,
        memories=[ExportedMemory(message_id=one.id, agents={agent: state}) for one in messages],
    )
