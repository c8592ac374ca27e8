"""Text as it arrives, by its offsets, and the places in it where something may begin. Both take time linear in it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tavern_tools.api import thoughts

_GAP = r"\s{0,8}"
_ATOM = re.compile(r"[A-Za-z0-9]+|\S")


class TextBuffer:
    """A text that arrives in pieces; what is not needed any more is dropped."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._texts: list[str] = []
        self._first = 0
        self.end = 0

    def append(self, text: str) -> None:
        """Add text at the end."""
        if text:
            self._begins.append(self.end)
            self._texts.append(text)
            self.end += len(text)

    def skip(self, length: int) -> None:
        """Count text at the end that will not be asked for."""
        self.end += length

    def text(self, begin: int, end: int) -> str:
        """Return the text between two offsets; it must not have been dropped."""
        if begin >= end:
            return ""
        index = bisect_right(self._begins, begin, self._first) - 1
        if end <= self._begins[index] + len(self._texts[index]):
            offset = self._begins[index]
            return self._texts[index][begin - offset : end - offset]
        last = bisect_left(self._begins, end, index)
        joined = "".join(self._texts[index:last])
        offset = self._begins[index]
        return joined[begin - offset : end - offset]

    def drop(self, before: int) -> None:
        """Forget what stands before an offset."""
        index = self._first
        while index < len(self._begins) and self._begins[index] + len(self._texts[index]) <= before:
            self._texts[index] = ""
            index += 1
        self._first = index
        if index > 64 and index * 2 > len(self._begins):
            del self._begins[:index], self._texts[:index]
            self._first = 0


@dataclass(frozen=True)
class Openings:
    """Patterns of what blocks and thoughts begin with: of each protocol and, last, of thoughts; of any of them; and of
    one that is still arriving."""

    each: Sequence[re.Pattern[str]]
    any: re.Pattern[str]
    arriving: re.Pattern[str]
    longest: int
    firsts: str

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, openings: tuple[tuple[str, ...], ...]) -> Openings:
        """Return the patterns of the openings of each protocol (`ActionProtocolInfo.openings`), made once for each set
        of protocols."""
        atoms = [[_atoms(text) for text in texts] for texts in openings]
        whole = [*("|".join(map(_whole, texts)) or r"(?!)" for texts in atoms), thoughts.PATTERN]
        every = [text for texts in atoms for text in texts]
        longest = max([thoughts.LONGEST, *(sum(8 + len(atom) for atom in text) for text in every)])
        firsts = "|".join({"<": None} | dict.fromkeys(_first(text[0][:3]) for text in every))
        arriving = "|".join([*map(_beginning, every), thoughts.ARRIVING])
        return cls(
            [re.compile(pattern) for pattern in whole],
            re.compile("|".join(whole)),
            re.compile(rf"(?:{arriving})\Z"),
            longest,
            firsts,
        )

    def signs(self, more: str) -> re.Pattern[str]:
        """Return a pattern of what an opening begins with, of its first word three letters, and of the signs in `more`.
        Text without it is passed on at once."""
        return re.compile(f"{self.firsts}|[{re.escape(more)}]")

    def held(self, text: str, begin: int) -> int:
        """Return where the opening that may be arriving at the end of `text` begins, not before `begin`."""
        found = self.arriving.search(text, max(begin, len(text) - self.longest))
        return found.start() if found else len(text)


@dataclass
class Places:
    """The offsets at which blocks may begin, in order, each with the protocols whose they would be."""

    offsets: list[int] = field(default_factory=list)
    owners: list[tuple[int, ...]] = field(default_factory=list)

    def append(self, offset: int, owners: tuple[int, ...]) -> None:
        """Add the next one."""
        self.offsets.append(offset)
        self.owners.append(owners)

    def index(self, offset: int) -> int:
        """Return the index of the first that is not before `offset`."""
        return bisect_left(self.offsets, offset)

    def after(self, offset: int) -> int | None:
        """Return the first that is behind `offset`."""
        index = bisect_right(self.offsets, offset)
        return self.offsets[index] if index < len(self.offsets) else None

    def is_of_others(self, offset: int, owner: int) -> bool:
        """Whether a block of another protocol may begin at `offset`."""
        index = self.index(offset)
        return index < len(self.offsets) and self.offsets[index] == offset and self.owners[index] != (owner,)

    def of_others(self, behind: int, before: int, owner: int) -> int | None:
        """Return the first offset between the two at which a block of another protocol may begin."""
        for index in range(bisect_right(self.offsets, behind), len(self.offsets)):
            if self.offsets[index] >= before:
                break
            if self.owners[index] != (owner,):
                return self.offsets[index]
        return None

    def drop(self, before: int) -> None:
        """Forget those before `before`, as soon as they are many."""
        if len(self.offsets) > 64:
            index = self.index(before)
            if index * 2 > len(self.offsets):
                del self.offsets[:index], self.owners[:index]


def _first(signs: str) -> str:
    """Return a pattern of these signs, or of as many of them as stand at the end of a text."""
    return _letter(signs[0]) + (rf"(?:\Z|{_first(signs[1:])})" if signs[1:] else "")


def _atoms(text: str) -> list[str]:
    return _ATOM.findall(text)


def _letter(sign: str) -> str:
    """Return a pattern of a sign in either case: a flag instead would keep `re` from skipping to it quickly."""
    return f"[{sign.upper()}{sign.lower()}]" if sign.isascii() and sign.isalpha() else re.escape(sign)


def _whole(atoms: Sequence[str]) -> str:
    return _GAP.join("".join(map(_letter, atom)) for atom in atoms)


def _beginning(atoms: Sequence[str]) -> str:
    """Return a pattern of every beginning of an opening, of one sign or more, that is not all of it."""
    signs: list[str] = []
    for place, atom in enumerate(atoms):
        letters = [_letter(sign) for sign in atom]
        signs += ([_GAP] if place else []) + letters
    return "(?:".join(signs) + ")?" * (len(signs) - 1)
