"""What is other in one document than in another: as places, to see whether two changes touch the same, and as changes
for people and programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tavern_assistant.api.assistant import PatchChange
from tavern_assistant.patches.operations import Parts, pointer, same
from tavern_assistant.patches.working_copy import LISTS, Item
from tavern_workflows.api.workflows import LOOP_ZONE, NODE_GROUP


def places(before: Item, after: Item) -> list[Parts]:
    """Return the places of a workflow's document that are other: an item of a list that was added or removed, by its
    id, else a value in it, or one outside of the lists."""
    found: list[Parts] = []
    for key in dict.fromkeys([*before, *after]):
        if key == "updatedAt" or before.get(key) is after.get(key):
            continue  # an editor writes the time with each save
        if key not in LISTS:
            found += _inside((key,), before, after, 2)
            continue
        old, new = _by_id(before.get(key)), _by_id(after.get(key))
        for identifier in dict.fromkeys([*old, *new]):
            if identifier not in old or identifier not in new:
                found.append((key, identifier))
            else:
                found += _inside((key, identifier), old, new, 4)
    return found


def _inside(path: Parts, before: Item, after: Item, depth: int) -> Iterator[Parts]:
    """Yield what is other in the value of a key, down to a depth."""
    key = path[-1]
    if key in before and key in after:
        old, new = before[key], after[key]
        if same(old, new):
            return
        if len(path) < depth and isinstance(old, dict) and isinstance(new, dict):
            for inner in dict.fromkeys([*old, *new]):
                yield from _inside((*path, inner), old, new, depth)
            return
    yield path


def _by_id(items: Any) -> dict[str, Item]:
    found = (item for item in items if isinstance(item, dict)) if isinstance(items, list) else ()
    return {str(item.get("id")): item for item in found}


def in_both(ours: Iterable[Parts], theirs: Iterable[Parts]) -> list[Parts]:
    """Return the places of `ours` that are, hold, or lie in one of `theirs`."""
    known = set(theirs)
    above = {place[:length] for place in known for length in range(1, len(place) + 1)}
    return [
        place
        for place in dict.fromkeys(ours)
        if place in above or any(place[:length] in known for length in range(1, len(place)))
    ]


def changes(before: Item, after: Item, local_ids: Mapping[tuple[str, str], str] | None = None) -> list[PatchChange]:
    """Return the changes between two documents, one for each item, with the localIds of those that were added."""
    made: dict[Parts, PatchChange] = {}
    old = {kind: _by_id(before.get(kind)) for kind in LISTS}
    new = {kind: _by_id(after.get(kind)) for kind in LISTS}
    for place in places(before, after):
        if place[0] in LISTS and len(place) > 1:
            kind, identifier = place[0], place[1]
            item = new[kind].get(identifier, old[kind].get(identifier, {}))
            what = "group" if item.get("type") in (LOOP_ZONE, NODE_GROUP) else kind.removesuffix("s")
            is_old, is_new = identifier in old[kind], identifier in new[kind]
            local_id = (local_ids or {}).get((kind, identifier))
        else:
            what = "interface" if place[0].startswith("interface") else "value"
            identifier, local_id = pointer(place), None
            is_old, is_new = _is_there(before, place), _is_there(after, place)
        change = "changed" if is_old and is_new else "removed" if is_old else "added"
        made[place[:2]] = PatchChange.construct(kind=change, what=what, id=identifier, local_id=local_id)
    return list(made.values())


def _is_there(document: Any, place: Parts) -> bool:
    for part in place:
        if not isinstance(document, dict) or part not in document:
            return False
        document = document[part]
    return True
