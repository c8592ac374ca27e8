"""The files in which character cards are shared: JSON, pictures that carry one (PNG and APNG, WebP, JPEG), and CHARX, a
zip archive. Takes the card and the picture out of them; what a card says is of no interest here.

Whatever is packed is unpacked up to a bound.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import contextlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.api.pictures import SIGNATURE, card_in, with_cards

Container = Literal["json", "png", "webp", "jpeg", "charx"]

CARD = "card.json"
"""The name of the card in a CHARX archive."""
MAX_FILES = 2_000
MAX_PICTURE = 16 << 20
_EMBEDDED = ("embeded://", "embedded://")
"""How a card in an archive names a file there: as the specification spells it, and as others do."""
_JPEG, _WEBP_AT = b"\xff\xd8\xff", 8
_ZIP = b"PK\x03\x04"
_EXIF_POINTER = 0x8769
_CHARSETS = {b"ASCII\0\0\0": "utf-8", b"UNICODE\0": "utf-16", b"\0" * 8: "utf-8"}
_MAX_TAGS = 1_000


@dataclass(frozen=True)
class CarriedCard:
    """A card as it was shared: its JSON text, and the picture without it, of the type `media_type`."""

    container: Container
    text: bytes
    picture: bytes | None = None
    media_type: str = ""


def container_of(data: bytes) -> Container:
    """Return the kind of a file, by its first bytes; `json` for anything else."""
    if data.startswith(SIGNATURE):
        return "png"
    if data.startswith(_JPEG):
        return "jpeg" if zip_at(data) is None else "charx"
    if data[:4] == b"RIFF" and data[_WEBP_AT : _WEBP_AT + 4] == b"WEBP":
        return "webp"
    return "charx" if data.startswith(_ZIP) else "json"


def carried_card(data: bytes, most: int) -> CarriedCard:
    """Return the card that a file carries; of text all of it. Raises `InvalidInput` for a file without one, for a
    damaged one, and for a card of more than `most` bytes."""
    kind = container_of(data)
    if kind == "png":
        return CarriedCard(kind, card_in(data, 2 * most), with_cards(data, {}), "image/png")
    if kind == "charx":
        return _from_archive(data, most)
    if kind == "json":
        return CarriedCard(kind, in_utf8(data))
    parts = _webp_parts(data) if kind == "webp" else _jpeg_parts(data)
    found = next((text for part in parts for text in [_card_text(part)] if text is not None), None)
    if found is None:
        raise InvalidInput(f"this {kind.upper()} picture holds no character card in its Exif data or comments")
    if len(found) > most:
        raise InvalidInput(f"the card in the picture has more than {most >> 20} MiB")
    return CarriedCard(kind, found, data, f"image/{kind}")


def in_utf8(data: bytes) -> bytes:
    """Return a text in UTF-8, also one that is written in UTF-16, as some editors on Windows do; any other as it is."""
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode("utf-16").encode()
    return data


# --- WebP and JPEG --------------------------------------------------------------------------------


def _webp_parts(data: bytes) -> Iterator[bytes]:
    """Yield the texts in the Exif chunks of a WebP picture, and its XMP."""
    at = 12
    while at + 8 <= len(data):
        kind, (length,) = data[at : at + 4], struct.unpack_from("<I", data, at + 4)
        content = data[at + 8 : at + 8 + length]
        if kind == b"EXIF":
            yield from _exif_texts(content)
        elif kind == b"XMP ":
            yield content
        at += 8 + length + length % 2


def _jpeg_parts(data: bytes) -> Iterator[bytes]:
    """Yield the texts in the Exif segments of a JPEG picture, and its comments."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker, (length,) = data[at + 1], struct.unpack_from(">H", data, at + 2)
        if marker == 0xDA or length < 2:  # the picture itself
            return
        content = data[at + 4 : at + 2 + length]
        if marker == 0xE1 and content.startswith(b"Exif\0\0"):
            yield from _exif_texts(content)
        elif marker == 0xFE:
            yield content
        at += 2 + length


