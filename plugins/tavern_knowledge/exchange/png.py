"""Text that is kept within PNG pictures, as character cards are: chunks `tEXt`, `zTXt` and `iTXt` (PNG §11.3.4).

Compressed text is unpacked up to a bound, whatever its size would be.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping

from tavern_host.contracts.errors import InvalidInput

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS = 100_000
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_DOT = (b"\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00", zlib.compress(b"\x00\x00\x00\x00\x00"))


def texts_of(data: bytes, most: int) -> dict[str, bytes]:
    """Return the texts of a picture by keyword, in lower case; of several with one keyword the first. Raises
    `InvalidInput` for what is no PNG, and for a text of more than `most` bytes."""
    found: dict[str, bytes] = {}
    for kind, content in _chunks(data):
        if kind in _TEXTS:
            keyword, text = _text(kind, content, most)
            found.setdefault(keyword.lower(), text)
    return found


def with_texts(picture: bytes | None, texts: Mapping[str, bytes]) -> bytes:
    """Return a picture, without one a single transparent pixel, with these texts in the place of others that have their
    keywords. Raises `InvalidInput` for what is no PNG."""
    parts = [SIGNATURE]
    chunks = [(b"IHDR", _DOT[0]), (b"IDAT", _DOT[1])] if picture is None else list(_chunks(picture))
    for kind, content in chunks:
        keyword = content.partition(b"\0")[0].decode("latin-1").lower() if kind in _TEXTS else None
        if kind != b"IEND" and keyword not in texts:
            parts.append(_chunk(kind, content))
    parts += [_chunk(b"tEXt", keyword.encode() + b"\0" + text) for keyword, text in texts.items() if text]
    return b"".join([*parts, _chunk(b"IEND", b"")])


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise InvalidInput("it is no PNG picture")
    at = len(SIGNATURE)
    for _ in range(MAX_CHUNKS):
        if at + 12 > len(data):
            raise InvalidInput("the PNG picture is cut off")
        (length,) = struct.unpack_from(">I", data, at)
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        check = data[at + 8 + length : at + 12 + length]
        if len(check) < 4:
            raise InvalidInput("the PNG picture is cut off")
        if struct.unpack(">I", check)[0] != zlib.crc32(kind + content):
            raise InvalidInput(f"the PNG picture is damaged: wrong checksum of a chunk {kind.decode('latin-1')}")
        yield kind, content
        if kind == b"IEND":
            return
        at += 12 + length
    raise InvalidInput(f"the PNG picture has more than {MAX_CHUNKS:,} chunks")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _text(kind: bytes, content: bytes, most: int) -> tuple[str, bytes]:
    keyword, _, rest = content.partition(b"\0")
    is_packed = kind == b"zTXt"
    if kind == b"zTXt":
        rest = rest[1:]
    elif kind == b"iTXt":
        is_packed = rest[:1] == b"\x01"
        rest = rest[2:].split(b"\0", 2)[-1]
    name = keyword.decode("latin-1")
    if is_packed:
        try:
            rest = zlib.decompressobj().decompress(rest, most + 1)
        except zlib.error:
            raise InvalidInput(f"the text {name!r:.80} of the PNG picture cannot be unpacked") from None
    if len(rest) > most:
        raise InvalidInput(f"the text {name!r:.80} of the PNG picture has more than {most >> 20} MiB")
    return name, rest
