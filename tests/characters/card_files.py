"""Character cards as people share them, in each kind of file, with the oddities that such files have."""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile
from typing import Any

from tests.knowledge.cards import chunk, picture, text_chunk

MIRA: dict[str, Any] = {
    "name": "Mira Vale",
    "description": "{{char}} keeps the inn. {{user}} is her guest.",
    "personality": "Warm and curious.",
    "scenario": "It rains.",
    "first_mes": "*{{char}} looks up.* Come in, {{user}}!{{newline}}It is {{random::late}}.",
    "mes_example": "<START>\n{{user}}: Soup?\n{{char}}: Always.",
}
BOOK: dict[str, Any] = {
    "name": "The valley",
    "scan_depth": 2,
    "recursive_scanning": True,
    "extensions": {"acme/shelf": 3},
    "entries": [
        {
            **{"keys": ["dragon"], "content": "{{char}} fears the dragon of the silver hill.", "enabled": True},
            **{"insertion_order": 10, "extensions": {"acme": {"a": 1}}, "name": "Dragon", "comment": "Dragon", "id": 0},
            **{"position": "before_char", "case_sensitive": False, "selective": False, "constant": False},
        },
        {
            **{"keys": ["silver hill"], "content": "Silver was dug there.", "enabled": True, "insertion_order": 20},
            **{"extensions": {"position": 4, "depth": 1, "role": 0}, "id": 1, "selective": False, "constant": False},
        },
    ],
}
V2: dict[str, Any] = {
    "spec": "chara_card_v2",
    "spec_version": "2.0",
    "data": {
        **MIRA,
        "creator_notes": "For tests.",
        "system_prompt": "{{original}} Speak as an innkeeper.",
        "post_history_instructions": "Stay in the inn, {{char}}.",
        "alternate_greetings": ["The inn is closed, {{user}}.", "又是你，{{user}}？"],
        "character_book": BOOK,
        "tags": ["inn"],
        "creator": "somebody",
        "character_version": "2",
        "extensions": {"depth_prompt": {"prompt": "{{char}} limps.", "depth": 1, "role": "system"}, "acme": {"x": 1}},
    },
}
V3: dict[str, Any] = {
    "spec": "chara_card_v3",
    "spec_version": "3.0",
    "data": {
        **V2["data"],
        "nickname": "Mira",
        "assets": [{"type": "icon", "uri": "embeded://pictures/me.png", "name": "main", "ext": "png"}],
        "group_only_greetings": [],
        "source": ["https://example.com/mira"],
        "acme_field": [1, {"b": None}],
    },
}
DOT = picture()


def dumped(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


def png(card: Any = V2, keyword: str = "chara", kind: bytes = b"tEXt") -> bytes:
    return picture(text_chunk(keyword, card, kind))


def apng(card: Any = V2) -> bytes:
    """Return an animated picture: a PNG with a chunk that says how often it is shown."""
    return picture(chunk(b"acTL", struct.pack(">II", 1, 0)), text_chunk("chara", card))


def exif(card: Any, order: str = "<") -> bytes:
    """Return Exif data whose comment is a card."""
    text = b"ASCII\0\0\0" + dumped(card)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    first = struct.pack(f"{order}HHHIII", 1, 0x8769, 4, 1, 26, 0)
    second = struct.pack(f"{order}HHHIII", 1, 0x9286, 7, len(text), 44, 0)
    return head + first + second + text


def webp(card: Any = V2) -> bytes:
    data = exif(card)
    body = b"WEBPVP8L" + struct.pack("<I", 4) + b"\x2f\0\0\0" + b"EXIF" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def jpeg(card: Any = V2) -> bytes:
    data = b"Exif\0\0" + exif(card, ">")
    return b"\xff\xd8\xff\xe1" + struct.pack(">H", len(data) + 2) + data + b"\xff\xda\0\2\xff\xd9"


def jpeg_with_comment(card: Any = V2) -> bytes:
    data = base64.b64encode(dumped(card))
    return b"\xff\xd8\xff\xfe" + struct.pack(">H", len(data) + 2) + data + b"\xff\xd9"


def charx(card: Any = V3, **files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("card.json", dumped(card))
        for name, content in ({"pictures/me.png": DOT} | files).items():
            archive.writestr(name, content)
    return made.getvalue()
