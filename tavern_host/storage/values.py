"""Encodes values without a declared type, as they flow along edges, for journals, caches, processes and tests.

JSON, bytes, datetimes and `Blob` have a codec; every other value stays in memory.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.wire import LIMIT, ImmutableJson

MAX_VALUES = 1_000_000
"""How many values one value may hold when all that it shares within itself is written out."""

_PARTED = (dict, list, tuple, BaseModel)

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

_BYTES, _DATETIME, _DICT, _KEPT, _BLOB = "$bytes", "$datetime", "$dict", "$kept", "$blob1"
"""The only key of an object that stands for something else. A dict with such a key is wrapped into one."""


def encode_loose(value: Any) -> tuple[bytes, list[Any]]:
    """Return any value as bytes, and the objects in it that have no codec and stay in memory.

    A value that is too large or too deep for `encode` stays in memory whole.
    """
    kept: list[Any] = []
    try:
        if not is_endless(value):
            tree = _loose(value, kept)
            return to_bytes(tree), kept
    except RecursionError:
        pass
    return json.dumps({_KEPT: 0}).encode(), [value]


def decode_loose(data: bytes, kept: list[Any]) -> Any:
    """Return the value that `encode_loose` returned as these bytes; the objects that stayed in memory are the same."""
    return _tight(json.loads(data), kept)


def to_bytes(tree: Any) -> bytes:
    """Return JSON as bytes."""
    text = _ENCODER.encode(tree)
    return text.encode("utf-8", "surrogatepass")  # escaped, two lone surrogates would come back as one character


def is_endless(value: Any) -> bool:
    """Return whether a value holds more than `MAX_VALUES` values, or itself."""
    left, waiting = MAX_VALUES, [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, BaseModel):
            items = [*vars(part).values(), *(part.model_extra or {}).values()]
        else:
            items = list(part.values() if isinstance(part, dict) else part) if isinstance(part, _PARTED) else []
        left -= len(items)
        if left < 0:
            return True
        waiting += [item for item in items if isinstance(item, _PARTED)]
    return False


def _loose(value: Any, kept: list[Any]) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if (kind is int and -LIMIT <= value < LIMIT) or (kind is float and math.isfinite(value)):
        return value
    if kind is bytes:
        return {_BYTES: base64.b64encode(value).decode()}
    if kind is datetime and value.utcoffset() is not None:
        return {_DATETIME: value.astimezone(UTC).isoformat()}
    if kind is Blob:
        return {_BLOB: [value.hash, value.media_type, value.length]}
    if kind is list or kind is tuple:
        return [_loose(item, kept) for item in value]
    if kind is dict and all(type(key) is str for key in value):
        tree = {key: _loose(item, kept) for key, item in value.items()}
        return {_DICT: tree} if any(key.startswith("$") for key in tree) else tree
    if isinstance(value, ImmutableJson):
        return _loose(value.plain(), kept)
    kept.append(value)
    return {_KEPT: len(kept) - 1}


def _tight(tree: Any, kept: list[Any]) -> Any:
    if isinstance(tree, list):
        return [_tight(item, kept) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) == 1:
        ((tag, inner),) = tree.items()
        if tag == _BYTES:
            return base64.b64decode(inner, validate=True)
        if tag == _DATETIME:
            return datetime.fromisoformat(inner)
        if tag == _BLOB:
            return Blob(hash=inner[0], media_type=inner[1], length=inner[2])
        if tag == _KEPT:
            return kept[inner]
        if tag == _DICT:
            return {key: _tight(item, kept) for key, item in inner.items()}
    return {key: _tight(item, kept) for key, item in tree.items()}
