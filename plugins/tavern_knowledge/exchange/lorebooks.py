"""Entries of the books of other programs as entries of a base, and back as those of SillyTavern's world files and of
the books in character cards (V2, V3).

What an entry has here decides. The entry that it was made of is kept in `extensions.st_import_metadata`: where nothing
was changed since it comes back as it was, else with what has no place here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tavern_host.contracts.documents import json_type
from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.api.knowledge import KnowledgeEntry
from tavern_knowledge.exchange.families import (
    AS_WORLD,
    BOOK_NAMES,
    FIELDS,
    IN_EXTENSIONS,
    PLACES,
    TEXTS,
    as_object,
    check_text,
)
from tavern_knowledge.index import Row, entry_of
from tavern_knowledge.words import is_pattern
from tavern_nodes.api.jsregex import PatternError
from tavern_nodes.api.patterns import compile_pattern, split_literal

KEPT = "st_import_metadata"
MAX_ENTRIES = 10_000
MAX_DEPTH = 100
"""How many messages are searched at most."""
MAX_TIME = 1_000_000

_LOGIC = ("OR", "NOT_ALL", "NOT", "AND")
"""What secondary keys ask for, by SillyTavern's numbers."""
_ROLES = ("system", "user", "assistant")
_AT_DEPTH, _OUTLET = 4, 7
_COMPARED = {"caseSensitive": "case_sensitive", "matchWholeWords": "whole_words"}
_HARMLESS = {"uid", "id", "name", "comment", "extensions", "insertion_order"}
_HARMLESS |= {"addMemo", "displayIndex", "display_index", "ignoreBudget", "lastUpdatedAt", "useProbability"}
"""Fields that are kept and written back, and need have no effect."""
_DEFAULTS: dict[str, Any] = {"probability": 100, "searchRange": 1000, "mode": "normal", "nonStoryActivatable": False}


def entries_of(value: Any, kind: str) -> tuple[list[Row], dict[str, list[str]]]:
    """Return the entries of a book, and by their ids which of their fields have no effect here. `kind` is a key of
    `AS_WORLD`. Raises `InvalidInput` naming the entry."""
    listed = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(listed, list) or len(listed) > MAX_ENTRIES:
        what = f"{len(listed):,} entries" if isinstance(listed, list) else json_type(value)
        raise InvalidInput(f"$.entries: expected at most {MAX_ENTRIES:,} entries, got {what}")
    found: list[Row] = []
    unsupported: dict[str, list[str]] = {}
    ids: set[str] = set()
    for index, entry in enumerate(listed):
        where = f"$.entries[{index}]"
        if not isinstance(entry, dict):
            raise InvalidInput(f"{where}: expected an object, got {json_type(entry)}")
        number = entry.get("uid", entry.get("id"))
        id = f"st-{index if number is None or f'st-{number}' in ids else number}"[:200]
        while id in ids:
            id += "-2"
        ids.add(id)
        check_text(kind, entry, AS_WORLD[kind](entry).get("content"), where)
        made = _entry(id, kind, entry, where)
        found.append(Row.of(made.model_copy(update={"extensions": {KEPT: _kept(kind, entry)}})))
        if named := sorted({*_without_effect(kind, entry), *_wrong_keys(made)}):
            unsupported[id] = named
    return found, unsupported


def _without_effect(kind: str, entry: dict[str, Any]) -> Iterable[str]:
    outside = {key: value for key, value in entry.items() if key not in FIELDS[kind]}
    inner = as_object(entry.get("extensions"))
    for key, value in (*outside.items(), *((k, v) for k, v in inner.items() if k not in IN_EXTENSIONS)):
        if key not in _HARMLESS and value not in (None, False, 0, "", [], {}, _DEFAULTS.get(key)):
            yield key
    if AS_WORLD[kind](entry).get("position") == _OUTLET:
        yield "position: outlet"


def _wrong_keys(entry: KnowledgeEntry) -> Iterable[str]:
    groups = entry.activation_criteria.key_groups
    for key in (*entry.activation_criteria.keywords, *(key for group in groups for key in group.keys)):
        if is_pattern(key):
            source, flags = split_literal(key.strip()) or (key, "")
            try:
                compile_pattern(source, flags)
            except PatternError as error:
                yield f"keys: {key[:60]} is no regular expression ({error}) and is looked for as a text"


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