def _exif_texts(content: bytes) -> Iterator[bytes]:
    """Yield the texts of Exif data: what stands in the fields of its first two directories (TIFF 6.0)."""
    tiff = content.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or len(tiff) < 8:
        return
    places: list[int] = [struct.unpack_from(f"{order}I", tiff, 4)[0]]
    for place in places:
        if place + 2 > len(tiff):
            return
        (count,) = struct.unpack_from(f"{order}H", tiff, place)
        for index in range(min(count, _MAX_TAGS)):
            at = place + 2 + 12 * index
            if at + 12 > len(tiff):
                break
            tag, kind, size, value = struct.unpack_from(f"{order}HHII", tiff, at)
            if tag == _EXIF_POINTER and len(places) < 2:
                places.append(value)
            elif kind in (1, 2, 7) and size > 4:
                yield tiff[value : value + size]


def _card_text(part: bytes) -> bytes | None:
    """Return the JSON text that a part of a picture is, as text or in Base64, or None."""
    charset = _CHARSETS.get(part[:8])
    if charset is not None:
        part = part[8:].decode(charset, "replace").encode() if charset != "utf-8" else part[8:]
    part = part.strip(b"\0 \r\n\t")
    for prefix in (b"chara:", b"ccv3:"):
        part = part.removeprefix(prefix).lstrip()
    if part.startswith(b"{"):
        return part
    try:
        decoded = base64.b64decode(part, validate=False) if len(part) > 8 else b""
    except (binascii.Error, ValueError):
        return None
    return decoded if decoded.lstrip().startswith(b"{") else None


# --- CHARX ----------------------------------------------------------------------------------------


def zip_at(data: bytes) -> int | None:
    """Return where a zip archive begins behind a JPEG picture, as some programs write CHARX; None where none does."""
    return None if (at := data.find(_ZIP)) < 0 or data.find(CARD.encode(), at) < 0 else at


def _from_archive(data: bytes, most: int) -> CarriedCard:
    with _opened(data) as archive:
        text = _unpacked(archive, CARD, most)
        if text is None:
            raise InvalidInput(f"this archive is no character (CHARX): there is no {CARD} in it")
        name = _main_picture(text)
        found = None if name is None else _unpacked(archive, name, MAX_PICTURE)
    kinds = {b"\x89PNG": "image/png", _JPEG: "image/jpeg", b"RIFF": "image/webp"}
    media_type = next((kind for mark, kind in kinds.items() if found is not None and found.startswith(mark)), "")
    return CarriedCard("charx", text, found if media_type else None, media_type)


def with_archived_card(data: bytes | None, card: bytes, picture: bytes | None, name: str, most: int) -> bytes:
    """Return a CHARX archive with this card, besides what an archive that it came in has, and with a picture as the
    file `name`. Raises `InvalidInput` where the files of the archive have more than `most` bytes together."""
    files = {CARD: card}
    if data is not None:
        with _opened(data) as before:
            for one in before.infolist():
                content = None if one.is_dir() or one.filename == CARD else _unpacked(before, one.filename, most)
                if content is not None:
                    most -= len(content)
                    files[one.filename] = content
    files |= {} if picture is None else {name: picture}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return made.getvalue()


def _opened(data: bytes) -> zipfile.ZipFile:
    start = 0 if data.startswith(_ZIP) else zip_at(data) or 0
    try:
        archive = zipfile.ZipFile(io.BytesIO(data[start:]))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise InvalidInput(f"the archive is damaged: {error}") from None
    if len(archive.infolist()) > MAX_FILES:
        raise InvalidInput(f"the archive has more than {MAX_FILES:,} files")
    return archive


def _unpacked(archive: zipfile.ZipFile, name: str, most: int) -> bytes | None:
    """Return a file of an archive, None where it is not there; no more is unpacked than may be."""
    try:
        with archive.open(name) as file:
            found = file.read(most + 1)
    except KeyError:
        return None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise InvalidInput(f"{name} in the archive cannot be read: {error}") from None
    if len(found) > most:
        raise InvalidInput(f"{name} in the archive has more than {most >> 20} MiB")
    return found


def _main_picture(text: bytes) -> str | None:
    """Return the file that a card names as its main icon, else its first icon."""
    try:
        card: Any = json.loads(text)
        assets = card["data"]["assets"]
        icons = [one for one in assets if isinstance(one, dict) and one.get("type") == "icon"]
        icons.sort(key=lambda one: one.get("name") != "main")
        uris = [str(one.get("uri", "")) for one in icons]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return next((uri.removeprefix(mark) for uri in uris for mark in _EMBEDDED if uri.startswith(mark)), None)
