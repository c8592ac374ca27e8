"""Code fences in the text before a call: a protocol drops one that holds nothing but its calls, so it must see it."""

from __future__ import annotations

import re

LONGEST = 64

_OPENING = re.compile(r"(?:`{3,8}|~{3,8})[^`~\n]{0,32}(?:\n\s{0,16})?\Z")
_OPENING_CUT = re.compile(r"(?:(?:`{3,8}|~{3,8})[^`~\n]{0,32}(?:\n\s{0,16})?|`{1,2}|~{1,2})\Z")
_LINE = re.compile(r"(?:\A|\n)[ \t]*(?:```|~~~)")


class FenceTracker:
    """Follows the lines of a text, to distinguish a fence that opens from one that closes."""

    def __init__(self) -> None:
        self._line_is_blank = True
        self._in_code = False

    def follow(self, text: str) -> None:
        """Take text that was released."""
        self._in_code ^= self._toggles(text)
        line = text[text.rfind("\n") + 1 :]
        self._line_is_blank = (self._line_is_blank or len(line) < len(text)) and not line.strip(" \t")

    def break_off(self) -> None:
        """Say that something else than text stands here."""
        self._line_is_blank = False

    def at_end(self, text: str, *, arriving: bool = False, cut: bool = False) -> int:
        """Return where the opening fence begins that ends `text`, the text behind what was released; else its length.

        With `arriving` it may be incomplete, or turn out to be a closing one. With `cut` the text begins anywhere.
        """
        found = (_OPENING_CUT if arriving else _OPENING).search(text, max(0, len(text) - LONGEST))
        if found is None:
            return len(text)
        line = text.rfind("\n", 0, found.start()) + 1
        if (line == 0 and (cut or not self._line_is_blank)) or text[line : found.start()].strip(" \t"):
            return len(text)
        if not arriving and self._in_code ^ self._toggles(text[: found.start()]):
            return len(text)
        return found.start()

    def _toggles(self, text: str) -> bool:
        """Return whether the fences in `text` are odd in number."""
        if "```" not in text and "~~~" not in text:
            return False
        fences = sum(1 for found in _LINE.finditer(text) if self._line_is_blank or text[found.start()] == "\n")
        return fences % 2 == 1
