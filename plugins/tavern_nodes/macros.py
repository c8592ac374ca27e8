"""Fills in the macros of prompts, such as `{{char}}` and `{{user}}`; knows none by itself but `{{newline}}`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tavern_nodes.values import MAX_TEXT, bounded

_MACRO = re.compile(r"\{\{([^{}]{0,1000})\}\}|<(USER|BOT|CHAR)>", re.IGNORECASE)
_OLD_NAMES = {"user": "user", "bot": "char", "char": "char"}


def expand(text: str, values: Mapping[str, str], who: str) -> str:
    """Return `text` with its macros replaced, once: what a value brings in is not looked at again.

    Names are case-insensitive; `<USER>`, `<BOT>` and `<CHAR>` are the old way of writing two of
    them; `{{// … }}` is a comment and goes; an unknown macro stays. Raises `InvalidInput` where the text grows over
    `MAX_TEXT`.
    """
    pieces: list[str] = []
    end = length = 0
    for match in _MACRO.finditer(text):
        pieces += (text[end : match.start()], _value(match, values))
        length += len(pieces[-1]) + len(pieces[-2])
        bounded(length, MAX_TEXT, who, "characters")
        end = match.end()
    return "".join([*pieces, text[end:]])


def _value(match: re.Match[str], values: Mapping[str, str]) -> str:
    name = (match[1] if match[1] is not None else _OLD_NAMES[match[2].lower()]).strip()
    if name.startswith("//"):
        return ""
    if name.lower() == "newline":
        return "\n"
    return values.get(name.lower(), match[0])
