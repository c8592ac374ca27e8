"""Code fences around blocks: models like to wrap a block in one, and it is then part of neither text nor call.

Lengths are bounded, so that no more than a line's beginning is held back while it is unclear.
"""

from __future__ import annotations

import re

LONGEST = 64
"""No opening fence is longer, in characters, the line break behind it included."""

_OPENING = re.compile(r"(?:`{3,8}|~{3,8})[^`~\n]{0,32}(?:\n\s{0,16})?\Z")
_OPENING_CUT = re.compile(r"(?:(?:`{3,8}|~{3,8})[^`~\n]{0,32}(?:\n\s{0,16})?|`{1,2}|~{1,2})\Z")
_CLOSING = re.compile(r"\s{0,64}(`{3,8}|~{3,8})[ \t]{0,8}(?:(?=\r?\n)|\Z)")
_CLOSING_CUT = re.compile(r"\s{0,64}(?:[`~]{1,8}[ \t]{0,8}\r?)?\Z")
_FENCE_LINE = re.compile(r"(?:\A|\n)[ \t]*(?:```|~~~)")


def has_fence_marks(data: str, begin: int, stop: int) -> bool:
    """Return whether `data[begin:stop]` holds what fences are made of."""
    return data.find("`", begin, stop) >= 0 or data.find("~", begin, stop) >= 0


def fence_at_end(data: str, begin: int, stop: int, line_is_blank: bool, *, whole: bool = False) -> int | None:
    """Return where the fence that ends `data[begin:stop]` begins, or None.

    `line_is_blank` says that only blanks precede `begin` on its line. Unless `whole`, the fence may be
    one that is still arriving.
    """
    near = max(begin, stop - LONGEST)
    if not has_fence_marks(data, near, stop):
        return None
    found = (_OPENING if whole else _OPENING_CUT).search(data, near, stop)
    if found is None:
        return None
    line = data.rfind("\n", begin, found.start()) + 1
    if line == 0:
        if not line_is_blank:
            return None
        line = begin
    return None if data[line : found.start()].strip(" \t") else found.start()


def closing_fence(data: str, begin: int, opening: str) -> int | None:
    """Return where the line ends that closes, at `begin`, the fence with this `opening` line; None if there is none."""
    found = _CLOSING.match(data, begin)
    run = opening[: len(opening) - len(opening.lstrip(opening[0]))]
    return found.end() if found is not None and found[1].startswith(run) else None


def is_closing_cut(data: str, begin: int) -> bool:
    """Return whether all from `begin` on may be the end of a fence that is still arriving."""
    return _CLOSING_CUT.match(data, begin) is not None


def toggles(text: str, line_is_blank: bool) -> int:
    """Return how many lines of `text` are code fences; `line_is_blank` as in `fence_at_end`."""
    if "```" not in text and "~~~" not in text:
        return 0
    return sum(1 for found in _FENCE_LINE.finditer(text) if line_is_blank or text[found.start()] == "\n")
