"""Replaces a text within a text, and says what is nearest to one that is not there. Knows no files."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tavern_host.contracts.errors import InvalidInput
from tavern_tools.catalog.names import quoted

_SHOWN = 5
"""How many places a message names."""

_LOOKED_AT = 1_000_000
"""In how many characters, from the beginning, something like a text that is not there is looked for."""

_MOST_SOUGHT = 200
"""Of how many lines a text may be for which such a place is looked for."""

_MOST_LINES = 1_000
"""Among how many lines one that is only like the longest one of a text is looked for: that takes longest."""

_LONGEST_LINE = 120
"""How much of these lines is compared, in characters."""


@dataclass(frozen=True)
class Edit:
    """A text that is to be replaced, and how often it must be there; None: wherever it is."""

    search: str
    replacement: str
    count: int | None = 1

    def __post_init__(self) -> None:
        if not self.search:
            raise InvalidInput("search_string is empty; give the text that is to be replaced")
        if self.search == self.replacement:
            raise InvalidInput("replace_string is the same as search_string, so nothing would change")


@dataclass(frozen=True)
class Edited:
    """The text after an edit, how much was replaced, and the line where the first of it began, from 1."""

    text: str
    replaced: int
    first_line: int


def apply(text: str, edit: Edit, what: str) -> Edited:
    """Carry out an edit; `what` is what messages call the text.

    Where all lines of `text` end with CR LF and the edit has no CR, its line breaks count as CR LF. Raises
    `InvalidInput` where the search text is not there as often as it must be.
    """
    edit = _with_line_ends_of(text, edit)
    at = text.find(edit.search)
    if at < 0:
        raise InvalidInput(f"search_string is not in {what}{_hint(text, edit.search)}")
    line = text.count("\n", 0, at) + 1
    if edit.count is None:
        return Edited(text.replace(edit.search, edit.replacement), text.count(edit.search), line)
    places = _places(text, edit.search, most=max(edit.count, _SHOWN) + 1)
    if len(places) != edit.count:
        raise InvalidInput(_miscounted(text, edit.count, places, what))
    if any(second - first < len(edit.search) for first, second in pairwise(places)):
        raise InvalidInput(f"the occurrences of search_string in {what} overlap; give a longer text for each of them")
    return Edited(text.replace(edit.search, edit.replacement), len(places), line)


def _with_line_ends_of(text: str, edit: Edit) -> Edit:
    ends = text.count("\r\n")
    if not ends or ends != text.count("\n") or "\r" in edit.search or "\r" in edit.replacement:
        return edit
    return Edit(edit.search.replace("\n", "\r\n"), edit.replacement.replace("\n", "\r\n"), edit.count)


def _places(text: str, search: str, *, most: int) -> list[int]:
    """Return where a text begins in another, overlapping ones too, at most so many."""
    places: list[int] = []
    at = text.find(search)
    while at >= 0 and len(places) < most:
        places.append(at)
        at = text.find(search, at + 1)
    return places


def _miscounted(text: str, expected: int, places: list[int], what: str) -> str:
    lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in places[:_SHOWN])
    is_more = len(places) > max(expected, _SHOWN)
    count = f"more than {len(places) - 1} times" if is_more else _times(len(places))
    at = f"at line {lines}" if len(places) == 1 else f"at lines {lines}{' …' if len(places) > _SHOWN else ''}"
    advice = "give more of the text around it, set expected_count, or set all to true"
    return f"search_string is in {what} {count}, not {_times(expected)}: {at}; {advice}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


# --- what is nearest --------------------------------------------------------------------------------


def _hint(text: str, search: str) -> str:
    """Return a hint about a search text that is not there: the place of a similar one."""
    text = text[:_LOOKED_AT]
    lines = text.split("\n")
    sought = search.split("\n")
    if len(sought) > _MOST_SOUGHT:
        return "; try it with a shorter text"
    same = next(_same_but_for_white_space(lines, sought), None)
    if same is not None:
        return f"; line {same + 1} differs from it only in white space: {quoted(lines[same].rstrip())}"
    at = text.casefold().find(search.casefold())
    if at >= 0:
        return f"; line {text.casefold().count(chr(10), 0, at) + 1} differs from it only in upper and lower case"
    if "\\n" in search and search.replace("\\n", "\n") in text:
        return "; it is there with real line breaks where search_string has \\n"
    return _nearest(lines, sought)


def _same_but_for_white_space(lines: list[str], sought: list[str]) -> Iterator[int]:
    """Yield where the lines of the search text begin, white space left aside; blank lines around it do not count."""
    wanted = ["".join(line.split()) for line in sought]
    while wanted and not wanted[0]:
        del wanted[0]
    while wanted and not wanted[-1]:
        del wanted[-1]
    if not wanted:
        return
    bare = ["".join(line.split()) for line in lines]
    first, rest = wanted[0], wanted[1:]
    is_within = not rest
    for index, line in enumerate(bare):
        if (first in line if is_within else line.endswith(first)) and _follow(bare, index + 1, rest):
            yield index


def _follow(bare: list[str], start: int, rest: list[str]) -> bool:
    if not rest:
        return True
    found = bare[start : start + len(rest)]
    return len(found) == len(rest) and found[:-1] == rest[:-1] and found[-1].startswith(rest[-1])


def _nearest(lines: list[str], sought: list[str]) -> str:
    longest = max((line.strip() for line in sought), key=len, default="")
    if not longest:
        return ""
    shorter = longest[:_LONGEST_LINE]
    within = [index for index, line in enumerate(lines) if longest in line][:_SHOWN]
    if within:
        where = ", ".join(str(index + 1) for index in within)
        return f"; its line {quoted(longest)} is there, at {where}, and what is around it differs"
    matcher = difflib.SequenceMatcher(None, b=shorter)
    best, best_at = 0.6, -1
    for index, line in enumerate(lines[:_MOST_LINES]):
        matcher.set_seq1(line.strip()[:_LONGEST_LINE])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, best_at = ratio, index
    if best_at < 0:
        return ", nor is anything like it; read the file and take the text from there"
    return f"; nearest to it is line {best_at + 1}: {quoted(lines[best_at].strip())}"
