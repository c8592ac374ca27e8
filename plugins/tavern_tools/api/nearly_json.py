"""JSON that a language model wrote nearly right: mended where that is certain, for all that read arguments.

Four mistakes are mended, and no other: a code fence around the whole, a comma before a closing bracket, line breaks and
tabs in strings as they are, and what Python writes (single quotes, True, False, None). After that all of the text must
be one JSON value in which no key is given twice with different values. Nothing is completed, left out or guessed.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from tavern_host.contracts.documents import LARGE_TEXT, object_of

_FENCE = re.compile(r"\s*```(?:json|JSON|python)?[ \t]*\r?\n(.*?)\r?\n[ \t]*```\s*", re.DOTALL)
_TOKEN = re.compile(
    r"""("(?:[^"\\]|\\.)*")|('(?:[^'\\]|\\.)*')|(["'])|\b(True|False|None)\b|(,)(?=\s*[}\]])""", re.DOTALL
)
_ESCAPED = re.compile(r"""\\(.)|(")""", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_WORDS = {"True": "true", "False": "false", "None": "null"}

FENCE = "the code fence around the JSON was left out"
COMMA = "a comma before a closing bracket was left out"
BREAK = "line breaks or tabs in a string were taken as such"
PYTHON = "Python's quotes or words were read as JSON's"


def mended(text: str) -> tuple[str, list[str]] | None:
    """Return a text as JSON, and what was mended in it; None where not all of it is certain.

    A text that is JSON already has nothing mended. Linear in the length; one above `LARGE_TEXT` characters is left
    alone.
    """
    if len(text) > LARGE_TEXT or _CONTROL.search(text):
        return None
    notes: list[str] = []
    fenced = _FENCE.fullmatch(text)
    if fenced is not None:
        text = fenced.group(1)
        notes.append(FENCE)
    parts, end = list[str](), 0
    for found in _TOKEN.finditer(text):
        double, single, open_quote, word, comma = found.groups()
        if open_quote:  # a string has no end
            return None
        note, part = "", found.group()
        if double:
            note = BREAK if re.search("[\n\r\t]", double) else ""
        elif comma:
            note, part = COMMA, ""
        else:
            note, part = PYTHON, _WORDS[word] if word else _json_string(single)
        if note and note not in notes:
            notes.append(note)
        parts += [text[end : found.start()], part]
        end = found.end()
    read = json.JSONDecoder(strict=False, parse_constant=_refuse, object_pairs_hook=object_of).decode
    try:
        value = read("".join([*parts, text[end:]]))
        return json.dumps(value, ensure_ascii=False, allow_nan=False), notes
    except (ValueError, RecursionError):
        return None


def _json_string(single: str) -> str:
    """Return a string in single quotes as one of JSON, whose escapes are those of JSON, and the quote itself."""

    def change(found: re.Match[str]) -> str:
        escaped, quote = found.groups()
        return '\\"' if quote else "'" if escaped == "'" else found.group()

    return f'"{_ESCAPED.sub(change, single[1:-1])}"'


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
