"""Code fences around TAM blocks: models like to wrap a block in one, and it is then part of neither text nor call.

Lengths are bounded, so that no more than a line's beginning is held back while it is unclear.
"""

from __future__ import annotations

import re
from typing import Literal

from tavern_tam.lexing import OPENING, REQUEST_CUT

_LONGEST = 64
_OPENING = re.compile(r"(?:`{3,8}|~{3,8})[^`~\n]{0,32}(?:\n\s{0,16})?\Z")
_OPENING_CUT = re.compile(r"(?:(?:`{3,8}|~{3,8})[^`~\n]{0,32}(?:\n\s{0,16})?|`{1,2}|~{1,2})\Z")
_CLOSING = re.compile(r"\s{0,64}(`{3,8}|~{3,8})[ \t]{0,8}(?:(?=\r?\n)|\Z)")
_BLANK = re.compile(r"\s{0,64}")
_FOLLOWING_CUT = re.compile(rf"\s{{0,64}}(?:[`~]{{1,8}}[ \t]{{0,8}}\r?|{REQUEST_CUT})?\Z", re.ASCII)
_FENCE_LINE = re.compile(r"(?:\A|\n)[ \t]*(?:```|~~~)")

Verdict = Literal["more", "closed", "block", "other"]


def has_fence_marks(text: str) -> bool:
    """Return whether a text holds what fences are made of."""
    return "`" in text or "~" in text


def fence_at_end(data: str, begin: int, stop: int, line_is_blank: bool, *, whole: bool = False) -> int | None:
    """Return where the fence that ends `data[begin:stop]` begins, or None.

    `line_is_blank` says that only blanks precede `begin` on its line. Unless `whole`, the fence may be
    one that is still arriving.
    """
    if not has_fence_marks(data):
        return None
    pattern = _OPENING if whole else _OPENING_CUT
    found = pattern.search(data, max(begin, stop - _LONGEST), stop)
    if found is None:
        return None
    line = data.rfind("\n", begin, found.start()) + 1
    if line == 0:
        if not line_is_blank:
            return None
        line = begin
    return None if data[line : found.start()].strip(" \t") else found.start()


def toggles(text: str, line_is_blank: bool) -> int:
    """Return how many lines of `text` are code fences; `line_is_blank` as in `fence_at_end`."""
    if "```" not in text and "~~~" not in text:
        return 0
    return sum(1 for found in _FENCE_LINE.finditer(text) if line_is_blank or text[found.start()] == "\n")


class HeldFence:
    """The opening line of a fence that so far holds nothing but blocks.

    `held` is all text that was held back, in pieces with their offsets.
    """

    def __init__(self, opening: str, offset: int) -> None:
        self.held = [(opening, offset)]
        self._mark = opening[0]
        self._length = len(opening) - len(opening.lstrip(self._mark))

    def hold(self, text: str, offset: int) -> None:
        """Hold back the blanks between two blocks too."""
        self.held.append((text, offset))

    def what_follows(self, data: str, begin: int, final: bool) -> tuple[Verdict, int]:
        """Say what stands behind a block: the fence's end (and where that ends), another block (and where
        it begins), something else, or that more text is needed."""
        closing = _CLOSING.match(data, begin)
        if closing is not None and self._closes(closing.group(1)):
            if closing.end() < len(data) or final:
                return "closed", closing.end()
            return "more", begin
        blank = _BLANK.match(data, begin)
        block = OPENING.match(data, blank.end()) if blank else None
        if blank is not None and block is not None and block.lastgroup == "request":
            return "block", blank.end()
        if not final and _FOLLOWING_CUT.match(data, begin):
            return "more", begin
        return "other", begin

    def _closes(self, run: str) -> bool:
        return run[0] == self._mark and len(run) >= self._length
