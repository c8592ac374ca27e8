"""The markers of TAM and a lexer that finds them in text that is still arriving.

It knows where a marker begins and ends, not what it means there: that is the block's business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tavern_tam.window import Window
from tavern_tools.api.thoughts import ARRIVING as THOUGHT_ARRIVING
from tavern_tools.api.thoughts import LONGEST as LONGEST_THOUGHT_TAG
from tavern_tools.api.thoughts import PATTERN as THOUGHT

REQUEST_MARKER = "<|[REQUEST_TOOL]|>"
END_MARKER = "<|[END_TOOL]|>"

LONGEST = 128
"""No marker is longer, its inner whitespace included, so nothing further back needs to be held."""

_GAP = r"\s{0,8}"
_NONCE = r"[0-9A-Za-z_\-]{1,32}"


def _letters(word: str) -> list[str]:
    """Return a pattern for each letter in either case: with a flag instead, `re` would not skip to the
    first character of a marker, and searching would take many times as long."""
    return [f"[{letter}{letter.lower()}]" for letter in word]


def _marker(word: str) -> list[str]:
    """Return the atoms of `<|[WORD_TOOL]|>`, with whitespace allowed between all but letters."""
    atoms = ["<", _GAP, r"\|", _GAP, r"\[", _GAP, *_letters(word), _GAP, "_", _GAP, *_letters("TOOL"), _GAP]
    return [*atoms, r"\]", _GAP, r"\|", _GAP, ">"]


def _prefixes(atoms: list[str]) -> str:
    """Return a pattern for every beginning, of one atom or more, of what the atoms match one after another."""
    return "(?:".join(atoms) + ")?" * (len(atoms) - 1)


_REQUEST = _marker("REQUEST")
_END = _marker("END")
_SIDED = ["「", "[始末]", *_letters("ESCAPE"), ":", _NONCE]
_MARKERS = f"(?P<request>{''.join(_REQUEST[1:])})|(?P<end>{''.join(_END[1:])})"

REQUEST_CUT = _prefixes(_REQUEST)
"""The pattern of a request marker that is still arriving."""

BLOCK_MARKER = re.compile(f"<(?:{_MARKERS})", re.ASCII)
"""Either of the two markers of a block."""

_BEFORE_BAR = 9
"""How far before its first bar a block marker begins at most."""

_OPENING = re.compile(f"<(?:(?P<request>{''.join(_REQUEST[1:])})|{THOUGHT.removeprefix('<')})", re.ASCII)
"""What ends plain text: a block or a thought."""

_OPENING_CUT = re.compile(rf"(?:{REQUEST_CUT}|{THOUGHT_ARRIVING})\Z", re.ASCII)
"""What `_OPENING` is about while it is still arriving."""

_ESCAPE = f"{''.join(_letters('ESCAPE'))}(?::{_NONCE})?"
_TOKEN = re.compile(f"<(?:{_MARKERS}|<<)|「[始末](?:{_ESCAPE})?」|»»»|«««|>>>", re.ASCII)
_TOKEN_CUT = re.compile(
    rf"(?:{REQUEST_CUT}|{_prefixes(_END)}|{_prefixes(_SIDED)}|»{{1,2}}|«{{1,2}}|>{{1,2}}|<{{1,2}})?\Z", re.ASCII
)

TokenKind = Literal["request", "end", "open", "close"]


class Token(NamedTuple):
    """A marker in a block. `form` names the pair of delimiters that an `open` or `close` belongs to:
    `「`, `»`, `>`, `ESCAPE` or `ESCAPE:NONCE`."""

    kind: TokenKind
    text: str
    offset: int
    form: str = ""


_PLAIN: dict[str, tuple[TokenKind, str]] = {
    "「始」": ("open", "「"),
    "「末」": ("close", "「"),
    "»»»": ("open", "»"),
    "«««": ("close", "»"),
    ">>>": ("open", ">"),
    "<<<": ("close", ">"),
}


@dataclass(slots=True)
class Source(Window):
    """A window that is read by tokens."""

    def next_token(self) -> tuple[str, Token | None]:
        """Return the text before the next marker, and the marker; None where more text is needed.

        The text is all that can be no part of a marker, whatever comes.
        """
        begin = self.position
        found = _TOKEN.search(self.data, begin)
        if found is None:
            stop = len(self.data)
            if not self.final:
                cut_off = _TOKEN_CUT.search(self.data, max(begin, stop - LONGEST))
                stop = cut_off.start() if cut_off else stop
            return self.take(stop), None
        self.position = found.end()
        return self.data[begin : found.start()], _token(found, self.base + found.start())


def opening(data: str, begin: int) -> tuple[int, int, bool] | None:
    """Return where the next opening of a block or a thought begins and ends, and whether it is a block's."""
    start = data.find("<", begin)
    if start < 0:
        return None
    if data.startswith(REQUEST_MARKER, start):
        return start, start + len(REQUEST_MARKER), True
    found = _OPENING.search(data, start)
    return None if found is None else (found.start(), found.end(), found.lastgroup is not None)


def block_marker(data: str, begin: int) -> tuple[int, int, bool] | None:
    """Return where the next marker of a block begins and ends, and whether it is the end marker."""
    bar = data.find("|", begin)
    if bar < 0:
        return None
    start = bar - 1
    if start >= begin and data.startswith(END_MARKER, start):
        return start, start + len(END_MARKER), True
    found = BLOCK_MARKER.search(data, max(begin, bar - _BEFORE_BAR))
    return None if found is None else (found.start(), found.end(), found.lastgroup == "end")


def opening_cut(data: str, begin: int) -> int:
    """Return where the opening that is still arriving at the end of `data` begins, not before `begin`; else its end."""
    last = data.rfind("<", max(begin, len(data) - LONGEST_THOUGHT_TAG))
    return len(data) if last < 0 or not _OPENING_CUT.match(data, last) else last


def _token(found: re.Match[str], offset: int) -> Token:
    text = found.group()
    plain = _PLAIN.get(text)
    if plain is not None:
        return Token(plain[0], text, offset, plain[1])
    if found.lastgroup is not None:
        return Token("request" if found.lastgroup == "request" else "end", text, offset)
    return Token("open" if text[1] == "始" else "close", text, offset, text[2:-1].upper())
