"""Builds the messages that a language model gets, of a preset, a character, world books and a conversation.

The rules, after the conventions of character cards (version 2 and 3) and of SillyTavern:

- The preset says what comes and in which order: prompts of its own, and the places of the world book (before and
  after the character), the persona, the character's description, personality and scenario, the examples, the
  conversation. What is empty is left out; the conversation always comes.
- The card's `system_prompt` takes the place of the main prompt, its `post_history_instructions` that of the one after
  the conversation, unless the preset forbids it; `{{original}}` in them is what they replaced.
- An empty conversation begins with the card's first message.
- Prompts and entries with a depth stand that many messages before the end: 0 is the very end.
- Macros are filled in everywhere but in the conversation: `{{char}}`, `{{user}}`, `{{persona}}`, `{{description}}`,
  `{{personality}}`, `{{scenario}}`, the last messages, and those that `api.macros` knows by itself. The preset's
  `macro_seed` and `macro_chat` say what chance comes from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tavern_nodes.api.macros import Macros
from tavern_nodes.api.patterns import Allowance
from tavern_nodes.cards import read_card
from tavern_nodes.conversation import Message, message
from tavern_nodes.presets import AFTER_HISTORY, HISTORY, MAIN, Preset, Prompt, read_preset
from tavern_nodes.values import MAX_TEXT, bounded
from tavern_nodes.worldbooks import Book, Entry, read_book

MAX_MADE = 4 * MAX_TEXT
"""How many characters the parts may have together, before some of them are left out."""

_EXAMPLES = "An example of how {{char}} talks:"
_NOBODY = "Assistant"
_LATEST = (
    ("message", "user", "assistant"),
    ("usermessage", "user"),
    ("charmessage", "assistant"),
)
"""The macros for the latest messages, each with the roles that it looks for."""


def build_messages(
    preset: Any, world: Any, character: Any, history: list[Message], allowance: Allowance, who: str
) -> list[Message]:
    """Return the messages, in order. Raises `InvalidInput` beginning with `who`, and `OutOfTime`."""
    card = read_card(character, f"{who}: characterData") if character else {}
    return _Builder(read_preset(preset, f"{who}: presetData"), card, who).build(
        [
            read_book(world, f"{who}: worldBookData", allowance),
            read_book(card.get("character_book"), f"{who}: character_book", allowance),
        ],
        history,
        allowance,
    )


def _latest(history: list[Message], *roles: str) -> str:
    return next((item["content"] for item in reversed(history) if item["role"] in roles), "")


class _Builder:
    def __init__(self, preset: Preset, card: Mapping[str, Any], who: str) -> None:
        self._preset = preset
        self._card = card
        self._who = who
        self._made = 0
        name = str(card.get("nickname") or card.get("name") or _NOBODY)
        self._values = {"user": preset.user, "char": name, "group": name, "charifnotgroup": name}
        self._macros = Macros(self._values, who, preset.macro_seed, preset.macro_chat)
        for key in ("description", "personality", "scenario"):
            self._values[key] = self._filled(str(card.get(key) or ""))
        self._values["persona"] = self._filled(preset.persona)
        self._values["mesexamples"] = self._values["mesexamplesraw"] = self._filled(str(card.get("mes_example") or ""))
        self._values["charversion"] = self._values["char_version"] = str(card.get("character_version") or "")

    def build(self, books: list[Book], history: list[Message], allowance: Allowance) -> list[Message]:
        """Return the messages of all parts."""
        first = self._filled(str(self._card.get("first_mes") or ""))
        if not history and first:
            history = [message("assistant", first)]
        said = [item["content"] for item in history]
        self._values |= {f"last{name}": _latest(history, *roles) for name, *roles in _LATEST}
        entries = [entry for book in books for entry in book.called_up(said, allowance)]
        entries = [replace(e, content=self._filled(e.content)) for e in sorted(entries, key=lambda e: e.order)]
        conversation = self._with_insertions(history, entries)
        found: list[Message] = []
        for prompt in self._preset.prompts:
            if prompt.identifier == HISTORY:
                found += conversation
            elif prompt.depth is None:
                found += [message(prompt.role, text) for text in self._texts(prompt, entries) if text.strip()]
        bounded(sum(len(item["content"]) for item in found), MAX_TEXT, self._who, "characters")
        return found

    def _texts(self, prompt: Prompt, entries: list[Entry]) -> list[str]:
        """Return the texts of a place that is not the conversation."""
        places = {
            "worldInfoBefore": lambda: [self._world(entries, "before")],
            "worldInfoAfter": lambda: [self._world(entries, "after")],
            "personaDescription": lambda: [self._values["persona"]],
            "charDescription": lambda: [self._values["description"]],
            "charPersonality": lambda: [self._format(self._preset.personality_format, "personality")],
            "scenario": lambda: [self._format(self._preset.scenario_format, "scenario")],
            "dialogueExamples": lambda: self._examples(entries),
        }
        place = places.get(prompt.identifier)
        return place() if place is not None else [self._content(prompt)]

    def _content(self, prompt: Prompt) -> str:
        """Return a prompt's text, or what the card puts in its place."""
        original = self._filled(prompt.content)
        own = {MAIN: "system_prompt", AFTER_HISTORY: "post_history_instructions"}.get(prompt.identifier)
        instead = str(self._card.get(own) or "") if own and prompt.replaceable else ""
        if not instead.strip():
            return original
        return self._filled(instead, original=original)

    def _with_insertions(self, history: list[Message], entries: list[Entry]) -> list[Message]:
        """Return the conversation with what stands at a depth of it; at one depth, world entries come first."""
        at: dict[int, list[Message]] = defaultdict(list)
        inserted = [(e.depth, e.role, e.content) for e in entries if e.position == "depth"]
        inserted += [(p.depth, p.role, self._content(p)) for p in self._preset.prompts if p.depth is not None]
        for depth, role, text in inserted:
            place = max(0, len(history) - depth)
            while 0 < place < len(history) and history[place]["role"] == "tool":
                place -= 1  # nothing stands between a call and its result
            if text.strip():
                at[place].append(message(role, text))
        found: list[Message] = []
        for index, item in enumerate(history):
            found += [*at[index], item]
        return found + at[len(history)]

    def _world(self, entries: list[Entry], position: str) -> str:
        text = "\n".join(entry.content for entry in entries if entry.position == position)
        if not text.strip():
            return ""
        template = self._preset.world_format
        self._count(template.count("{0}") * len(text))
        return template.replace("{0}", text)

    def _examples(self, entries: list[Entry]) -> list[str]:
        written = self._filled(str(self._card.get("mes_example") or ""))
        blocks = [block.strip() for block in written.split("<START>")]
        heading = self._filled(_EXAMPLES)
        examples = [f"{heading}\n{block}" for block in blocks if block]
        return [self._world(entries, "before_examples"), *examples, self._world(entries, "after_examples")]

    def _format(self, template: str, key: str) -> str:
        return self._filled(template) if self._values[key].strip() else ""

    def _filled(self, text: str, **more: str) -> str:
        found = self._macros.fill(text, **more)
        self._count(len(found))
        return found

    def _count(self, length: int) -> None:
        """Raise `InvalidInput` where macros make much more text of all parts together than can be sent."""
        self._made += length
        bounded(self._made, MAX_MADE, self._who, "characters")
