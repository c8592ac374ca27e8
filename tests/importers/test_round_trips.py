"""What people bring is used, and leaves as it came: every card, book, chat, conversation and workflow of the table."""

from __future__ import annotations

import json
from typing import Any

from helpers.repetition import Failures

from tavern_agents.api.histories import CHAT_HISTORY
from tavern_characters.api.characters import CHARACTERS, Persona
from tavern_host import WORKFLOW_MANAGER
from tavern_knowledge.api.containers import carried_card
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE
from tests.importers.foreign_files import KNOWN
from tests.importers.imports_bench import Imports

CARDS = ("character", "character-picture", "character-archive")


def of_kinds(*kinds: str) -> list[tuple[str, bytes]]:
    return [(name, content) for name, (kind, content) in KNOWN.items() if kind in kinds]


def texts_in(value: Any) -> set[str]:
    """Return the texts of the entries of a book, whatever its form calls them."""
    if isinstance(value, dict):
        own = {text for key in ("content", "text", "entry") if isinstance(text := value.get(key), str) and text}
        return own.union(*(texts_in(one) for one in value.values()))
    return set().union(*(texts_in(one) for one in value)) if isinstance(value, list) else set()


async def test_each_card_greets_and_leaves_as_it_came(imports: Imports) -> None:
    characters = imports.host.services.get(CHARACTERS)
    await characters.save_persona(Persona(name="Ada"))
    with Failures() as failures:
        for name, content in of_kinds(*CARDS):
            with failures.row(name):
                card = json.loads(carried_card(content, 1 << 20).text.decode("utf-8-sig"))
                fields = card.get("data", card)
                agent = (await imports.take(name, content)).things[0].id
                begun = await characters.begin(agent)
                assert bool(begun.greeting) == ("first_mes" in fields)
                assert not any(mark in begun.greeting for mark in ("{{user}}", "{{char}}", "{{newline}}"))
                greetings = [one for one in (fields.get("first_mes"), *fields.get("alternate_greetings", [])) if one]
                assert begun.greetings == len(greetings)
                assert json.loads((await characters.export_card(agent)).content) == card


async def test_each_book_keeps_the_texts_of_its_entries(imports: Imports) -> None:
    knowledge = imports.host.services.get(KNOWLEDGE_BASE)
    with Failures() as failures:
        for name, content in of_kinds("lorebook"):
            with failures.row(name):
                base = (await imports.take(name, content)).things[0].id
                back = json.loads((await knowledge.export_base(base, format="world_info")).content)
                assert texts_in(back) == texts_in(json.loads(content)) != set()


async def test_chats_and_conversations_leave_as_they_came(imports: Imports) -> None:
    characters, histories = imports.host.services.get(CHARACTERS), imports.host.services.get(CHAT_HISTORY)
    await imports.take("card.png", KNOWN["card.png"][1])
    with Failures() as failures:
        for name, content in of_kinds("chat"):
            with failures.row(name):
                talk = (await imports.take(name, content)).things[0].id
                lines = content.decode("utf-16" if "UTF-16" in name else "utf-8").splitlines()
                said = [json.loads(one) for one in (await characters.export_chat(talk)).content.splitlines()]
                assert [(one["name"], one["mes"]) for one in said[1:]] == [
                    (one["name"], one["mes"]) for one in map(json.loads, lines[1:])
                ]
    sent = json.loads(KNOWN["conversation.json"][1])
    talk = (await imports.take("conversation.json", KNOWN["conversation.json"][1])).things[0].id
    back = (await histories.export_history(talk)).to_json()
    assert [one["message"]["content"] for one in back["messages"]] == [
        one["message"]["content"] for one in sent["messages"]
    ]


async def test_workflows_leave_as_they_came(imports: Imports) -> None:
    sent = json.loads(KNOWN["workflow.json"][1])
    for name, content in of_kinds("workflow", "workflow-picture"):
        stored = await imports.host.services.get(WORKFLOW_MANAGER).get((await imports.take(name, content)).things[0].id)
        back = stored.workflow.model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert {key: back[key] for key in sent} == sent