def _entry(id: str, kind: str, source: dict[str, Any], where: str) -> KnowledgeEntry:
    """Return an entry as this project has it."""
    fields = _Fields(AS_WORLD[kind](source), where)
    secondary = fields.texts("keysecondary")
    logic = int(fields.number("selectiveLogic", 0))
    criteria: dict[str, Any] = {"keywords": fields.texts("key")}
    if secondary and fields.flag("selective", True):
        named = {"group_id": "secondary", "logic": _LOGIC[logic] if 0 <= logic < len(_LOGIC) else "OR"}
        criteria["key_groups"] = [{**named, "keys": secondary, "required": True}]
    if fields.flag("constant", False):
        criteria["trigger_conditions"] = [{"type": "always"}]
    if fields.flag("useProbability", True):
        criteria["trigger_probability"] = min(max(fields.number("probability", 100) / 100, 0), 1)
    if (depth := int(fields.number("scanDepth", -1))) >= 0:
        criteria["scan_depth"] = min(depth, MAX_DEPTH)
    criteria |= {_COMPARED[name]: bool(value) for name, value in fields.present(_COMPARED).items()}
    criteria |= _timing(fields)
    place, role = int(fields.number("position", 0)), int(fields.number("role", 0))
    usage: dict[str, Any] = {"priority": fields.number("order", 100)}
    if place == _AT_DEPTH:
        usage["depth_offset"] = max(0, int(fields.number("depth", 4)))
        usage["role"] = _ROLES[role] if 0 <= role < 3 else "system"
    name = PLACES[place] if 0 <= place < len(PLACES) else str(place)
    about = {"tags": [f"placement:{name}"], "source": f"imported_from:{_SOURCES.get(kind, 'sillytavern')}:{kind}"}
    made: dict[str, Any] = {
        "id": id,
        "entry_type": "lore_detail",
        "content": {"value": fields.text("content")},
        "activation_criteria": criteria,
        "usage_metadata": usage,
        "management_metadata": {**about, "is_enabled": not fields.flag("disable", False)},
    }
    if comment := fields.text("comment"):
        made["displayName"] = comment[:1000]
    return KnowledgeEntry.model_validate(made)


_SOURCES = {"novelai": "novelai", "agnai": "agnai", "risu": "risuai"}
_TIMES = ("sticky", "cooldown", "delay")
_FLAGS = {"excludeRecursion": "exclude_recursion", "preventRecursion": "prevent_recursion"}
_FLAGS |= {"groupOverride": "group_override", "useGroupScoring": "group_scoring"}


def _timing(fields: _Fields) -> dict[str, Any]:
    """Return when an entry comes in by time, by other entries, and by its group."""
    found: dict[str, Any] = {}
    for name in _TIMES:
        if (times := int(fields.number(name, 0))) > 0:
            found[name] = min(times, MAX_TIME)
    found |= {ours: True for theirs, ours in _FLAGS.items() if fields.flag(theirs, False)}
    waits = fields.present(["delayUntilRecursion"]).get("delayUntilRecursion")
    if waits:
        found["delay_until_recursion"] = 1 if waits is True else min(int(fields.number("delayUntilRecursion", 0)), 100)
    if groups := fields.texts("group"):
        found["group"] = groups
        found["group_weight"] = min(max(fields.number("groupWeight", 100), 0), MAX_TIME)
    return found


# --- and back -------------------------------------------------------------------------------------


def world_entries(entries: Iterable[Row]) -> tuple[dict[str, Any], set[str]]:
    """Return entries as those of a world file, by number, and what of them it cannot hold."""
    found: dict[str, Any] = {}
    unsupported: set[str] = set()
    for index, entry in enumerate(map(entry_of, entries)):
        if (made := _as_it_was(entry, "world_info")) is None:
            made, lost = _world_entry(entry)
            made = {"uid": index, **made, **_others(entry, "world_info")}
            unsupported |= lost
        uid = made.get("uid", index)
        found[str(uid if str(uid) not in found else f"{uid}-{index}")] = made
    return found, unsupported


