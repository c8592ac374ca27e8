"""Paths into JSON: reads `users[0].name` and `$.users[*]['name']`, finds what they lead to, and changes it.

Of JSONPath it has keys, positions, slices and `*`; it has no filters, scripts or searches at any depth.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from tavern_host import InvalidInput
from tavern_nodes.values import MAX_ITEMS, MAX_NESTING, bounded, kind_of, shorten

MAX_PATH = 2_000
"""The longest path, in characters."""


@dataclass(frozen=True)
class Name:
    """A step written with a dot: a key of an object, or a position of a list where it is a number."""

    text: str


@dataclass(frozen=True)
class Key:
    """A step in brackets and quotes: a key of an object."""

    text: str


@dataclass(frozen=True)
class Index:
    """A number in brackets: a position of a list, counted from the end if negative."""

    position: int


@dataclass(frozen=True)
class Every:
    """`*`: all items of a list, all values of an object."""


@dataclass(frozen=True)
class Slice:
    """`[a:b]`: some items of a list."""

    start: int | None
    end: int | None


Step: TypeAlias = Name | Key | Index | Every | Slice
JsonPath: TypeAlias = tuple[Step, ...]

_STEP = re.compile(
    r"""
    \.?\[\s*+(?:
        (?P<index>-?[0-9]{1,9})
      | (?P<every>\*)
      | (?P<start>-?[0-9]{1,9})?+\s*+(?P<slice>:)\s*+(?P<end>-?[0-9]{1,9})?+
      | '(?P<single>(?:[^'\\]|\\.)*+)'
      | "(?P<double>(?:[^"\\]|\\.)*+)"
    )\s*+\]
    | \.(?P<star>\*)(?=[.\[]|\Z)
    | \.(?P<name>[^.\[\]]++)
    """,
    re.VERBOSE | re.DOTALL,
)
_POSITION = re.compile(r"-?[0-9]{1,9}")


class Missing(Exception):
    """Nothing is at a path; the text says how far it leads and what is there."""


def read_path(text: str, who: str) -> JsonPath:
    """Return the steps of a path; "" and `$` have none. Raises `InvalidInput` saying where it cannot be read."""
    if len(text) > MAX_PATH:
        raise InvalidInput(f"{who}: the path has {len(text):,} characters; at most {MAX_PATH:,} are possible")
    try:
        return _read(text.strip())
    except ValueError as problem:
        raise InvalidInput(f"{who}: the path {shorten(text)!r} {problem}") from None


@lru_cache(maxsize=256)
def _read(text: str) -> JsonPath:
    rest = text[1:] if text == "$" or text.startswith(("$.", "$[")) else text
    if rest and not rest.startswith((".", "[")):
        rest = f".{rest}"
    steps: list[Step] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise ValueError(
                f"cannot be read from {shorten(rest[at:], 20)!r} on; "
                "write keys and positions such as users[0].name, users[*].name or ['a key'][1:3]"
            )
        steps.append(_step(match))
        at = match.end()
    if len(steps) > MAX_NESTING:
        raise ValueError(f"has {len(steps)} steps; at most {MAX_NESTING} are possible")
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    found = match.groupdict()
    if found["name"] is not None:
        return Name(found["name"])
    if found["index"] is not None:
        return Index(int(found["index"]))
    if found["slice"]:
        start, end = found["start"], found["end"]
        return Slice(int(start) if start else None, int(end) if end else None)
    for quoted in (found["single"], found["double"]):
        if quoted is not None:
            return Key(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
    return Every()


def is_many(path: JsonPath) -> bool:
    """Return whether a path leads to a list of parts (it has a `*` or a slice) and not to one part."""
    return any(isinstance(step, Every | Slice) for step in path)


def select(data: Any, path: JsonPath, who: str) -> Any:
    """Return the part of `data` at a path, or, of a path with `*` or slices, the list of all the parts.

    Behind the first `*` or slice, what is not there is left out. Raises `Missing` where there is nothing, and
    `InvalidInput` for more than `MAX_ITEMS` parts.
    """
    for number, step in enumerate(path):
        if isinstance(step, Every | Slice):
            if not isinstance(data, list | dict) or (isinstance(data, dict) and isinstance(step, Slice)):
                raise Missing(f"{_place(path[:number])} is {kind_of(data)}")
            return _select_many([data], path[number:], who)
        data = _one(data, step, path[:number])
    return data


def _select_many(level: list[Any], steps: JsonPath, who: str) -> list[Any]:
    for step in steps:
        inner: list[Any] = []
        for part in level:
            if isinstance(step, Every):
                inner.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
            elif isinstance(step, Slice):
                inner.extend(part[step.start : step.end] if isinstance(part, list) else ())
            else:
                try:
                    inner.append(_one(part, step, ()))
                except Missing:
                    continue
            bounded(len(inner), MAX_ITEMS, who, "parts")
        level = inner
    return level


def put(data: Any, path: JsonPath, value: Any, who: str) -> Any:
    """Return `data` with `value` at a path; `data` itself stays as it is.

    Objects that are missing on the way are made, and so is a list where a position 0 follows; the position behind
    the last one appends. Raises `InvalidInput` where the way is closed, or for a path with `*` or slices.
    """
    _require_one(path, who)
    return _put(data, path, 0, value, who)


def _put(data: Any, path: JsonPath, number: int, value: Any, who: str) -> Any:
    if number == len(path):
        return value
    step = path[number]
    if data is None:
        data = [] if isinstance(step, Index) else {}
    if isinstance(data, dict) and isinstance(step, Name | Key):
        return {**data, step.text: _put(data.get(step.text), path, number + 1, value, who)}
    position = _position(step)
    if not isinstance(data, list) or position is None:
        raise InvalidInput(f"{who}: {_place(path[:number])} is {kind_of(data)}, which has no {_shown(step)}")
    if not -len(data) <= position <= len(data):
        raise InvalidInput(f"{who}: {_place(path[:number])} has {len(data)} items, so {position} cannot be set")
    position = position + len(data) if position < 0 else position
    inner = _put(data[position] if position < len(data) else None, path, number + 1, value, who)
    return [*data[:position], inner, *data[position + 1 :]]


def without(data: Any, path: JsonPath, who: str) -> Any:
    """Return `data` without the part at a path; `data` itself stays as it is.

    Raises `Missing` where there is nothing, `InvalidInput` for an empty path or one with `*` or slices.
    """
    _require_one(path, who)
    if not path:
        raise InvalidInput(f"{who}: the path must not be empty")
    return _without(data, path, 0)


def _without(data: Any, path: JsonPath, number: int) -> Any:
    step = path[number]
    inner = _one(data, step, path[:number])
    is_last = number == len(path) - 1
    if isinstance(data, dict):
        key = step.text if isinstance(step, Name | Key) else ""
        if is_last:
            return {name: value for name, value in data.items() if name != key}
        return {**data, key: _without(inner, path, number + 1)}
    position = (_position(step) or 0) % len(data)
    kept = [] if is_last else [_without(inner, path, number + 1)]
    return [*data[:position], *kept, *data[position + 1 :]]


def _one(data: Any, step: Step, before: JsonPath) -> Any:
    if isinstance(data, dict) and isinstance(step, Name | Key):
        if step.text in data:
            return data[step.text]
        raise Missing(f"{_place(before)} has no {shorten(step.text)!r}; it has {_some(data)}")
    if isinstance(data, list) and (position := _position(step)) is not None:
        if -len(data) <= position < len(data):
            return data[position]
        raise Missing(f"{_place(before)} has {len(data)} items, so there is no item {position}")
    if isinstance(data, list):
        raise Missing(f"{_place(before)} is a list, which has positions and no {_shown(step)}")
    raise Missing(f"{_place(before)} is {kind_of(data)}, which has no {_shown(step)}")


def _position(step: Step) -> int | None:
    if isinstance(step, Index):
        return step.position
    return int(step.text) if isinstance(step, Name) and _POSITION.fullmatch(step.text) else None


def _require_one(path: JsonPath, who: str) -> None:
    if is_many(path):
        raise InvalidInput(f"{who}: a path with * or [a:b] leads to several parts; one is needed here")


def _shown(step: Step) -> str:
    if isinstance(step, Index):
        return f"item {step.position}"
    return f"key {shorten(step.text)!r}" if isinstance(step, Name | Key) else "parts"


def _place(path: JsonPath) -> str:
    """Return a path as a message names it."""
    text = ""
    for step in path:
        if isinstance(step, Index):
            text += f"[{step.position}]"
        elif isinstance(step, Name):
            text += f".{step.text}" if text else step.text
        elif isinstance(step, Key):
            text += f"[{step.text!r}]"
    return shorten(text) or "the data"


def _some(found: dict[str, Any]) -> str:
    keys = [repr(shorten(str(key), 20)) for key in list(found)[:8]]
    return ", ".join(keys) + (", …" if len(found) > 8 else "") if keys else "nothing"
