"""Character cards within PNG pictures, as text in the chunks `tEXt`, `zTXt` and `iTXt` (PNG §11.3.3).

Compressed text is unpacked up to a bound, whatever its size would be.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping

from tavern_host.contracts.errors import InvalidInput

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS = 100_000
CARDS = ("ccv3", "chara")
"""The keywords under which a picture holds a card, the one to prefer first."""
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_DOT = (b"\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00", zlib.compress(b"\x00\x00\x00\x00\x00"))


def card_in(picture: bytes, most: int) -> bytes:
    """Return the JSON text of the card that a picture carries, in Base64 or as it is; of several the first that is
    JSON. Raises `InvalidInput` for what is no PNG, for one without a card, and for a card of more than `most` bytes."""
    found: dict[str, tuple[bytes, bytes]] = {}
    for kind, content in _chunks(picture):
        keyword, _, rest = content.partition(b"\0") if kind in _TEXTS else (b"", b"", b"")
        found.setdefault(keyword.decode("latin-1").lower(), (kind, rest))
    texts = [_unpacked(*found[keyword], most) for keyword in CARDS if keyword in found]
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise InvalidInput(f"this picture holds no character card (no text {' or '.join(CARDS)})")
    for text in texts[:-1]:
        with contextlib.suppress(InvalidInput, ValueError, RecursionError):
            json.loads(_decoded(text))
            return _decoded(text)
    return _decoded(texts[-1])


def _decoded(text: bytes) -> bytes:
    if text.lstrip().startswith(b"{"):
        return text
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        raise InvalidInput("the card in the picture is not Base64") from None


def with_cards(picture: bytes | None, cards: Mapping[str, bytes]) -> bytes:
    """Return a picture, without one a single transparent pixel, with these JSON texts as its cards, by keyword, and no
    others. Raises `InvalidInput` for what is no PNG."""
    parts = [SIGNATURE]
    chunks = [(b"IHDR", _DOT[0]), (b"IDAT", _DOT[1])] if picture is None else list(_chunks(picture))
    for kind, content in chunks:
        keyword = content.partition(b"\0")[0].decode("latin-1").lower() if kind in _TEXTS else None
        if kind != b"IEND" and keyword not in CARDS:
            parts.append(_chunk(kind, content))
    parts += [_chunk(b"tEXt", keyword.encode() + b"\0" + base64.b64encode(card)) for keyword, card in cards.items()]
    return b"".join([*parts, _chunk(b"IEND", b"")])


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise InvalidInput("it is no PNG picture")
    at = len(SIGNATURE)
    for _ in range(MAX_CHUNKS):
        if at + 12 > len(data):
            raise InvalidInput("the picture breaks off in the middle")
        (length,) = struct.unpack_from(">I", data, at)
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        check = data[at + 8 + length : at + 12 + length]
        if len(check) < 4:
            raise InvalidInput("the picture breaks off in the middle")
        if struct.unpack(">I", check)[0] != zlib.crc32(kind + content):
            raise InvalidInput(f"the picture is damaged: wrong checksum of a chunk {kind.decode('latin-1')}")
        yield kind, content
        if kind == b"IEND":
            return
        at += 12 + length
    raise InvalidInput(f"the picture has more than {MAX_CHUNKS:,} chunks")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _unpacked(kind: bytes, rest: bytes, most: int) -> bytes:
    """Return the text of a chunk; `rest` is what stands behind its keyword."""
    is_packed = kind == b"zTXt"
    if kind == b"zTXt":
        rest = rest[1:]
    elif kind == b"iTXt":
        is_packed = rest[:1] == b"\x01"
        rest = rest[2:].split(b"\0", 2)[-1]
    if is_packed:
        try:
            rest = zlib.decompressobj().decompress(rest, most + 1)
        except zlib.error:
            raise InvalidInput("a compressed text in the picture is damaged") from None
    if len(rest) > most:
        raise InvalidInput(f"a {'compressed ' if is_packed else ''}text in the picture is too large")
    return rest
