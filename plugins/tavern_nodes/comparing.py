"""Compares values the way creators expect who write them down in a form: `5` in a text field equals the number 5.

(The node `Compare` is strict instead.) Nothing here runs long: searching is plain.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from tavern_host import InvalidInput
from tavern_nodes.values import check_size, choose_from, kind_of
from tavern_workflows.api.dataflow import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

Operator: TypeAlias = Literal[
    "=",
    "≠",
    "<",
    "≤",
    ">",
    "≥",
    "contains",
    "does not contain",
    "starts with",
    "ends with",
    "is empty",
    "is not empty",
    "is true",
    "is false",
]
"""How an item may be compared with a value; the last four need no value."""

OPERATORS: tuple[str, ...] = get_args(Operator)


def is_number(value: Any) -> bool:
    """Return whether a value is a number, which a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(a: Any, b: Any) -> bool:
    """Return whether two values are equal; a text that reads as a number, as true or as false equals that."""
    if isinstance(a, str) != isinstance(b, str):
        text, other = (a, b) if isinstance(a, str) else (b, a)
        if isinstance(other, bool):
            return bool(text.strip().lower() == text_of(other))
        number = _number_in(text) if is_number(other) else None
        return number is not None and number == other
    if isinstance(a, str | int | float) or a is None:
        return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)
    return identity(a) == identity(b)


def identity(value: Any) -> str | bytes:
    """Return a text that equal values have in common, and others have not: `1` and `1.0` are equal, `true` is not."""
    if isinstance(value, bytes):
        return value
    check_size(value, "an item")
    try:
        return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{kind_of(value)} cannot be compared: {error}") from None


def order(a: Any, b: Any, who: str) -> int:
    """Return a number below, at or above 0 as `a` comes before, with or after `b`.

    Numbers go by size, also where one of them is written as text; texts by letter. Raises `InvalidInput` for others.
    """
    if isinstance(a, str) and is_number(b):
        a = _number_in(a) if _number_in(a) is not None else a
    elif isinstance(b, str) and is_number(a):
        b = _number_in(b) if _number_in(b) is not None else b
    if (is_number(a) and is_number(b)) or (isinstance(a, str) and isinstance(b, str)):
        return int(a > b) - int(a < b)
    raise InvalidInput(f"{who}: {kind_of(a)} and {kind_of(b)} have no order")


def test_for(operator: str, value: Any, who: str) -> Callable[[Any], bool]:
    """Return the test of whether a value stands in the relation `operator` to `value`.

    None stands before or after nothing and holds nothing. Raises `InvalidInput` for an unknown operator; so does the
    test for two values that have no order.
    """
    choose_from(dict.fromkeys(OPERATORS), operator, f"{who}: operator")
    holds = _ORDERS.get(operator)
    if holds is not None:
        return lambda item: item is not None and holds(order(item, value, who))
    return _TESTS[operator](value)


_ORDERS: dict[str, Callable[[int], bool]] = {
    "<": lambda found: found < 0,
    "≤": lambda found: found <= 0,
    ">": lambda found: found > 0,
    "≥": lambda found: found >= 0,
}


def _contains(item: Any, value: Any) -> bool:
    if isinstance(item, str):
        return _text(value) in item
    if isinstance(item, list):
        return any(is_same(each, value) for each in item)
    return isinstance(item, dict) and _text(value) in item


def _equals(value: Any) -> Callable[[Any], bool]:
    if not isinstance(value, list | dict):
        return lambda item: is_same(item, value)
    known = identity(value)
    return lambda item: type(item) is type(value) and identity(item) == known


def _differs(value: Any) -> Callable[[Any], bool]:
    same = _equals(value)
    return lambda item: not same(item)


def _is_empty(item: Any) -> bool:
    return item is None or (isinstance(item, str) and not item.strip()) or item in ([], {}, b"")


_TESTS: dict[str, Callable[[Any], Callable[[Any], bool]]] = {
    "=": _equals,
    "≠": _differs,
    "contains": lambda value: lambda item: _contains(item, value),
    "does not contain": lambda value: lambda item: not _contains(item, value),
    "starts with": lambda value: lambda item: isinstance(item, str) and item.startswith(_text(value)),
    "ends with": lambda value: lambda item: isinstance(item, str) and item.endswith(_text(value)),
    "is empty": lambda _: _is_empty,
    "is not empty": lambda _: lambda item: not _is_empty(item),
    "is true": lambda _: lambda item: is_same(item, True),
    "is false": lambda _: lambda item: is_same(item, False),
}


def _text(value: Any) -> str:
    if isinstance(value, bool | int | float):
        return text_of(value)
    return value if isinstance(value, str) else ""


def _number_in(text: str) -> int | float | None:
    text = text.strip()
    if not text or len(text) > 300 or "_" in text:
        return None
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return None


def _plain(value: Any) -> Any:
    """Return a value with its whole floats as integers, so that equal numbers are written alike."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
