"""Entries of SillyTavern's world files and of the books in character cards (V2, V3), as entries of a base and back.

What an entry has here decides; what it has not, or what has no effect here, is kept in
`extensions.st_import_metadata` and written back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tavern_host.contracts.documents import json_type
from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.api.knowledge import KnowledgeEntry
from tavern_knowledge.index import Row, entry_of

KEPT = "st_import_metadata"
MAX_ENTRIES = 10_000
MAX_DEPTH = 100
"""How many messages are searched at most."""

_LOGIC = ("OR", "NOT_ALL", "NOT", "AND")
"""What secondary keys ask for, by SillyTavern's numbers."""
_ROLES = ("system", "user", "assistant")
_PLACES: tuple[str, ...] = ("before_char", "after_char", "before_an", "after_an", "at_depth")
_PLACES += ("before_examples", "after_examples", "outlet")
_AT_DEPTH = 4
_COMPARED = {"caseSensitive": "case_sensitive", "matchWholeWords": "whole_words"}

_WORLD = {"key", "keysecondary", "comment", "content", "constant", "selective", "selectiveLogic", "order", "position"}
_WORLD |= {"disable", "probability", "useProbability", "depth", "scanDepth", "caseSensitive", "matchWholeWords", "role"}
_BOOK = {"keys", "secondary_keys", "content", "enabled", "insertion_order", "case_sensitive", "name", "comment"}
_BOOK |= {"selective", "constant", "position", "priority"}
_SAME = ("position", "probability", "useProbability", "depth", "selectiveLogic", "role")
_OTHERS = {"scan_depth": "scanDepth", "match_whole_words": "matchWholeWords", "case_sensitive": "caseSensitive"}
_BOOK_EXTENSIONS = {name: name for name in _SAME} | _OTHERS
"""Fields of a world's entry that a card keeps in the entry's `extensions`."""
_BOOK_NAMES = {"keys": "key", "secondary_keys": "keysecondary", "content": "content", "constant": "constant"}
_HARMLESS = {"uid", "id", "name", "comment", "extensions", "insertion_order"}
_HARMLESS |= {"addMemo", "displayIndex", "display_index"}
"""Fields that are kept and written back, and need have no effect."""
_DEFAULTS: dict[str, Any] = {"groupWeight": 100, "group_weight": 100, "probability": 100}


def entries_of(value: Any, kind: str) -> tuple[list[Row], set[str]]:
    """Return the entries of a book and which of their fields have no effect here. `kind` is `world_info` or
    `character_book`. Raises `InvalidInput` naming the entry."""
    listed = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(listed, list) or len(listed) > MAX_ENTRIES:
        what = f"{len(listed):,} entries" if isinstance(listed, list) else json_type(value)
        raise InvalidInput(f"$.entries: expected at most {MAX_ENTRIES:,} entries, got {what}")
    found: list[Row] = []
    unsupported: set[str] = set()
    ids: set[str] = set()
    for index, entry in enumerate(listed):
        if not isinstance(entry, dict):
            raise InvalidInput(f"$.entries[{index}]: expected an object, got {json_type(entry)}")
        reader = _Fields(entry if kind == "world_info" else _as_world(entry), f"$.entries[{index}]")
        number = entry.get("uid", entry.get("id"))
        id = f"st-{index if number is None or f'st-{number}' in ids else number}"[:200]
        while id in ids:
            id += "-2"
        ids.add(id)
        mapped = _WORLD if kind == "world_info" else _BOOK
        kept = {key: each for key, each in entry.items() if key not in mapped}
        if kind == "character_book" and entry.get("priority") is not None:
            kept["insertion_order"] = entry.get("insertion_order", 100)
        if kind == "character_book" and {"name", "comment"} <= entry.keys():
            unused = "name" if entry["comment"] else "comment"
            kept |= {unused: entry[unused]} if entry["name"] != entry["comment"] else {}
        if kind == "character_book" and "extensions" in kept:
            inner = as_object(kept["extensions"])
            kept["extensions"] = {key: each for key, each in inner.items() if key not in _BOOK_EXTENSIONS}
        found.append(Row.of(_entry(id, reader, {"format": kind, "fields": kept})))
        unsupported |= {f"entries.{name}" for name in _without_effect(kept)}
        keys = reader.texts("key") + reader.texts("keysecondary")
        if any(key.startswith("/") and key.rfind("/") > 0 for key in keys):
            unsupported.add("entries.keys: regular expressions")
    return found, unsupported


