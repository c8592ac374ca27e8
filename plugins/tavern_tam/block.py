"""One TAM block: markers to pairs of key and value, with the repairs of the TAM format.

It does not know what the keys mean. What the format leaves open is decided so:

- A value is unclosed if, before its closing delimiter, a line begins another key with the same opening
  delimiter, or an end marker and then a request marker come, or the text ends. Inside an escaped value
  markers are content, and inside one with a nonce such lines are too.
- An unclosed value ends at the next line that begins a key, or the next block marker, or before a thought that the
  next request marker stands in; where none comes, the text was cut short, what the value would have been is not
  certain, and nothing in the block is called.
- Values between »»» and ««« are trimmed, as the platform does; those between 「始」 and 「末」 are not.
- Block markers count in comments too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tavern_host.contracts.thoughts import open_thought
from tavern_tam.keys import KEY_REACH, SEPARATORS, Key, key_before
from tavern_tam.lexing import END_MARKER, Source, Token
from tavern_tam.window import Warn

_SHOWN = 60
_NOT_IN_KEYS = ("「", "」", "»", "«", "<", ">")

_NOTHING = re.compile(rf"(?:[{SEPARATORS}]*+#[^\n]*+)*+[{SEPARATORS}]*+")
_COMMENT = re.compile(r"(?<=\n)[ \t]*+#[^\n]*+")


class Pair(NamedTuple):
    """A key with its value; `offset` is where the value begins."""

    key: Key
    value: str
    offset: int


@dataclass(slots=True)
class BlockText:
    """A finished block: its pairs, or the `problem` for which nothing in it is called.

    `source` is the block as it was written, `after` text behind its last value that turned out to be no
    part of it, because the end marker was missing.
    """

    offset: int
    parts: list[str]
    pairs: list[Pair]
    warnings: list[Warn] = field(default_factory=list)
    problem: Warn | None = None
    after: str = ""

    @property
    def source(self) -> str:
        """The block as it was written."""
        return "".join(self.parts)


@dataclass(slots=True)
class _Value:
    """An open value. A `doomed` one is known to have no closing delimiter of its own."""

    key: Key
    form: str
    offset: int
    doomed: bool
    holds_end: bool = False

    @property
    def is_plain(self) -> bool:
        return not self.form.startswith("ESCAPE")

    @property
    def has_nonce(self) -> bool:
        return self.form.startswith("ESCAPE:")


class Block:
    """Reads one block from a source, from behind its request marker on."""

    def __init__(self, source: Source, opening: str) -> None:
        self._source = source
        self._begin = source.offset - len(opening)
        self._parts = [opening]  # all that was read
        self._mark = 1  # where in `_parts` the open value, or the gap between values, begins
        self._line = "blank"  # what the current line of the gap is so far: blank, comment or other
        self._value: _Value | None = None
        self._pairs: list[Pair] = []
        self._warnings: list[Warn] = []

    def read(self) -> BlockText | None:
        """Read on; return the finished block, with the source standing behind it, or None for more text."""
        while True:
            text, token = self._source.next_token()
            if text:
                self._parts.append(text)
                if self._value is None:
                    self._follow_line(text)
            if token is None:
                if not self._source.final:
                    return None
                outcome = self._at_end()
            elif self._value is None:
                outcome = self._between(token)
            else:
                self._inside(self._value, token)
                outcome = None
            if outcome is not None:
                return outcome

    def _between(self, token: Token) -> BlockText | None:
        if token.kind == "end":
            self._close_gap(token.offset)
            self._parts.append(token.text)
            return self._outcome()
        if token.kind == "request":
            self._source.rewind(token.offset, [token.text])
            return self._without_end(token.offset)
        found = self._key_before() if token.kind == "open" and self._line != "comment" else None
        if found is None:
            self._parts.append(token.text)
            self._line = "other" if self._line == "blank" else self._line
        else:
            self._open(found[0], found[1], token)
        return None

    def _inside(self, value: _Value, token: Token) -> None:
        """Handle a marker in an open value: most are content."""
        if value.doomed and token.kind in ("request", "end"):
            self._source.rewind(token.offset, [token.text])
            self._repair(value, self._back_to_thought() if token.kind == "request" else 0)
            return
        if token.kind == "close" and token.form == value.form:
            self._pairs.append(Pair(value.key, self._finished(value, self._text()), value.offset))
            self._parts.append(token.text)
            self._begin_gap()
            return
        if token.kind == "open" and (value.doomed or (token.form == value.form and not value.has_nonce)):
            found = self._key_before()
            if found is not None:
                if value.doomed:
                    self._repair(value, back=found[1])
                    self._open(found[0], found[1], token)
                else:
                    self._read_again(value, token.text)
                return
        if token.kind == "request" and value.holds_end and value.is_plain:
            self._read_again(value, token.text)
            return
        if token.kind == "end":
            value.holds_end = True
        self._parts.append(token.text)

    def _at_end(self) -> BlockText | None:
        value = self._value
        if value is None:
            return self._without_end(self._source.offset)
        self._source.exhausted = True
        if not value.doomed:
            self._read_again(value, "")
            return None
        outcome = self._outcome()
        outcome.problem = Warn(f"the text ends inside the value of {value.key.written!r}", value.offset)
        return outcome

    def _open(self, key: Key, back: int, token: Token) -> None:
        """Begin a value whose key's line begins `back` characters before the opening delimiter."""
        self._close_gap(token.offset, back)
        if token.form == ">":
            self._warn(f"{key.written!r}: the delimiters >>> <<< are taken for »»» «««", token.offset)
        self._parts.append(token.text)
        self._mark = len(self._parts)
        doomed = self._source.exhausted and self._source.closers.get(token.form, -1) < token.offset
        self._value = _Value(key, token.form, token.offset + len(token.text), doomed)

    def _read_again(self, value: _Value, marker: str) -> None:
        """Go back to where `value` began, now that it is known to be unclosed."""
        read = [*self._parts[self._mark :], marker]
        del self._parts[self._mark :]
        value.doomed = True
        self._source.rewind(value.offset, read)

    def _repair(self, value: _Value, back: int = 0) -> None:
        """End an unclosed value `back` characters ago; the line break before what ended it is no part of it."""
        text = self._text()
        split = len(text) - back
        content = text[:split]
        self._pairs.append(Pair(value.key, self._finished(value, content.rstrip()), value.offset))
        self._warn(
            f"the value of {value.key.written!r} is not closed; it ends before the next key or marker", value.offset
        )
        self._parts[self._mark :] = [content]
        self._begin_gap()
        if back:
            self._parts.append(text[split:])

    def _back_to_thought(self) -> int:
        """Return how far back in an unclosed value an unclosed thought begins: nothing in a thought is called."""
        text = self._text()
        begin = open_thought(text)
        return 0 if begin is None else len(text) - begin

    def _finished(self, value: _Value, text: str) -> str:
        """Return a value's text: as it stands between 「始」 and 「末」, trimmed between the others."""
        return text.strip() if value.form in ("»", ">") else text

    def _begin_gap(self) -> None:
        self._value = None
        self._mark = len(self._parts)
        self._line = "blank"

    def _follow_line(self, text: str) -> None:
        line = text[text.rfind("\n") + 1 :]
        if len(line) < len(text):
            self._line = "blank"
        if self._line == "blank":
            line = line.lstrip(SEPARATORS)
            if line:
                self._line = "comment" if line[0] == "#" else "other"

    def _key_before(self) -> tuple[Key, int] | None:
        """Return the key before the marker that was just read, and how far back its line begins."""
        near = head = ""
        index = len(self._parts)
        while index > self._mark and len(near) <= KEY_REACH and "\n" not in head:
            index -= 1
            part = self._parts[index][-KEY_REACH:]
            if head and part.endswith(_NOT_IN_KEYS):
                return None
            near = part + near
            head = near.rstrip()
            if head and not head.endswith((":", "：")):
                return None  # nearly all markers that are content, and there may be very many
        whole = index == self._mark and self._value is None
        found = key_before(near, whole=whole)
        return (found[0], len(near) - found[1]) if found else None

    def _text(self) -> str:
        return "".join(self._parts[self._mark :])

    def _close_gap(self, end: int, back: int = 0) -> None:
        """Warn of what in the gap that ends at the offset `end`, but for its last `back` characters, is
        neither comment nor blank."""
        gap = self._text()
        text = gap[: len(gap) - back]
        understood = _NOTHING.match(text)
        begin = understood.end() if understood else 0
        if begin == len(text):
            return
        ignored = " ".join(_COMMENT.sub("", text[begin:]).split())
        shown = ignored if len(ignored) <= _SHOWN else ignored[:_SHOWN] + "…"
        self._warn(f"not understood and ignored: {shown!r}", end - len(gap) + begin)

    def _without_end(self, offset: int) -> BlockText:
        text = self._text()
        outcome = self._outcome()
        outcome.warnings.append(Warn(f"the block has no {END_MARKER}; it ends behind its last value", offset))
        if not _NOTHING.fullmatch(text):
            outcome.after = text
        return outcome

    def _outcome(self) -> BlockText:
        return BlockText(self._begin, self._parts, self._pairs, self._warnings)

    def _warn(self, text: str, offset: int) -> None:
        self._warnings.append(Warn(text, offset))
