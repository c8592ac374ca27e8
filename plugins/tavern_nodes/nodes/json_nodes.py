"""Nodes that read, write and take apart JSON."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Annotated, Any, Literal, NoReturn, TypedDict

from tavern_host import Config, InvalidInput, Slot, node
from tavern_nodes.documents import read_json
from tavern_nodes.paths import Missing, is_many, put, read_path, select, without
from tavern_nodes.values import (
    MAX_NESTING,
    MAX_TEXT,
    bounded,
    check_size,
    choose_from,
    fits_64_bits,
    kind_of,
    look_up,
    shorten,
    to_json,
)

_QUICK = 100_000
"""Up to how many characters a text is read without a thread."""


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


class Keys(TypedDict):
    """The outputs of `JsonKeys`."""

    keys: Annotated[list[str], Slot("The keys, in their order.")]
    values: Annotated[list[Any], Slot("The values, in the same order.")]
    count: Annotated[int, Slot("How many there are.")]


class Removed(TypedDict):
    """The outputs of `JsonDelete`."""

    data: Annotated[Any, Slot("The data without the part.")]
    removed: Annotated[Any, Slot("What was there; null where there was nothing.")]
    found: Annotated[bool, Slot("Whether there was anything.")]


PathIn = Annotated[
    str, Slot("The way to the part: users[0].name, users.0.name or $.users[0]['name']; empty means all of it.")
]


@node(category="JSON", display_name="Select from JSON")
async def json_selector(
    data: Annotated[Any, Slot("An object, a list, or a text that is JSON.")],
    path: Annotated[
        str,
        Slot("The way to the part: users[0].name or $.users[0]['name']; [*] and [1:3] lead to a list of parts."),
    ] = "",
    default: Annotated[Any, Slot("The value where there is nothing at the path.")] = None,
    missing: Annotated[Literal["error", "default"], Config("What to do where there is nothing at the path.")] = "error",
) -> Found:
    """Take a part, or several, out of JSON, also of JSON that is still text."""
    fails = choose_from({"error": True, "default": False}, missing, "JsonSelector: missing")
    steps = read_path(path, "JsonSelector")
    if isinstance(data, str):
        data = await _parsed(data)
    try:
        value = select(data, steps, "JsonSelector")
    except Missing as problem:
        if fails:
            raise InvalidInput(f"JsonSelector: path {shorten(path)!r}: {problem}") from None
        return {"value": default, "found": False}
    if is_many(steps):
        check_size(value, "JsonSelector: the list of parts")
    return {"value": value, "found": not is_many(steps) or bool(value)}


async def _parsed(text: str) -> Any:
    if len(text) < _QUICK:
        return read_json(text, "JsonSelector: the data")
    return await asyncio.to_thread(read_json, text, "JsonSelector: the data")


@node(category="JSON", display_name="Set in JSON", bypass={"data": "data"})
def json_set_path(
    path: PathIn,
    value: Annotated[Any, Slot("The value.")],
    data: Annotated[Any, Slot("The object or list to start from; empty where there is none.")] = None,
) -> Annotated[Any, Slot("The data with the part set.", key="data")]:
    """Give data with one part set; what came in stays as it is. Objects that are missing on the way are made."""
    result = put(data, read_path(path, "JsonSetPath"), value, "JsonSetPath")
    check_size(result, "JsonSetPath: the data")
    return result


@node(category="JSON", display_name="Delete from JSON")
def json_delete(
    data: Annotated[Any, Slot("An object or list.")],
    path: PathIn,
    missing: Annotated[Literal["ignore", "error"], Config("What to do where there is nothing at the path.")] = "ignore",
) -> Removed:
    """Give data without one part; what came in stays as it is."""
    fails = choose_from({"error": True, "ignore": False}, missing, "JsonDelete: missing")
    steps = read_path(path, "JsonDelete")
    try:
        return {
            "data": without(data, steps, "JsonDelete"),
            "removed": select(data, steps, "JsonDelete"),
            "found": True,
        }
    except Missing as problem:
        if fails:
            raise InvalidInput(f"JsonDelete: path {shorten(path)!r}: {problem}") from None
        return {"data": data, "removed": None, "found": False}


@node(category="JSON", display_name="Merge objects")
def json_merge(
    objects: Annotated[
        list[dict[str, Any]], Slot("The objects, in the order of their connections; later ones win.", multi=True)
    ],
    deep: Annotated[bool, Config("Merge objects within the objects too, instead of taking the later one.")] = True,
    lists: Annotated[
        Literal["replace", "concatenate"], Config("What becomes of two lists at one place, where deep is on.")
    ] = "replace",
) -> Annotated[dict[str, Any], Slot("The object.", key="object")]:
    """Make one object of several; those that came in stay as they are."""
    joins = choose_from({"replace": False, "concatenate": True}, lists, "JsonMerge: lists")
    check_size(objects, "JsonMerge: the objects")
    result: dict[str, Any] = {}
    for number, each in enumerate(objects):
        if not isinstance(each, dict):
            raise InvalidInput(f"JsonMerge: objects[{number}] must be an object, not {kind_of(each)}")
        result = _merged(result, each, joins) if deep else {**result, **each}
    return result


@node(category="JSON", display_name="Keys of object")
def json_keys(
    object: Annotated[dict[str, Any], Slot("The object.")],
) -> Keys:
    """Take an object apart into its keys and its values."""
    return {"keys": list(object), "values": list(object.values()), "count": len(object)}


@node(category="JSON", display_name="Create object")
def create_object(
    keys: Annotated[list[str], Slot("The keys.")],
    values: Annotated[list[Any], Slot("The values, in the same order.")],
) -> Annotated[dict[str, Any], Slot("The object.", key="object")]:
    """Make an object of a list of keys and a list of values; of equal keys the last counts."""
    if len(keys) != len(values):
        raise InvalidInput(f"CreateObject: there are {len(keys)} keys and {len(values)} values; each key needs one")
    for number, key in enumerate(keys):
        if not isinstance(key, str):
            raise InvalidInput(f"CreateObject: keys[{number}] must be text, not {kind_of(key)}")
    result = dict(zip(keys, values, strict=True))
    check_size(result, "CreateObject: the object")
    return result


def _merged(below: Any, above: Any, joins: bool) -> Any:
    """Return two values merged; sizes were checked, so the depth is bounded."""
    if isinstance(below, dict) and isinstance(above, dict):
        shared = {key: _merged(below[key], value, joins) for key, value in above.items() if key in below}
        return {**below, **above, **shared}
    if joins and isinstance(below, list) and isinstance(above, list):
        return [*below, *above]
    return above


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
