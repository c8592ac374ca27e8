"""Outputs of one node as bytes for the disk, and outputs of the bytes, which are verified.

An entry is a checksum over the signature and a body. The body of outputs that are plain and small is their JSON; of
others a line of JSON, in which every other value is null, and the contents of these values.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

from tavern_engine.journal.batch_decoder import decode_value
from tavern_engine.journal.batch_encoder import split
from tavern_engine.run.event_batch import plain_characters

FORMAT = 2
"""Differs where entries of an earlier version of the program cannot be read."""

MAX_ENTRY = 64 * 2**20
"""How many bytes an entry may have."""

_CHECKSUM = 4


class Entry(NamedTuple):
    """Outputs that were read, and their `plain_characters`."""

    outputs: dict[str, Any]
    characters: int | None


def encode_entry(signature: bytes, outputs: dict[str, Any]) -> bytes | None:
    """Return outputs as bytes; None where a value has no codec, or all are too large. Never raises."""
    try:
        body = _body(outputs)
    except (TypeError, ValueError, RecursionError, MemoryError):
        return None
    return _checksum(signature, body) + body if len(body) + _CHECKSUM <= MAX_ENTRY else None


def decode_entry(signature: bytes, content: bytes) -> Entry | None:
    """Return the outputs of an entry; None where the bytes are not those of this signature."""
    body = content[_CHECKSUM:]
    if content[:_CHECKSUM] != _checksum(signature, body):
        return None
    try:
        head, _, data = body.partition(b"\n")
        read = json.loads(head)
        outputs, parts = read if type(read) is list else (read, [])
        place = 0
        for slot, kind, size in parts:
            outputs[slot] = decode_value(data[place : place + size], kind)
            place += size
        characters = plain_characters(outputs)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None  # of another version of the program, or made by hand
    return Entry(outputs, characters) if type(outputs) is dict else None


def _checksum(signature: bytes, body: bytes) -> bytes:
    return zlib.crc32(body, zlib.crc32(signature)).to_bytes(_CHECKSUM, "little")


def _body(outputs: dict[str, Any]) -> bytes:
    shown, apart = split(outputs)
    parts = [(slot, kind, len(content)) for slot, kind, content in apart]
    head = (f"[{shown},{json.dumps(parts)}]" if parts else shown).encode("utf-8", "surrogatepass")
    return b"\n".join([head, b"".join(content for _, _, content in apart)]) if parts else head
