"""What differs between two workflows, line by line, for a terminal. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from tavern_assistant.deliberation.prompt import undrawn

Tone = Literal["plain", "good", "bad", "active"]
Line = tuple[Tone, str]

_MOST = 200
_NAMED = ("id", "type", "displayName")
_INTERFACES = {"interfaceInputs": "input", "interfaceOutputs": "output"}


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[Line]:
    """Return the lines: what is new (`+`, good), what is gone (`-`, bad), and nodes in which something is another."""
    old, new = _by_id(before, "nodes"), _by_id(after, "nodes")
    lines: list[Line] = []
    for id, node in new.items():
        if id not in old:
            lines += [("good", f"+ {_title(node)}"), *_values("good", "+", undrawn(node))]
        elif inside := list(_inside(undrawn(old[id]), undrawn(node))):
            lines += [("active", f"~ {_title(node)}"), *inside]
    lines += [("bad", f"- {_title(node)}") for id, node in old.items() if id not in new]
    edges, former = _edges(after), _edges(before)
    lines += [("good", f"+ {edge}") for edge in edges if edge not in former]
    lines += [("bad", f"- {edge}") for edge in former if edge not in edges]
    for field, what in _INTERFACES.items():
        lines += _other(_slots(before.get(field), what), _slots(after.get(field), what), "")
    rest = {"nodes", "edges", *_INTERFACES}
    one, other = ({k: v for k, v in undrawn(d).items() if k not in rest} for d in (before, after))
    return [*lines, *_inside(one, other, margin="")]


def _inside(before: dict[str, Any], after: dict[str, Any], margin: str = "    ") -> Iterator[Line]:
    """Yield what is another of two objects, one level down for those that they hold."""
    for key in dict.fromkeys([*before, *after]):
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        if isinstance(was or {}, dict) and isinstance(now or {}, dict):
            yield from _inside(was or {}, now or {}, margin)
        else:
            yield from _other({key: was} if key in before else {}, {key: now} if key in after else {}, margin)


def _other(before: dict[str, Any], after: dict[str, Any], margin: str) -> Iterator[Line]:
    """Yield the values that are others, as wholes."""
    for key in dict.fromkeys([*before, *after]):
        if key in before and before[key] != after.get(key):
            yield "bad", f"{margin}- {key} = {_short(before[key])}"
        if key in after and after[key] != before.get(key):
            yield "good", f"{margin}+ {key} = {_short(after[key])}"


def _values(tone: Tone, sign: str, node: dict[str, Any]) -> Iterator[Line]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from ((tone, f"    {sign} {name} = {_short(one)}") for name, one in value.items())
        elif key not in _NAMED:
            yield tone, f"    {sign} {key} = {_short(value)}"


def _slots(slots: Any, what: str) -> dict[str, Any]:
    """Return the slots of an interface by `input text`."""
    return {f"{what} {key}": slot for key, slot in (slots or {}).items()}


def _by_id(document: dict[str, Any], field: str) -> dict[str, dict[str, Any]]:
    return {str(one.get("id")): one for one in document.get(field) or []}


def _title(node: dict[str, Any]) -> str:
    name = node.get("displayName")
    return f"{f'{name} ' if name else ''}{node.get('id')} ({node.get('type')})"


def _edges(document: dict[str, Any]) -> list[str]:
    ends = ("source", "sourceHandle", "target", "targetHandle")
    return ["{}.{} → {}.{}".format(*(edge.get(end) for end in ends)) for edge in document.get("edges") or []]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
