"""Nodes that read, write and take apart JSON."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, NoReturn, TypedDict

from tavern_host import Config, InvalidInput, Slot, node
from tavern_nodes.values import (
    MAX_NESTING,
    MAX_TEXT,
    bounded,
    check_size,
    choose_from,
    fits_64_bits,
    look_up,
    shorten,
    to_json,
)


class Found(TypedDict):
    """The outputs of `JsonGet`."""

    value: Annotated[Any, Slot("What is at the path, or the default.")]
    found: Annotated[bool, Slot("Whether the path leads anywhere.")]


@node(category="JSON", display_name="Parse JSON", blocking=True)
def parse_json(
    text: Annotated[str, Slot("The JSON text.", multiline=True)],
) -> Annotated[Any, Slot("The value.", key="value")]:
    """Read a JSON text as a value."""
    if len(text) > MAX_TEXT:
        raise InvalidInput(f"ParseJson: the text has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"ParseJson: {error.msg} at line {error.lineno}, column {error.colno}: {_near(text, error.pos)}"
        ) from None
    except RecursionError:
        raise InvalidInput(f"ParseJson: the text is nested more than {MAX_NESTING} deep") from None
    check_size(value, "ParseJson: the text")
    return value


@node(type="ToJson", category="JSON", display_name="To JSON", blocking=True)
def to_json_text(
    value: Annotated[Any, Slot("The value.")],
    indent: Annotated[int, Slot("Spaces per level; 0 writes all in one line.", min=0, max=8)] = 0,
) -> Annotated[str, Slot("The JSON text.", key="text")]:
    """Write a value as JSON text."""
    if not 0 <= indent <= 8:
        raise InvalidInput(f"ToJson: indent must be from 0 to 8, not {indent}")
    result = to_json(value, "ToJson: the value", indent)
    bounded(len(result), MAX_TEXT, "ToJson", "characters")
    return result


@node(category="JSON", display_name="Get from JSON")
def json_get(
    data: Annotated[Any, Slot("An object or list.")],
    path: Annotated[str, Slot("The way to the part: keys and positions with dots, such as users.0.name.")],
    default: Annotated[Any, Slot("The value where there is nothing at the path.")] = None,
    missing: Annotated[Literal["error", "default"], Config("What to do where there is nothing at the path.")] = "error",
) -> Found:
    """Take a part out of an object or list."""
    fails = choose_from({"error": True, "default": False}, missing, "JsonGet: missing")
    try:
        return {"value": look_up(data, path, "JsonGet"), "found": True}
    except InvalidInput:
        if fails:
            raise
        return {"value": default, "found": False}


@node(category="JSON", display_name="Set in object")
def json_set(
    key: Annotated[str, Slot("The key.")],
    value: Annotated[Any, Slot("The value for the key.")],
    object: Annotated[dict[str, Any] | None, Slot("The object to start from; empty where there is none.")] = None,
) -> Annotated[dict[str, Any], Slot("The object with the key set.", key="object")]:
    """Give an object with one key set; the object that came in stays as it is."""
    result = {**(object or {}), key: value}
    check_size(result, "JsonSet: the object")
    return result


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise InvalidInput(f"ParseJson: {shorten(digits)} does not fit into 64 bits; put it in quotes")
    return fits_64_bits(int(digits), "ParseJson")


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidInput(f"ParseJson: {shorten(digits)} is too large for a number")
    return number


def _constant(name: str) -> NoReturn:
    raise InvalidInput(f"ParseJson: {name} is not JSON")


def _near(text: str, position: int) -> str:
    return repr(text[position : position + 30]) if position < len(text) else "the text ends"
