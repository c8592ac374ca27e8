"""Applies a patch to a copy of a panel: JSON Patch in which elements are named by their ids, and those that the patch
adds by their `localId`. Ids are given here; an element without a place stands below the others. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from tavern_assistant.api.assistant import PatchChange, PatchProblem
from tavern_assistant.patches.operations import (
    INDEX,
    Copies,
    Operation,
    Parts,
    Refused,
    apply_in_place,
    pointer,
    read_operations,
    same,
)
from tavern_assistant.patches.working_copy import Item
from tavern_host.contracts.names import suggest
from tavern_panels.api.names import new_id

_LIST = "elements"
_WHOLE = {(), (_LIST,), ("id",)}


def apply_to_panel(document: Item, items: Sequence[JsonValue]) -> tuple[Item, list[PatchProblem], dict[str, str]]:
    """Return the patched document of a panel, and by id the localIds of new elements; with problems, the document."""
    operations, problems = read_operations(items)
    if problems:
        return document, problems, {}
    copied: Item = json.loads(json.dumps(document))
    copied.setdefault(_LIST, [])
    copies, local = Copies(), dict[str, str]()
    for operation in operations:
        try:
            copied = apply_in_place(copied, _resolved(copied, operation, local), copies)
        except Refused as refused:  # what follows is made for what this one would have done
            return document, [refused.problem(operation.index, pointer(operation.path))], {}
    return copied, [], {id: name for name, id in local.items()}


def _resolved(document: Item, operation: Operation, local: dict[str, str]) -> Operation:
    """Return an operation with indexes in the place of ids and localIds; a new element has an id."""
    if operation.name != "test" and operation.path in _WHOLE:
        hint = f"change elements one by one; new ones are added at /{_LIST}/-"
        raise Refused("whole_document", "a panel, its id and its list are not changed as a whole by a patch", hint)
    is_new = operation.name == "add" and len(operation.path) == 2 and operation.path[0] == _LIST
    path, source = _by_index(document, operation.path, local), _by_index(document, operation.source, local)
    value = operation.value
    if is_new:
        if not isinstance(value, dict):
            raise Refused("bad_value", "an element is an object", 'write {"localId": "a", "kind": …, "target": …}')
        value = {**value}
        name = value.pop("localId", None)
        if not isinstance(value.get("id"), str):
            taken = [str(one.get("id")) for one in document[_LIST] if isinstance(one, dict)]
            value = {"id": new_id(str(value.get("target") or value.get("kind") or ""), taken), **value}
        if isinstance(name, str):
            local[name] = str(value["id"])
    return replace(operation, path=path, source=source, value=value)


def _by_index(document: Item, path: Parts, local: Mapping[str, str]) -> Parts:
    if len(path) < 2 or path[0] != _LIST or path[1] == "-":
        return path
    ids = [str(one.get("id")) if isinstance(one, dict) else "" for one in document[_LIST]]
    name = local.get(path[1], path[1])
    if name in ids:
        return (_LIST, str(ids.index(name)), *path[2:])
    if INDEX.fullmatch(name) and int(name) <= len(ids):
        return path
    hint = suggest(name, ids) or (f"there are: {', '.join(ids[:20])}" if ids else "there are none; add one")
    raise Refused("unknown_element", f"there is no element {name!r:.200}", hint)


def panel_changes(before: Item, after: Item, local_ids: Mapping[str, str]) -> list[PatchChange]:
    """Return the changes between two panels, one for each element, and for each value outside of them."""
    old, new = _elements(before), _elements(after)
    made: list[PatchChange] = []
    for id in dict.fromkeys([*old, *new]):
        if id in old and id in new and same(old[id], new[id]):
            continue
        kind: Any = "changed" if id in old and id in new else "removed" if id in old else "added"
        made.append(PatchChange.construct(kind=kind, what="element", id=id, local_id=local_ids.get(id)))
    for key in dict.fromkeys([*before, *after]):
        if key != _LIST and not same(before.get(key), after.get(key)):
            kind = "changed" if key in before and key in after else "removed" if key in before else "added"
            made.append(PatchChange.construct(kind=kind, what="value", id=pointer((key,))))
    return made


def _elements(document: Item) -> dict[str, Item]:
    listed = document.get(_LIST)
    return {str(one.get("id")): one for one in listed if isinstance(one, dict)} if isinstance(listed, list) else {}