def _without_effect(kept: dict[str, Any]) -> Iterable[str]:
    for key, value in (*kept.items(), *as_object(kept.get("extensions")).items()):
        if key not in _HARMLESS and value not in (None, False, 0, "", [], {}, _DEFAULTS.get(key)):
            yield key


def _as_world(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of a card's book with the names of a world's."""
    inner = as_object(entry.get("extensions"))
    more = {new: inner[old] for old, new in _BOOK_EXTENSIONS.items() if old in inner}
    place = entry.get("position")
    if place in _PLACES and "position" not in more:
        more["position"] = _PLACES.index(place)
    if isinstance(entry.get("case_sensitive"), bool):
        more["caseSensitive"] = entry["case_sensitive"]
    order = entry.get("priority") if entry.get("priority") is not None else entry.get("insertion_order")
    named = {ours: entry.get(theirs) for theirs, ours in _BOOK_NAMES.items()}
    named |= {"selective": entry.get("selective", False), "disable": entry.get("enabled") is False, "order": order}
    return {**named, "comment": entry.get("comment") or entry.get("name"), **more}


def as_object(value: Any) -> dict[str, Any]:
    """Return an object as it is, an empty one in the place of anything else."""
    return value if isinstance(value, dict) else {}


class _Fields:
    """Reads fields that may be anything."""

    def __init__(self, value: dict[str, Any], where: str) -> None:
        self._value, self._where = value, where

    def present(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: value for name in names if (value := self._value.get(name)) is not None}

    def texts(self, name: str) -> list[str]:
        found = self._value.get(name) or []
        found = [text.strip() for text in found.split(",")] if isinstance(found, str) else found
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            raise InvalidInput(f"{self._where}.{name}: expected a list of texts")
        return [text for text in found if text.strip()]

    def text(self, name: str) -> str:
        found = self._value.get(name)
        if found is not None and not isinstance(found, str):
            raise InvalidInput(f"{self._where}.{name}: expected text, got {json_type(found)}")
        return found or ""

    def number(self, name: str, default: float) -> float:
        found = self._value.get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or abs(found) > 2**53:
            raise InvalidInput(f"{self._where}.{name}: expected a number, got {json_type(found)}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        found = self._value.get(name)
        return default if found is None else bool(found)


def _entry(id: str, fields: _Fields, kept: dict[str, Any]) -> KnowledgeEntry:
    secondary = fields.texts("keysecondary")
    logic = int(fields.number("selectiveLogic", 0))
    criteria: dict[str, Any] = {"keywords": fields.texts("key")}
    inert: list[str] = []
    if secondary and fields.flag("selective", True):
        named = {"group_id": "secondary", "logic": _LOGIC[logic] if 0 <= logic < len(_LOGIC) else "OR"}
        criteria["key_groups"] = [{**named, "keys": secondary, "required": True}]
    else:
        inert += ["keysecondary", "selective", "selectiveLogic"]
    if fields.flag("constant", False):
        criteria["trigger_conditions"] = [{"type": "always"}]
    if fields.flag("useProbability", True):
        criteria["trigger_probability"] = min(max(fields.number("probability", 100) / 100, 0), 1)
    else:
        inert += ["probability", "useProbability"]
    if (depth := int(fields.number("scanDepth", -1))) >= 0:
        criteria["scan_depth"] = min(depth, MAX_DEPTH)
        inert += ["scanDepth"] if depth > MAX_DEPTH else []
    criteria |= {_COMPARED[name]: bool(value) for name, value in fields.present(_COMPARED).items()}
    place, role = int(fields.number("position", 0)), int(fields.number("role", 0))
    usage: dict[str, Any] = {"priority": fields.number("order", 100)}
    if place == _AT_DEPTH:
        usage["depth_offset"] = max(0, int(fields.number("depth", 4)))
        usage["role"] = _ROLES[role] if 0 <= role < 3 else "system"
    else:
        inert += ["depth", "role"]
    kept["inert"] = fields.present(inert)
    name = _PLACES[place] if 0 <= place < len(_PLACES) else str(place)
    about = {"tags": [f"placement:{name}"], "source": f"imported_from:sillytavern:{kept['format']}"}
    made: dict[str, Any] = {
        "id": id,
        "entry_type": "lore_detail",
        "content": {"value": fields.text("content")},
        "activation_criteria": criteria,
        "usage_metadata": usage,
        "management_metadata": {**about, "is_enabled": not fields.flag("disable", False)},
        "extensions": {KEPT: kept},
    }
    if comment := fields.text("comment"):
        made["displayName"] = comment[:1000]
    return KnowledgeEntry.model_validate(made)


# --- and back -------------------------------------------------------------------------------------


def world_entries(entries: Iterable[Row]) -> tuple[dict[str, Any], set[str]]:
    """Return entries as those of a world file, by number, and what of them it cannot hold."""
    found: dict[str, Any] = {}
    unsupported: set[str] = set()
    for index, entry in enumerate(map(entry_of, entries)):
        made, lost = _world_entry(entry)
        kept = _kept(entry, "world_info")
        uid = kept.get("uid", index)
        found[str(uid if str(uid) not in found else f"{uid}-{index}")] = {"uid": uid, **made, **kept}
        unsupported |= lost
    return found, unsupported


def book_entries(entries: Iterable[Row]) -> tuple[list[dict[str, Any]], set[str]]:
    """Return entries as those of a card's book, and what of them it cannot hold."""
    found: list[dict[str, Any]] = []
    unsupported: set[str] = set()
    for index, entry in enumerate(map(entry_of, entries)):
        world, lost = _world_entry(entry)
        kept = _kept(entry, "character_book")
        inner = as_object(kept.pop("extensions", {}))
        place = "after_char" if world["position"] else "before_char"
        more = {old: world[new] for old, new in _BOOK_EXTENSIONS.items()}
        made = {theirs: world[ours] for theirs, ours in _BOOK_NAMES.items()} | {"id": index, "position": place}
        made |= {"name": world["comment"], "comment": world["comment"], "selective": world["selective"]}
        made |= {"extensions": {**more, **inner}, "enabled": not world["disable"]}
        made |= {"insertion_order": world["order"], "case_sensitive": bool(world["caseSensitive"])}
        made |= {"priority": world["order"]} if "insertion_order" in kept else {}
        found.append({**made, **kept})
        unsupported |= lost
    return found, unsupported


def _kept(entry: KnowledgeEntry, kind: str) -> dict[str, Any]:
    """Return the fields that an entry came with, from a document of this kind."""
    about = as_object(entry.extensions.get(KEPT))
    return dict(as_object(about.get("fields"))) if about.get("format") == kind else {}


def _world_entry(entry: KnowledgeEntry) -> tuple[dict[str, Any], set[str]]:
    criteria, usage, about = entry.activation_criteria, entry.usage_metadata, entry.management_metadata
    groups = [group for group in criteria.key_groups if group.required]
    content = entry.content
    lost = {
        "activation_criteria.key_groups": len(groups) > 1 or len(groups) < len(criteria.key_groups),
        "activation_criteria.trigger_conditions": any(c.type != "always" for c in criteria.trigger_conditions),
        "usage_metadata.once_per_session": usage.once_per_session,
        "usage_metadata.exclude_from_history": usage.exclude_from_history,
        "usage_metadata.prefix": usage.prefix.is_enabled,
        "usage_metadata.suffix": usage.suffix.is_enabled,
        "content: media": not content.mime_type.startswith("text/") or content.path or content.url,
    }
    earlier = as_object(as_object(entry.extensions.get(KEPT)).get("inert"))
    names = [tag.removeprefix("placement:") for tag in about.tags if tag.startswith("placement:")]
    place = _PLACES.index(names[0]) if names and names[0] in _PLACES else 0
    at_depth = usage.depth_offset is not None
    world: dict[str, Any] = {
        "key": criteria.keywords,
        "keysecondary": groups[0].keys if groups else [],
        "comment": entry.display_name or "",
        "content": entry.content.value,
        "constant": any(condition.type == "always" for condition in criteria.trigger_conditions),
        "selective": bool(groups),
        "selectiveLogic": _LOGIC.index(groups[0].logic) if groups else 0,
        "order": usage.priority,
        "position": _AT_DEPTH if at_depth else 0 if place == _AT_DEPTH else place,
        "disable": not about.is_enabled,
        "probability": round(criteria.trigger_probability * 100, 6),
        "useProbability": True,
        "depth": usage.depth_offset if at_depth else 4,
        "scanDepth": criteria.scan_depth,
        "caseSensitive": criteria.case_sensitive if "case_sensitive" in criteria.model_fields_set else None,
        "matchWholeWords": criteria.whole_words,
        "role": _ROLES.index(usage.role) if usage.role in _ROLES else 0,
    }
    still = {"keysecondary", "selective", "selectiveLogic"} if not groups else set()
    still |= {"depth", "role"} if not at_depth else set()
    still |= {"scanDepth"} if criteria.scan_depth == MAX_DEPTH else set()
    still |= {"probability", "useProbability"} if criteria.trigger_probability == 1 else set()
    world |= {name: value for name, value in earlier.items() if name in still}
    return world, {f"entries.{name}" for name, is_lost in lost.items() if is_lost}
