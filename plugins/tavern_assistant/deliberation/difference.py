"""What differs between two workflows, line by line, for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from tavern_assistant.deliberation.prompt import undrawn
from tavern_assistant.patches.operations import shown

Tone = Literal["plain", "good", "bad", "active"]
Line = tuple[Tone, str]
Values = dict[tuple[str, ...], Any]

_MOST = 200
_NAMED = ("id", "type", "displayName")
_INTERFACES = {"interfaceInputs": "input", "interfaceOutputs": "output"}


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[Line]:
    """Return the lines: what is new (`+`, good), what is gone (`-`, bad), and nodes in which something is another."""
    old, new = _by_id(before, "nodes"), _by_id(after, "nodes")
    lines: list[Line] = []
    for id, node in new.items():
        if id not in old:
            named = {place: one for place, one in _values(node).items() if place[0] not in _NAMED}
            lines += [("good", f"+ {_title(node)}"), *_other({}, named)]
        elif inside := list(_other(_values(old[id]), _values(node))):
            lines += [("active", f"~ {_title(node)}"), *inside]
    lines += [("bad", f"- {_title(node)}") for id, node in old.items() if id not in new]
    edges, former = _edges(after), _edges(before)
    lines += [("good", f"+ {edge}") for edge in edges if edge not in former]
    lines += [("bad", f"- {edge}") for edge in former if edge not in edges]
    for field, what in _INTERFACES.items():
        lines += _other(_slots(before, field, what), _slots(after, field, what), "")
    rest = {"nodes", "edges", *_INTERFACES}
    one, other = (_values({key: value for key, value in d.items() if key not in rest}) for d in (before, after))
    return [*lines, *_other(one, other, "")]


def _slots(document: dict[str, Any], field: str, what: str) -> Values:
    return {(f"{what} {key}",): slot for key, slot in (document.get(field) or {}).items()}


def _values(item: dict[str, Any]) -> Values:
    """Return the values of an object by their places, one level down for the objects in it."""
    found: Values = {}
    for key, value in undrawn(item).items():
        found |= {(key, name): one for name, one in value.items()} if isinstance(value, dict) else {(key,): value}
    return found


def _other(before: Values, after: Values, margin: str = "    ") -> Iterator[Line]:
    """Yield the values that are others, as wholes."""
    for place in dict.fromkeys([*before, *after]):
        if place in before and place in after and before[place] == after[place]:
            continue
        if place in before:
            yield "bad", f"{margin}- {place[-1]} = {shown(before[place], _MOST)}"
        if place in after:
            yield "good", f"{margin}+ {place[-1]} = {shown(after[place], _MOST)}"


def _by_id(document: dict[str, Any], field: str) -> dict[str, dict[str, Any]]:
    return {str(one.get("id")): one for one in document.get(field) or []}


def _title(node: dict[str, Any]) -> str:
    name = node.get("displayName")
    return f"{f'{name} ' if name else ''}{node.get('id')} ({node.get('type')})"


def _edges(document: dict[str, Any]) -> dict[str, None]:
    ends = ("source", "sourceHandle", "target", "targetHandle")
    lines = ("{}.{} → {}.{}".format(*(edge.get(end) for end in ends)) for edge in document.get("edges") or [])
    return dict.fromkeys(lines)