def book_entries(entries: Iterable[Row]) -> tuple[list[dict[str, Any]], set[str]]:
    """Return entries as those of a card's book, and what of them it cannot hold."""
    found: list[dict[str, Any]] = []
    unsupported: set[str] = set()
    for index, entry in enumerate(map(entry_of, entries)):
        if (made := _as_it_was(entry, "character_book")) is None:
            made, lost = _book_entry(entry, index)
            unsupported |= lost
        found.append(made)
    return found, unsupported


def _book_entry(entry: KnowledgeEntry, index: int) -> tuple[dict[str, Any], set[str]]:
    world, lost = _world_entry(entry)
    kept = _others(entry, "character_book")
    inner = as_object(kept.pop("extensions", {}))
    place = "after_char" if world["position"] else "before_char"
    more = {old: world[new] for old, new in IN_EXTENSIONS.items()}
    made = {theirs: world[ours] for theirs, ours in BOOK_NAMES.items()} | {"id": index, "position": place}
    made |= {"name": world["comment"], "comment": world["comment"], "selective": world["selective"]}
    made |= {"extensions": {**inner, **more}, "enabled": not world["disable"]}
    made |= {"insertion_order": world["order"], "case_sensitive": bool(world["caseSensitive"])}
    source = _source(entry, "character_book")
    if source.get("priority") is not None:
        made |= {"priority": world["order"], "insertion_order": source.get("insertion_order", 100)}
    return {**made, **kept}, lost


def _kept(kind: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry's metadata from its document: all but its text, which is there already."""
    text = TEXTS.get(kind, "content")
    if not isinstance(entry.get(text), str):
        return {"format": kind, "entry": entry}
    return {"format": kind, "text": text, "entry": {key: value for key, value in entry.items() if key != text}}


def _source(entry: KnowledgeEntry, kind: str) -> dict[str, Any]:
    """Return the entry of a document of this kind that an entry was made of, with the text that it has now; an empty
    one where it was not."""
    about = as_object(entry.extensions.get(KEPT))
    if about.get("format") != kind or not isinstance(about.get("entry"), dict):
        return {}
    text = {about["text"]: entry.content.value} if isinstance(about.get("text"), str) else {}
    return {**as_object(about["entry"]), **text}


def _as_it_was(entry: KnowledgeEntry, kind: str) -> dict[str, Any] | None:
    """Return the entry of a document that an entry was made of, where nothing of it was changed since."""
    if not (source := _source(entry, kind)):
        return None
    made = _entry(entry.id, kind, source, "$")
    return dict(source) if _compared(made) == _compared(entry) else None


def _compared(entry: KnowledgeEntry) -> dict[str, Any]:
    left_out: Any = {"version": True, "extensions": True, "management_metadata": {"created_at", "updated_at"}}
    return entry.model_dump(mode="json", exclude=left_out)


def _others(entry: KnowledgeEntry, kind: str) -> dict[str, Any]:
    """Return the fields of the entry that an entry was made of which have no place here."""
    about = as_object(entry.extensions.get(KEPT))
    if about.get("format") == kind and isinstance(about.get("fields"), dict):  # by an earlier version
        return dict(as_object(about["fields"]))
    found = {key: value for key, value in _source(entry, kind).items() if key not in FIELDS[kind]}
    if "extensions" in found:
        inner = as_object(found["extensions"])
        found["extensions"] = {key: value for key, value in inner.items() if key not in IN_EXTENSIONS}
    return found


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
    names = [tag.removeprefix("placement:") for tag in about.tags if tag.startswith("placement:")]
    place = PLACES.index(names[0]) if names and names[0] in PLACES else 0
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
        **{name: getattr(criteria, name) for name in _TIMES},
        **{theirs: getattr(criteria, ours) for theirs, ours in _FLAGS.items()},
        "delayUntilRecursion": criteria.delay_until_recursion,
        "group": ", ".join(criteria.group),
        "groupWeight": criteria.group_weight,
    }
    return world, {f"entries.{name}" for name, is_lost in lost.items() if is_lost}
