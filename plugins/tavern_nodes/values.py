"""What several nodes do with values: show them as text, find a part by its path, keep sizes in bounds."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, TypeVar

from tavern_host import InvalidInput
from tavern_nodes.api.macros import MAX_TEXT as MAX_TEXT
from tavern_workflows.api.dataflow import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

MAX_ITEMS = 1_000_000
"""The longest list that a node makes of a text."""

MAX_NESTING = 100
"""How deep lists and objects may lie in each other; deeper ones cannot be sent to a page."""

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
"""The integers that may leave a node (64 bits on the wire)."""

_ESCAPE = re.compile(r"\\([nrt\\])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


def unescape(text: str) -> str:
    r"""Return `text` with `\n`, `\r`, `\t` and `\\` replaced by what they mean; other backslashes stay."""
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)


def as_text(value: Any, where: str) -> str:
    """Return text as it is, None as "", numbers as edges write them (3.0 as `3`), anything else as JSON.

    Raises `InvalidInput` for what has no JSON.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float) and MIN_INTEGER <= value <= MAX_INTEGER:
        return text_of(value)
    return "" if value is None else to_json(value, where)


def to_json(value: Any, where: str, indent: int = 0) -> str:
    """Return `value` as JSON text. Raises `InvalidInput` saying `where` it was found and what is wrong."""
    check_size(value, where, indent)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent or None)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where} cannot be written as JSON: {error}") from None


def check_size(value: Any, where: str, indent: int = 0) -> int:
    """Return about how many characters `value` has as JSON, or raise `InvalidInput` for what is nested more than
    `MAX_NESTING` deep or longer than `MAX_TEXT`.

    A list that holds one list twice, which holds another twice, and so on, is small in memory and endless
    when it is written; so this counts what would be written and stops at the limit.
    """
    size, level = 0, [value]
    for depth in range(MAX_NESTING + 1):
        inner: list[Any] = []
        for part in level:
            size += 2 + depth * indent
            if isinstance(part, str):
                size += len(part)
            elif isinstance(part, dict | list | tuple):
                if depth == MAX_NESTING:
                    raise InvalidInput(f"{where} is nested more than {MAX_NESTING} deep")
                if isinstance(part, dict):
                    size += sum(len(str(key)) for key in part)
                inner.extend(part.values() if isinstance(part, dict) else part)
            if size + len(inner) > MAX_TEXT:
                raise InvalidInput(f"{where} is too large: as JSON it has more than {MAX_TEXT:,} characters")
        level = inner
    return size


def look_up(data: Any, path: str, who: str) -> Any:
    """Return the part of `data` at a dotted path such as `users.0.name`; an empty path is `data` itself.

    A step into a list is a number, counted from the end if negative. Raises `InvalidInput` that says how
    far the path leads and what is there.
    """
    found = data
    steps = path.split(".") if path else []
    for number, step in enumerate(steps):
        try:
            found = _step(found, step)
        except ValueError as problem:
            here = shorten(".".join(steps[:number])) or "the data"
            raise InvalidInput(f"{who}: path {shorten(path)!r}: {here} {problem}") from None
    return found


def choose_from(choices: Mapping[str, T], name: str, where: str) -> T:
    """Return the choice of that name. Raises `InvalidInput` listing the names there are."""
    try:
        return choices[name]
    except (KeyError, TypeError):
        raise InvalidInput(f"{where} must be one of {', '.join(choices)}, not {show(name)}") from None


def join(separator: str, parts: Sequence[str], who: str) -> str:
    """Return `parts` with `separator` between them. Raises `InvalidInput` where that is over `MAX_TEXT`."""
    bounded(sum(map(len, parts)) + len(separator) * max(0, len(parts) - 1), MAX_TEXT, who, "characters")
    return separator.join(parts)


def bounded(size: int, limit: int, who: str, unit: str) -> None:
    """Raise `InvalidInput` if `size` is over `limit`."""
    if size > limit:
        raise InvalidInput(f"{who}: the result would have {size:,} {unit}; at most {limit:,} are possible")


def finite(number: float, who: str) -> float:
    """Return `number`, minus zero as zero. Raises `InvalidInput` for an infinite one and for not-a-number."""
    if not math.isfinite(number):
        raise InvalidInput(f"{who}: {number} is not a finite number")
    return number + 0.0


def fits_64_bits(number: int, who: str) -> int:
    """Return `number`. Raises `InvalidInput` for one that 64 bits cannot hold."""
    if not MIN_INTEGER <= number <= MAX_INTEGER:
        raise InvalidInput(f"{who}: {show(number)} does not fit into 64 bits")
    return number


def round_half_away(number: float) -> float:
    """Return the nearest whole number; halves go away from zero (2.5 → 3, -2.5 → -3), as taught at school."""
    whole = math.floor(abs(number))
    if abs(number) - whole >= 0.5:
        whole += 1
    return math.copysign(whole, number)


def kind_of(value: Any) -> str:
    """Return the name of a value's type, in a creator's words."""
    if value is None:
        return "nothing"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), f"a {type(value).__name__}")


def show(value: Any) -> str:
    """Return a value as an error message shows it: short, and made quickly whatever the value is."""
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"an integer of {value.bit_length()} bits"
    return shorten(repr(value)) if value is None or isinstance(value, str | int | float) else kind_of(value)


def shorten(text: str, limit: int = 60) -> str:
    """Return `text`, cut with an ellipsis where it is too long for an error message."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _step(container: Any, step: str) -> Any:
    if isinstance(container, dict):
        if step in container:
            return container[step]
        raise ValueError(f"has no {shorten(step)!r}; it has {_some(container)}")
    if not isinstance(container, list):
        raise ValueError(f"is {kind_of(container)}, which has no parts")
    if not re.fullmatch(r"-?[0-9]{1,9}", step):
        raise ValueError(f"is a list, so a number must follow, not {shorten(step)!r}")
    index = int(step)
    if not -len(container) <= index < len(container):
        raise ValueError(f"has {len(container)} items, so there is no item {index}")
    return container[index]


def _some(found: dict[str, Any]) -> str:
    keys = [repr(shorten(str(key), 20)) for key in list(found)[:8]]
    return ", ".join(keys) + (", …" if len(found) > 8 else "") if keys else "nothing"
