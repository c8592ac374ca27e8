"""Tags in text that is still arriving: how they are found, their attributes, and entities.

This is no XML: `a < b` and unknown tags are text, and nothing is ever an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

CDATA = "<![CDATA["
CDATA_END = "]]>"

LONGEST = 512
"""No tag is longer, so nothing further back than that needs to be held."""

_NAME = r"[A-Za-z_][A-Za-z0-9_.:\-]{0,63}"
_TAG = rf"<(?P<closing>/?)\s{{0,8}}(?P<name>{_NAME})(?P<attributes>(?:[\s/][^<>]{{0,400}})?)>"
TAG = re.compile(_TAG)
MARK = re.compile(rf"(?P<cdata><!\[CDATA\[)|{_TAG}")
"""What may end the text of a value: a tag, or the beginning of a CDATA section."""

_WORD = re.compile(r"<(/?)\s{0,8}([A-Za-z_\-]*)")
_ATTRIBUTE = re.compile(r"""([A-Za-z_][A-Za-z0-9_.:\-]*)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=]+))""")
_IGNORED = re.compile(r"[_\-]")
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,8})|#[xX]([0-9a-fA-F]{1,7}));")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}


class Tag(NamedTuple):
    """A tag: its `name` without case, underscores and hyphens, and whether it closes, or opens and closes at once."""

    name: str
    closing: bool
    empty: bool
    attributes: dict[str, str]
    text: str


def tag_of(found: re.Match[str]) -> Tag:
    """Return the tag that `TAG` or `MARK` matched."""
    written = found["attributes"]
    return Tag(
        same_name(found["name"]),
        bool(found["closing"]),
        written.endswith("/"),
        attributes_of(written) if "=" in written else {},
        found.group(),
    )


@lru_cache(maxsize=1024)
def same_name(name: str) -> str:
    """Return a name as it is compared: `ToolId`, `tool_id` and `TOOL-ID` are the same."""
    return _IGNORED.sub("", name).casefold()


def attributes_of(text: str) -> dict[str, str]:
    """Return the attributes of a tag, in either quotes or none, by their compared names. One that is given twice with
    different values has none."""
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text.removesuffix("/")):
        value = decoded(next((value for value in match.groups()[1:] if value is not None), ""))
        if found.setdefault(same_name(match[1]), value) != value:
            found[same_name(match[1])] = ""
    return found


def decoded(text: str) -> str:
    """Return `text` with its entities decoded; what is none stays as it is."""
    return _ENTITY.sub(_character, text) if "&" in text else text


def held_tag(data: str, begin: int) -> int:
    """Return where the tag or the mark of a CDATA section that may still be arriving at the end of `data` begins,
    not before `begin`; else the end."""
    start = data.rfind("<", max(begin, len(data) - LONGEST))
    return len(data) if start < 0 or data.find(">", start) >= 0 else start


def held_opening(data: str, begin: int, words: Collection[str]) -> int:
    """Return where an opening tag with one of these compared names may be arriving at the end of `data`."""
    start = data.rfind("<", max(begin, len(data) - LONGEST))
    if start < 0 or data.find(">", start) >= 0:
        return len(data)
    found = _WORD.match(data, start)
    if found is None:
        return len(data)
    name = same_name(found[2])
    if found.end() == len(data):
        return start if not found[1] and any(word.startswith(name) for word in words) else len(data)
    behind = data[found.end()]
    return start if not found[1] and name in words and (behind.isspace() or behind == "/") else len(data)


def _character(found: re.Match[str]) -> str:
    if found[1]:
        return _ENTITIES[found[1]]
    number = int(found[2]) if found[2] else int(found[3], 16)
    allowed = 0 < number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF
    return chr(number) if allowed else found.group()
