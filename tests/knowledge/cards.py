"""Lorebooks and character cards in their published forms, and pictures that carry them."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

ENTRY: dict[str, Any] = {
    **{"uid": 0, "key": [], "keysecondary": [], "comment": "", "content": "", "constant": False, "selective": True},
    **{"selectiveLogic": 0, "order": 100, "position": 1, "depth": 4, "disable": False, "probability": 100},
    **{"useProbability": True},
}
"""An entry of a lorebook with what each has."""

DRAGON = {
    **ENTRY,
    **{"key": ["dragon", "红龙"], "keysecondary": ["cave", "gold"], "comment": "The red dragon"},
    **{"content": "A red dragon sleeps in the cave.", "selectiveLogic": 3, "order": 120, "position": 4, "depth": 2},
    **{"role": 2, "probability": 60, "scanDepth": 3, "caseSensitive": None, "matchWholeWords": False, "sticky": 3},
    **{"cooldown": 0, "delay": 0, "group": "", "groupWeight": 100, "excludeRecursion": False, "displayIndex": 0},
    **{"preventRecursion": True, "vectorized": False, "addMemo": True, "automationId": ""},
}
VALLEY = {**ENTRY, "uid": 7, "content": "The valley is cold.", "constant": True, "role": None}
INN = {
    **ENTRY,
    **{"uid": 8, "key": ["/inn(keeper)?/i"], "keysecondary": ["bed"], "comment": "Off", "content": "An inn."},
    **{"selective": False, "selectiveLogic": 1, "order": 5, "position": 0, "disable": True, "probability": 30},
    **{"useProbability": False},
}
WORLD: dict[str, Any] = {"name": "余烬山谷", "entries": {"0": DRAGON, "7": VALLEY, "8": INN}}

MOONWORT = {
    **{"keys": ["herb", "药草"], "content": "Moonwort grows at night.", "enabled": True, "insertion_order": 10},
    **{"case_sensitive": True, "name": "Moonwort", "comment": "Moonwort", "priority": 7, "id": 1, "selective": True},
    **{"secondary_keys": ["night"], "constant": False, "position": "after_char"},
    "extensions": {"position": 1, "probability": 80, "useProbability": True, "depth": 4, "acme": {"a": 1}},
}
DEBT = {
    **{"keys": ["debt"], "content": "Three coins.", "extensions": {}, "enabled": False, "insertion_order": 20},
    **{"use_regex": False, "constant": True},
}
BOOK: dict[str, Any] = {
    **{"name": "Elara's book", "description": "Herbs and debts.", "scan_depth": 4, "token_budget": 500},
    **{"recursive_scanning": False, "extensions": {"acme/shelf": 3}, "entries": [MOONWORT, DEBT]},
}

V1: dict[str, Any] = {
    "name": "Elara",
    "description": "{{char}} is a herbalist.",
    "personality": "Grumpy.",
    "scenario": "A shop at dusk.",
    "first_mes": "What do you want?",
    "mes_example": "<START>\n{{user}}: Hello.\n{{char}}: Hm.",
}

V2: dict[str, Any] = {
    "spec": "chara_card_v2",
    "spec_version": "2.0",
    "data": {
        **V1,
        "creator_notes": "Made for tests.",
        "system_prompt": "Stay in the shop.",
        "post_history_instructions": "",
        "alternate_greetings": ["Closed!", "又是你？"],
        "character_book": BOOK,
        "tags": ["herbalist", "npc"],
        "creator": "somebody",
        "character_version": "1.2",
        "extensions": {"depth_prompt": {"prompt": "x", "depth": 4}},
    },
}

V3: dict[str, Any] = {
    "spec": "chara_card_v3",
    "spec_version": "3.0",
    "data": {
        **V2["data"],
        "nickname": "Ela",
        "assets": [{"type": "icon", "uri": "ccdefault:", "name": "main", "ext": "png"}],
        "creator_notes_multilingual": {"zh": "测试用"},
        "source": ["https://example.com/elara"],
        "group_only_greetings": ["You all?"],
        "creation_date": 1700000000,
        "modification_date": 1700000001,
    },
}


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def text_chunk(keyword: str, card: Any, kind: bytes = b"tEXt") -> bytes:
    """Return a chunk that carries a card: Base64 of its JSON."""
    text = base64.b64encode(json.dumps(card).encode())
    between = {b"tEXt": b"\0", b"zTXt": b"\0\0", b"iTXt": b"\0\x01\0\0\0"}[kind]
    return chunk(kind, keyword.encode() + between + (text if kind == b"tEXt" else zlib.compress(text)))


def picture(*chunks: bytes) -> bytes:
    """Return a picture of one pixel with further chunks."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\0\0"))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + pixel + chunk(b"IEND", b"")


def cards_in(png: bytes) -> dict[str, Any]:
    """Return the cards that a picture carries, by keyword."""
    found, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if kind == b"tEXt":
            keyword, _, text = content.partition(b"\0")
            if keyword in (b"chara", b"ccv3"):
                found[keyword.decode()] = json.loads(base64.b64decode(text))
        at += 12 + length
    return found
