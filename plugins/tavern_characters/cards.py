"""Character cards as data: all versions read as one, with the document that they came in kept as it is.

Cards in circulation have empty and wrong fields; what cannot be used is named and passed over.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tavern_characters.api.characters import CardFormat
from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.api.forms import form_of

TEXTS = ("name", "description", "personality", "scenario", "first_mes", "mes_example")
"""What every version has."""
LATER_TEXTS = (
    "creator_notes",
    "system_prompt",
    "post_history_instructions",
    "creator",
    "character_version",
    "nickname",
)
LISTS = ("alternate_greetings", "group_only_greetings", "tags")
_V2 = {*TEXTS, *LATER_TEXTS[:5], "alternate_greetings", "tags", "extensions", "character_book"}
_V1 = {*TEXTS}
_HARMLESS = {"fav", "talkativeness", "world", "chub", "depth_prompt", "fav_avatar"}
"""Keys of `extensions` that need have no effect, or have one."""
_WITHOUT_EFFECT = ("assets",)
_SPECS = {"card_v2": ("chara_card_v2", "2.0"), "card_v3": ("chara_card_v3", "3.0")}
DEPTH = 4


@dataclass(frozen=True)
class Card:
    """A card: the `document` as it came, and `data`, the part of it that holds the fields."""

    document: dict[str, Any]
    data: dict[str, Any]
    format: CardFormat
    odd: list[str] = field(default_factory=list)
    """The fields that are not of the type that they should be."""

    @classmethod
    def of(cls, document: dict[str, Any], where: str) -> Card:
        """Return the card that a document is. Raises `InvalidInput` for anything else."""
        form = form_of(document)
        if form is None or form.kind != "card":
            what = "it is no character card" if form is None else f"it is {form.label}: {form.command} takes it"
            raise InvalidInput(f"{where}: {what}")
        inner = document.get("data")
        spec = str(document.get("spec") or (inner if isinstance(inner, dict) else {}).get("spec") or "")
        data = inner if isinstance(inner, dict) else document
        format: CardFormat = "card_v3" if spec == "chara_card_v3" else "card_v2" if spec or data is inner else "card_v1"
        wrong = [key for key in (*TEXTS, *LATER_TEXTS) if not isinstance(data.get(key), str | None)]
        wrong += [key for key in LISTS if not _is_texts(data.get(key))]
        wrong += [key for key in ("extensions", "character_book") if not isinstance(data.get(key), dict | None)]
        return cls(document, data, format, wrong)

    def text(self, key: str) -> str:
        """Return a field that is a text; of a list of texts its lines."""
        found = self.data.get(key)
        if isinstance(found, list) and _is_texts(found):
            return "\n".join(found)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return str(found)
        return found.replace("\r\n", "\n") if isinstance(found, str) else ""

    def texts(self, key: str) -> list[str]:
        """Return a field that is a list of texts; one text is a list of one."""
        found = self.data.get(key)
        found = [found] if isinstance(found, str) and found.strip() else found
        return [one.replace("\r\n", "\n") for one in found if isinstance(one, str)] if isinstance(found, list) else []

    @cached_property
    def extensions(self) -> dict[str, Any]:
        """What other programs have noted."""
        found = self.data.get("extensions")
        return found if isinstance(found, dict) else {}

    @cached_property
    def book(self) -> dict[str, Any] | None:
        """The book that the card carries, None where it has no entries."""
        found = self.data.get("character_book")
        return found if isinstance(found, dict) and found.get("entries") else None

    @property
    def greetings(self) -> list[str]:
        """The first message and those in its place."""
        return [one for one in (self.text("first_mes"), *self.texts("alternate_greetings")) if one.strip()]

    def name(self, otherwise: str) -> str:
        """Return the character's name."""
        words = "".join(one if one.isprintable() else " " for one in self.text("name")[:1_000]).split()
        return " ".join(words)[:200] or otherwise

    @property
    def unsupported(self) -> list[str]:
        """What has no effect here, and what is of the wrong type."""
        named = [key for key in _WITHOUT_EFFECT if self.data.get(key)]
        icons = self.data.get("assets")
        if isinstance(icons, list) and all(isinstance(one, dict) and one.get("type") == "icon" for one in icons):
            named = [key for key in named if key != "assets"]
        named += [f"extensions.{key}" for key, value in self.extensions.items() if value and key not in _HARMLESS]
        return sorted([*named, *(f"{key}: of the wrong type" for key in self.odd)])

    def for_prompts(self, otherwise: str) -> dict[str, Any]:
        """Return the card as `core:ContextBuilder` reads it, without its book."""
        card: dict[str, Any] = {key: self.text(key) for key in (*TEXTS, *LATER_TEXTS)}
        return {**card, "name": self.name(otherwise), "alternate_greetings": self.texts("alternate_greetings")}

    @property
    def note(self) -> dict[str, Any] | None:
        """The card's own note as an entry of a world book that is always there, at its depth."""
        note = self.extensions.get("depth_prompt")
        if not isinstance(note, dict) or not isinstance(text := note.get("prompt"), str) or not text.strip():
            return None
        depth, role = note.get("depth"), note.get("role")
        return {
            "content": text,
            "constant": True,
            "position": 4,
            "depth": depth if isinstance(depth, int) and not isinstance(depth, bool) else DEPTH,
            "role": role if role in ("system", "user", "assistant") else "system",
            "insertion_order": 1_000_000,
        }

    def changed(self, changes: dict[str, Any]) -> Card:
        """Return the card with other texts, and lists of texts, in fields; one that says the same stays as it is
        written. Copies that older programs read above `data` follow."""
        document = copy.deepcopy(self.document)
        data = document if self.data is self.document else document["data"]
        for key, value in changes.items():
            if value == (self.texts(key) if key in LISTS else self.text(key)):
                continue
            data[key] = value
            if key in document:
                document[key] = value
        return Card.of(document, "the card")

    def written(self, book: dict[str, Any] | None, format: CardFormat) -> tuple[dict[str, Any], list[str]]:
        """Return the card as a document of a version, with this book in the place of its own, and what that version
        cannot hold."""
        data = dict(self.data)
        if book is not None:
            data["character_book"] = book
        above = {key: value for key, value in self.document.items() if key != "data"}
        if format == self.format:
            return ({**above, "data": data} if self.data is not self.document else data), []
        data = {key: copy.copy(value) for key, value in data.items() if key not in ("spec", "spec_version", "data")}
        known = {"card_v1": _V1, "card_v2": _V2}.get(format)
        lost = sorted(
            key for key, value in data.items() if known and key not in known and value not in (None, "", [], {})
        )
        if known is not None:
            data = {key: value for key, value in data.items() if key in known}
        if format == "card_v1":
            return {**{key: self.text(key) for key in TEXTS}, **data}, lost
        empty: dict[str, Any] = {**dict.fromkeys((*TEXTS, *LATER_TEXTS[:5]), ""), "alternate_greetings": []}
        empty |= {"tags": [], "extensions": {}, **({"group_only_greetings": []} if format == "card_v3" else {})}
        spec, version = _SPECS[format]
        return {"spec": spec, "spec_version": version, "data": {**empty, **data}}, lost


def id_of(name: str) -> str:
    """Return an id for a character of this name: the name of a file, an agent and a knowledge base."""
    return re.sub(r"[^\w]+", "-", name.lower()).strip("-_")[:60].strip("-_") or "character"


def _is_texts(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value))
