"""Entries of the books of other programs, with the names that SillyTavern's world files have for the same.

Each function takes an entry as it stands in its file; `FIELDS` are those that it reads, so that others can be named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.api.forms import Family

Entry = dict[str, Any]

WORLD = {
    *("key", "keysecondary", "comment", "content", "constant", "selective", "selectiveLogic", "order", "position"),
    *("disable", "probability", "useProbability", "depth", "scanDepth", "caseSensitive", "matchWholeWords", "role"),
    *("sticky", "cooldown", "delay", "excludeRecursion", "preventRecursion", "delayUntilRecursion"),
    *("group", "groupWeight", "groupOverride", "useGroupScoring"),
}
PLACES: tuple[str, ...] = ("before_char", "after_char", "before_an", "after_an", "at_depth")
PLACES += ("before_examples", "after_examples", "outlet")

_SAME = ("position", "probability", "useProbability", "depth", "selectiveLogic", "role", "sticky", "cooldown", "delay")
IN_EXTENSIONS = {name: name for name in (*_SAME, "group")} | {
    **{"scan_depth": "scanDepth", "match_whole_words": "matchWholeWords", "case_sensitive": "caseSensitive"},
    **{"exclude_recursion": "excludeRecursion", "prevent_recursion": "preventRecursion"},
    **{"delay_until_recursion": "delayUntilRecursion", "group_weight": "groupWeight"},
    **{"group_override": "groupOverride", "use_group_scoring": "useGroupScoring"},
}
"""Fields of a world's entry that a card keeps in the entry's `extensions`."""
BOOK_NAMES = {"keys": "key", "secondary_keys": "keysecondary", "content": "content", "constant": "constant"}

FIELDS: dict[str, set[str]] = {
    "world_info": WORLD,
    "character_book": {
        *("keys", "secondary_keys", "content", "enabled", "insertion_order", "case_sensitive", "name", "comment"),
        *("selective", "constant", "position", "priority", "use_regex"),
    },
    "novelai": {"text", "keys", "displayName", "enabled", "forceActivation", "contextConfig"},
    "agnai": {"name", "entry", "keywords", "weight", "enabled"},
    "risu": {
        *("key", "secondkey", "insertorder", "comment", "content", "alwaysActive", "selective", "activationPercent"),
        "useRegex",
    },
}


TEXTS = {"novelai": "text", "agnai": "entry"}
"""The field with the text of an entry, where it is not `content`."""


def entries_in(document: dict[str, Any], family: Family) -> tuple[str, Any]:
    """Return the kind of the entries of a document, by which `AS_WORLD` knows them, and the entries."""
    if family == "risu":
        return "risu", [one for one in as_list(document.get("data")) if as_object(one).get("mode") != "folder"]
    if family == "silly":
        entries = document.get("entries")
        first = as_object(next(iter(entries.values()), None)) if isinstance(entries, dict) else {}
        return ("character_book" if "keys" in first and "key" not in first else "world_info"), entries
    kinds = {"novelai": "novelai", "agnai": "agnai"}
    return kinds.get(family, "character_book"), document.get("entries")


def of_world(entry: Entry) -> Entry:
    """An entry of SillyTavern's world files, and of those that Chub writes with the names of both."""
    return entry if "key" in entry or "keys" not in entry else {**of_book(entry), **entry}


def of_book(entry: Entry) -> Entry:
    """An entry of the book of a character card (V2, V3)."""
    inner = as_object(entry.get("extensions"))
    more = {new: inner[old] for old, new in IN_EXTENSIONS.items() if old in inner}
    place = entry.get("position")
    if isinstance(place, str) and place in PLACES and "position" not in more:
        more["position"] = PLACES.index(place)
    if isinstance(entry.get("case_sensitive"), bool):
        more["caseSensitive"] = entry["case_sensitive"]
    order = entry.get("priority") if entry.get("priority") is not None else entry.get("insertion_order")
    named = {ours: entry.get(theirs) for theirs, ours in BOOK_NAMES.items()}
    if entry.get("use_regex") is True:
        named["key"] = [_as_pattern(key) for key in as_list(named["key"])]
    named |= {"selective": entry.get("selective", False), "disable": entry.get("enabled") is False, "order": order}
    return {**named, "comment": entry.get("comment") or entry.get("name"), **more}


def of_novelai(entry: Entry) -> Entry:
    """An entry of a lorebook of NovelAI: of those that it takes first the priority is the largest."""
    config = as_object(entry.get("contextConfig"))
    return {
        "key": entry.get("keys"),
        "comment": entry.get("displayName"),
        "content": entry.get("text"),
        "constant": entry.get("forceActivation", False),
        "disable": entry.get("enabled") is False,
        "order": config.get("budgetPriority"),
        "probability": 100,
    }


def of_agnai(entry: Entry) -> Entry:
    """An entry of a memory book of Agnai."""
    named = {"key": entry.get("keywords"), "comment": entry.get("name"), "content": entry.get("entry")}
    return {**named, "order": entry.get("weight"), "disable": entry.get("enabled") is False}


def of_risu(entry: Entry) -> Entry:
    """An entry of a lorebook of RisuAI, whose keys are one text with commas."""
    keys = entry.get("key")
    is_pattern = entry.get("useRegex") is True and isinstance(keys, str)
    return {
        "key": [_as_pattern(keys)] if is_pattern else keys,
        "keysecondary": entry.get("secondkey"),
        "selective": entry.get("selective", False),
        "comment": entry.get("comment"),
        "content": entry.get("content"),
        "constant": entry.get("alwaysActive", False),
        "order": entry.get("insertorder"),
        "probability": entry.get("activationPercent"),
    }


AS_WORLD: dict[str, Callable[[Entry], Entry]] = {
    "world_info": of_world,
    "character_book": of_book,
    "novelai": of_novelai,
    "agnai": of_agnai,
    "risu": of_risu,
}


def check_text(kind: str, entry: Entry, content: Any, where: str) -> None:
    """Raise `InvalidInput` where the text of an entry would be lost: it has none, but another field that may be it."""
    if isinstance(content, str) and content.strip():
        return
    names = {*FIELDS[kind], *FIELDS["world_info"], *FIELDS["character_book"], *HARMLESS}
    least = 20 if isinstance(content, str) else 0
    others = [key for key, value in entry.items() if key not in names and isinstance(value, str) and len(value) > least]
    if others or (content is None and not entry.keys() & names):
        seen = ", ".join(map(repr, others or list(entry)[:10])) or "nothing"
        raise InvalidInput(f"{where}: it has no content, and its text would be lost: there is {seen}", fields=seen)


HARMLESS = {
    *("uid", "id", "name", "comment", "extensions", "insertion_order", "addMemo", "displayIndex", "display_index"),
    *("characterFilter", "lastUpdatedAt", "loreBiasGroups", "category", "automationId", "outletName", "avatar"),
}
"""Fields in which the text of an entry is not looked for."""


def as_object(value: Any) -> dict[str, Any]:
    """Return an object as it is, an empty one in the place of anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, an empty one in the place of anything else."""
    return value if isinstance(value, list) else []


def _as_pattern(key: Any) -> Any:
    """Return a key that is a regular expression, as such: most are written `/…/flags` already."""
    return f"/{key}/" if isinstance(key, str) and key and not key.startswith("/") else key
