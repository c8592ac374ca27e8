"""Outputs of one node as bytes for the disk, and outputs of the bytes, which are verified.

An entry is a checksum over the signature and a body. The body of outputs that hold scalars alone is their JSON; of
others a line of JSON, in which every value that is no short scalar is null, and the contents of these values.
"""

from __future__ import annotations

import json
import zlib
from math import isfinite
from typing import Any, NamedTuple

from tavern_engine.journal.batch_decoder import decode_value
from tavern_engine.journal.batch_encoder import encode_value

FORMAT = 1
"""Differs where entries of an earlier version of the program cannot be read."""

MAX_ENTRY = 64 * 2**20
"""How many bytes an entry may have."""

_SHORT = 16 * 1024
"""A text with more characters than this is kept as it is, which is quicker than to escape it."""

_CHECKSUM = 4
_SCALARS = frozenset((str, int, float, bool, type(None)))
_INT = 1 << 63

_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


class Entry(NamedTuple):
    """Outputs that were read. `characters` is how many those have that hold scalars alone; None for others."""

    outputs: dict[str, Any]
    characters: int | None


def encode_entry(signature: bytes, outputs: dict[str, Any]) -> bytes | None:
    """Return outputs as bytes; None where a value has no codec, or all are too large. Never raises."""
    try:
        body = _body(outputs)
    except (TypeError, ValueError, RecursionError, MemoryError):
        return None
    if body is None or len(body) + _CHECKSUM > MAX_ENTRY:
        return None
    return _checksum(signature, body) + body


def decode_entry(signature: bytes, content: bytes) -> Entry | None:
    """Return the outputs of an entry; None where the bytes are not those of this signature."""
    body = content[_CHECKSUM:]
    if content[:_CHECKSUM] != _checksum(signature, body):
        return None
    try:
        head, _, data = body.partition(b"\n")
        read = json.loads(head)
        if type(read) is dict:
            outputs, characters = read, 0
            for value in outputs.values():
                if type(value) is str:
                    characters += len(value)
                elif type(value) not in _SCALARS:
                    return None
            return Entry(outputs, characters)
        outputs, parts = read
        place = 0
        for slot, kind, size in parts:
            outputs[slot] = decode_value(data[place : place + size], kind)
            place += size
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None  # of another version of the program, or made by hand
    return Entry(outputs, None) if type(outputs) is dict else None


def _checksum(signature: bytes, body: bytes) -> bytes:
    return zlib.crc32(body, zlib.crc32(signature)).to_bytes(_CHECKSUM, "little")


def _body(outputs: dict[str, Any]) -> bytes | None:
    shown: dict[str, Any] = {}
    parts: list[tuple[str, str, int]] = []
    data: list[bytes] = []
    left = MAX_ENTRY
    for slot, value in outputs.items():
        kind = type(value)
        if type(slot) is not str:
            return None
        if kind in _SCALARS and not (kind is str and len(value) > _SHORT):
            if (kind is int and not -_INT <= value < _INT) or (kind is float and not isfinite(value)):
                return None
            shown[slot] = value
            continue
        encoded = encode_value(value)
        if encoded is None:
            return None
        shown[slot] = None
        parts.append((slot, encoded[0], len(encoded[1])))
        data.append(encoded[1])
        left -= len(encoded[1])
        if left < 0:
            return None
    head = _compact([shown, parts] if parts else shown).encode("utf-8", "surrogatepass")
    return b"\n".join([head, b"".join(data)]) if parts else head
