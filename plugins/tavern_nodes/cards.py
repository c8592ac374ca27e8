"""Character cards: finds them in JSON and PNG files of the versions 1 to 3 and gives them one shape.

The formats are the community's Character Card V2 and V3 specifications; version 1 has the six text fields alone.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator
from typing import Any

from tavern_host import InvalidInput
from tavern_nodes.documents import decode, read_json
from tavern_nodes.values import MAX_TEXT, kind_of

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

CHUNKS = ("ccv3", "chara")
"""The keywords under which a PNG holds a card, the one to prefer first."""

TEXT_FIELDS = ("name", "description", "personality", "scenario", "first_mes", "mes_example")
"""What every version has."""

LATER_TEXT_FIELDS = ("creator_notes", "system_prompt", "post_history_instructions", "creator", "character_version")
LIST_FIELDS = ("alternate_greetings", "tags")


def read_card_file(data: bytes, where: str) -> dict[str, Any]:
    """Return the card in the bytes of a JSON or PNG file. Raises `InvalidInput` beginning with `where`."""
    if data.startswith(PNG_SIGNATURE):
        return read_card(read_json(_card_in_png(data, where), f"{where}: the card in the picture"), where)
    return read_card(read_json(decode(data, where), where), where)


def read_card(value: Any, where: str) -> dict[str, Any]:
    """Return a card of any version as one flat object: all fields of version 2, then what else it holds.

    `spec` and `spec_version` say where it came from. Raises `InvalidInput`.
    """
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: a character card is an object, not {kind_of(value)}")
    inner = value.get("data")
    data = inner if isinstance(inner, dict) else value
    if not isinstance(data.get("name"), str) or not any(key in data for key in TEXT_FIELDS[1:]):
        raise InvalidInput(f"{where}: this is no character card; it has no name, description or other field of one")
    card: dict[str, Any] = {}
    for key in (*TEXT_FIELDS, *LATER_TEXT_FIELDS):
        card[key] = "" if data.get(key) is None else data[key]
        if not isinstance(card[key], str):
            raise InvalidInput(f"{where}: the card's {key} must be text, not {kind_of(card[key])}")
    for key in LIST_FIELDS:
        card[key] = data.get(key) or []
        if not isinstance(card[key], list) or not all(isinstance(item, str) for item in card[key]):
            raise InvalidInput(f"{where}: the card's {key} must be a list of texts")
    card |= {key: item for key, item in data.items() if key not in card}
    card["spec"] = str(value.get("spec") or data.get("spec") or "chara_card_v1")
    card["spec_version"] = str(value.get("spec_version") or data.get("spec_version") or "1.0")
    return card


def _card_in_png(data: bytes, where: str) -> str:
    chunks: dict[str, tuple[bytes, bytes]] = {}
    for kind, content in _text_chunks(data, where):
        keyword, _, rest = content.partition(b"\0")
        chunks.setdefault(keyword.decode("latin-1").lower(), (kind, rest))
    written = next((_text_of(*chunks[key], where) for key in CHUNKS if key in chunks), None)
    if written is None:
        raise InvalidInput(f"{where}: this picture holds no character card (no text {' or '.join(CHUNKS)})")
    if written.lstrip().startswith(b"{"):
        return decode(written, where)
    try:
        return decode(base64.b64decode(written, validate=False), f"{where}: the card in the picture")
    except (binascii.Error, ValueError):
        raise InvalidInput(f"{where}: the card in the picture is not base64 text") from None


def _text_chunks(data: bytes, where: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and content of each text chunk (PNG specification, third edition, §11.3.3)."""
    at = len(PNG_SIGNATURE)
    while at + 12 <= len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        content = data[at + 8 : at + 8 + size]
        if len(content) < size:
            raise InvalidInput(f"{where}: the picture breaks off in the middle")
        if kind in (b"tEXt", b"zTXt", b"iTXt"):
            yield kind, content
        if kind == b"IEND":
            return
        at += 12 + size


def _text_of(kind: bytes, rest: bytes, where: str) -> bytes:
    if kind == b"tEXt":
        return rest
    if kind == b"zTXt":
        return _inflated(rest[1:], where)
    _language, _, further = rest[2:].partition(b"\0")
    _keyword, _, text = further.partition(b"\0")
    return _inflated(text, where) if rest[:1] == b"\1" else text


def _inflated(data: bytes, where: str) -> bytes:
    limit = 2 * MAX_TEXT  # base64 of UTF-8 is longer than the text
    machine = zlib.decompressobj()
    try:
        text = machine.decompress(data, limit)
    except zlib.error:
        raise InvalidInput(f"{where}: a compressed text in the picture is damaged") from None
    if machine.unconsumed_tail:
        raise InvalidInput(f"{where}: a compressed text in the picture is too large")
    return text
