"""By which marks the files of other programs for characters and their worlds are known, and which command takes each.

Decides by what stands in a file alone; reads no entry of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.api.containers import carried_card

MAX_JSON = 8 << 20
"""How many bytes of JSON a card or a book may have."""

Kind = Literal["card", "book", "chat", "preset"]
Family = Literal["silly", "character_book", "lorebook_v3", "novelai", "agnai", "risu", "card", "chat", "preset"]


@dataclass(frozen=True)
class Form:
    """A form of file: its kind and whose it is, what people call it, and the command that takes it."""

    kind: Kind
    family: Family
    label: str
    command: str


_CARD, _BOOK = "tavern character import FILE", "tavern kb import FILE"
FORMS: dict[Family, Form] = {
    "card": Form("card", "card", "a character card", _CARD),
    "silly": Form("book", "silly", "a lorebook of SillyTavern", _BOOK),
    "character_book": Form("book", "character_book", "the book of a character card", _BOOK),
    "lorebook_v3": Form("book", "lorebook_v3", "a lorebook (V3)", _BOOK),
    "novelai": Form("book", "novelai", "a lorebook of NovelAI", _BOOK),
    "agnai": Form("book", "agnai", "a memory book of Agnai", _BOOK),
    "risu": Form("book", "risu", "a lorebook of RisuAI", _BOOK),
    "chat": Form("chat", "chat", "a chat of SillyTavern", "tavern character import-chat FILE"),
    "preset": Form("preset", "preset", "a preset of SillyTavern", "tavern character preset FILE"),
}
_CARD_FIELDS = ("first_mes", "personality", "mes_example", "description", "scenario", "alternate_greetings")


def form_of(document: Any) -> Form | None:
    """Return which form a decoded JSON document is of; None for anything else."""
    if not isinstance(document, dict):
        return None
    marks: tuple[tuple[Family, Callable[[dict[str, Any]], bool]], ...] = (
        ("card", _is_card),
        ("lorebook_v3", lambda one: one.get("spec") == "lorebook_v3" and isinstance(one.get("data"), dict)),
        ("preset", lambda one: isinstance(one.get("prompts"), list) and "prompt_order" in one),
        ("risu", lambda one: one.get("type") == "risu" or (isinstance(one.get("data"), list) and "ver" in one)),
        ("chat", lambda one: {"user_name", "character_name"} <= one.keys() or "chat_metadata" in one),
        ("novelai", lambda one: "lorebookVersion" in one),
        ("agnai", lambda one: one.get("kind") == "memory" or _has(one, "entry", "keywords")),
        ("silly", lambda one: isinstance(one.get("entries"), dict)),
        ("character_book", lambda one: isinstance(one.get("entries"), list) and _are_entries(one["entries"])),
    )
    return next((FORMS[family] for family, fits in marks if fits(document)), None)


def recognise(data: bytes) -> Form | None:
    """Return which form a file is of, a picture or an archive by the card that it carries; None for anything else.

    Decodes up to `MAX_JSON` bytes of JSON: call it on a thread.
    """
    try:
        text = carried_card(data, MAX_JSON).text
    except InvalidInput:
        return None
    if len(text) > 2 * MAX_JSON:
        return None
    for part in (text, text.lstrip(b"\xef\xbb\xbf \r\n\t").partition(b"\n")[0]):  # a chat has an object on each line
        try:
            return form_of(json.loads(part.decode("utf-8-sig")))
        except (ValueError, RecursionError):
            continue
    return None


def _is_card(document: dict[str, Any]) -> bool:
    if str(document.get("spec", "")).startswith("chara_card"):
        return True
    inner = document.get("data")
    fields = inner if isinstance(inner, dict) else document
    if isinstance(document.get("entries"), dict | list) or "core_deliberation_workflow_id" in document:
        return False
    return "name" in fields and ("first_mes" in fields or sum(key in fields for key in _CARD_FIELDS) > 1)


def _has(document: dict[str, Any], *fields: str) -> bool:
    entries = document.get("entries")
    first = entries[0] if isinstance(entries, list) and entries else None
    return isinstance(first, dict) and all(field in first for field in fields)


def _are_entries(entries: list[Any]) -> bool:
    """Whether these are entries of a book and not of a knowledge base of ours, whose `content` are objects."""
    return not any(isinstance(one, dict) and isinstance(one.get("content"), dict) for one in entries)
