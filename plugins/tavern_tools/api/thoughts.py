"""Thoughts in a model's text: elements `<think …>` and `<thinking …>`, in which no protocol looks for calls.

An element ends with its own closing tag; those of the same name within it are counted. One that has no end holds the
rest of the text, and one that is written as empty (`<think/>`) begins a thought as well.
"""

from __future__ import annotations

import re

LONGEST = 512
"""No tag of a thought is longer, in characters, its attributes included."""

_NAME = "[Tt][Hh][Ii][Nn][Kk](?:[Ii][Nn][Gg])?"
_NAME_ARRIVING = "(?:".join(f"[{letter.upper()}{letter}]" for letter in "thinking") + ")?" * len("hinking")
_ATTRIBUTES = r"[\s/][^<>]{0,400}"

PATTERN = rf"<(?u:\s{{0,8}}{_NAME}(?:{_ATTRIBUTES})?>)"
"""The tag that begins a thought, as a regular expression."""

ARRIVING = rf"<(?u:\s{{0,8}}(?:{_NAME}{_ATTRIBUTES}|(?:{_NAME_ARRIVING})?))"
"""Every beginning of that tag, as a regular expression to be matched up to the end of the text that has arrived."""

_BEGIN = re.compile(PATTERN)
_TAG = re.compile(rf"{PATTERN}|<\s{{0,8}}/\s{{0,8}}{_NAME}\s{{0,8}}>")
_TAG_ARRIVING = re.compile(rf"(?:{ARRIVING}|<\s{{0,8}}/\s{{0,8}}(?:{_NAME}\s{{0,8}}|(?:{_NAME_ARRIVING})?))\Z")
_WRITTEN_NAME = re.compile(_NAME)


class Thought:
    """A thought, read from its first tag on as its text arrives."""

    def __init__(self) -> None:
        self._name = ""
        self._depth = 0

    def read(self, text: str, begin: int, *, final: bool) -> tuple[int, bool]:
        """Read on in `text` from the index `begin` on; return up to where it is certain, and whether it ended there.

        `final` says that no more text comes. Otherwise the next reading begins where this one ended.
        """
        for found in _TAG.finditer(text, begin):
            tag = found.group()
            name = _name_in(tag)
            self._name = self._name or name
            if name != self._name or (self._depth and tag.endswith("/>")):
                continue
            self._depth += -1 if tag[1:].lstrip().startswith("/") else 1
            if self._depth == 0:
                return found.end(), True
        last = -1 if final else text.rfind("<", max(begin, len(text) - LONGEST))
        return (last if last >= 0 and _TAG_ARRIVING.match(text, last) else len(text)), False


def open_thought(text: str) -> int | None:
    """Return the index at which the thought begins that `text` ends in, or None."""
    position = 0
    while (begun := _BEGIN.search(text, position)) is not None:
        position, ended = Thought().read(text, begun.start(), final=True)
        if not ended:
            return begun.start()
    return None


def _name_in(tag: str) -> str:
    found = _WRITTEN_NAME.search(tag)
    return found.group().lower() if found is not None else ""
