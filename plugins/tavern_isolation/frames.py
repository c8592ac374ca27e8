"""The frames of a link: a header, the lengths of the parts, the parts.

Numbers are unsigned and in network byte order: the bytes that follow the header (4), the kind (1), the number of parts
(2), the number of the call (4), and of the call in which it was made, else 0 (4); then the length of each part (4).
"""

from __future__ import annotations

import struct
from typing import Final

Message = tuple[bytes, ...]
"""The parts of one message; large binaries stand apart, so that nobody has to look through them."""

MAX_MESSAGE: Final = 64_000_000
"""Bytes of one message; a caller's larger one is refused, that of the other side ends the link."""
MAX_PARTS: Final = 1_000
SLICE: Final = 256 * 1024
"""Bytes of a large message that are written or kept at a time."""

HEADER: Final = struct.Struct("!IBHII")
LENGTH: Final = struct.Struct("!I")

NOTICE, CALL, CANCEL, CREDIT, REPLY, ERROR, CANCELLED, STREAM, ITEM, END = range(10)
"""The kinds of frames. Of a call's number that its maker gave it speak CALL, CANCEL and CREDIT; the others answer. In a
CREDIT the number of the other call is that of the items which were read."""


class Malformed(Exception):
    """A frame breaks a rule of the link."""


class Partial:
    """A message of which some bytes are missing."""

    __slots__ = ("body", "header", "held")

    def __init__(self, header: tuple[int, ...], body: bytearray, held: int) -> None:
        self.header = header
        self.body = body
        self.held = held


def frame(kind: int, number: int, parent: int, parts: Message) -> list[bytes | memoryview]:
    """Return a frame as what is to be written, one after the other: a small one whole, a large one in slices. Raises
    `ValueError` for one that is too large."""
    lengths = [len(part) for part in parts]
    size = sum(lengths) + LENGTH.size * len(parts)
    if size > MAX_MESSAGE or len(parts) > MAX_PARTS:
        raise ValueError(f"{size:,} bytes are too many for one message: {MAX_MESSAGE:,} are allowed")
    head = HEADER.pack(size, kind, len(parts), number, parent) + b"".join(map(LENGTH.pack, lengths))
    if size <= SLICE:
        return [b"".join((head, *parts))]
    views = [memoryview(part) for part in parts]
    return [head, *(view[at : at + SLICE] for view in views for at in range(0, len(view), SLICE))]


def split(count: int, body: bytearray | memoryview, *, at_least: int = 0) -> Message:
    """Return the parts of a message, of which there must be `at_least` so many. Raises `Malformed`."""
    at, parts = count * LENGTH.size, []
    view = memoryview(body)
    if not at_least <= count <= MAX_PARTS or at > len(body):
        raise Malformed(f"with {count} parts in {len(body):,} bytes")
    for (length,) in LENGTH.iter_unpack(bytes(view[:at])):
        parts.append(bytes(view[at : at + length]))  # a slice of a bytearray would be a copy already
        at += length
    if at != len(body):
        raise Malformed("whose parts are not as long as it says")
    return tuple(parts)


def text(name: bytes) -> str:
    """Return a name. Raises `Malformed`."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise Malformed("whose name is no text") from None
