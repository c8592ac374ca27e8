"""One TAM block: markers to pairs of key and value, with the repairs of the TAM format.

It does not know what the keys mean. What the format leaves open is decided so:

- A value ends at the closing delimiter that belongs to its opening one: pairs of the same delimiters within it are
  content, with a warning, and so is whatever else stands in it. In a value with a nonce only the nonce counts.
- A value that is never closed ends before the end marker, with a warning, if nothing that could begin or close a
  value comes behind its beginning; that of a first `command` also at the end of its line.
- All else leaves open where values end, so that nothing in the block is called: a value that is not closed or not
  balanced, text between the values that is neither comment, blank nor the line of a code fence, and another block
  before the end marker of one with parameters.
- Values between »»» and ««« are trimmed, as the platform does; those between 「始」 and 「末」 are not.
- Block markers count in comments too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tavern_tam.keys import KEY_REACH, SEPARATORS, Key, key_before
from tavern_tam.lexing import END_MARKER, Source, Token
from tavern_tam.window import Warn

_SHOWN = 60
_NOT_IN_KEYS = ("「", "」", "»", "«", "<", ">")

_NOTHING = re.compile(rf"(?:[{SEPARATORS}]*+#[^\n]*+)*+[{SEPARATORS}]*+")
_COMMENT = re.compile(r"(?<=\n)[ \t]*+#[^\n]*+")
_FENCES = re.compile(r"(?:\s*(?:`{3,}|~{3,})\w*\s*)+")
_DELIMITER = re.compile("「[始末]|»»»|«««")


class Pair(NamedTuple):
    """A key with its value; `offset` is where the value begins."""

    key: Key
    value: str
    offset: int


@dataclass(slots=True)
class BlockText:
    """A finished block: its pairs, and the `problem` for which nothing in it is called, if there is one.

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
    """An open value. `depth` counts the pairs of its delimiters within it that are open; `holds_end` and
    `holds_others` say whether an end marker and other markers stand in it. One that `names_tool` is the first of its
    key, and one line. A `doomed` one is known to end before the end marker."""

    key: Key
    form: str
    offset: int
    names_tool: bool
    doomed: bool = False
    depth: int = 0
    holds_pairs: bool = False
    holds_end: bool = False
    holds_others: bool = False


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
        self._problem: Warn | None = None
        self._commands: set[str] = set()
        self._commented: list[str] = []  # the forms of the pairs of delimiters that are open in the current comment
        self._is_behind = False  # whether the current line of the gap began with a value

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
            if any(pair.key.word != "command" for pair in self._pairs):
                self._refuse(f"another block begins before its {END_MARKER}", token.offset)
            return self._without_end(token.offset)
        found = self._key_before() if token.kind == "open" and self._line != "comment" else None
        if found is None:
            self._parts.append(token.text)
            self._line = "other" if self._line == "blank" else self._line
            if self._is_behind or (token.kind == "close" and token.form not in self._commented and self._pairs):
                self._refuse(f"{token.text} stands outside of a value", token.offset)
            elif token.kind == "open":
                self._commented.append(token.form)
            elif token.form in self._commented:
                self._commented.remove(token.form)
        else:
            self._open(found[0], found[1], token)
        return None

    def _inside(self, value: _Value, token: Token) -> None:
        """Handle a marker in an open value: most are content."""
        if value.doomed and token.kind == "end":
            self._source.rewind(token.offset, [token.text])
            self._end_unclosed(value)
            return
        own = token.form == value.form
        if own and token.kind == "close" and not value.depth:
            if value.holds_pairs:
                self._warn(
                    f"the value of {value.key.written!r} holds pairs of its own delimiters; it was read as a whole, up "
                    "to the delimiter that closes it",
                    value.offset,
                )
            self._pairs.append(Pair(value.key, self._finished(value, self._text()), value.offset))
            self._parts.append(token.text)
            self._begin_gap()
            return
        if own and token.kind == "open" and not value.form.startswith("ESCAPE:"):
            is_line = value.names_tool and not (value.holds_others or value.holds_end)
            found = self._key_before() if is_line else None
            if found is not None and "\n" not in self._text()[: -found[1]].strip():
                self._end_unclosed(value, back=found[1])
                self._open(found[0], found[1], token)
                return
            value.depth += 1
            value.holds_pairs = True
        elif own and token.kind == "close":
            value.depth -= 1
        value.holds_others |= token.kind != "end"
        value.holds_end |= token.kind == "end"
        self._parts.append(token.text)

    def _at_end(self) -> BlockText | None:
        value = self._value
        if value is None:
            return self._without_end(self._source.offset)
        if not value.form.startswith("ESCAPE") and value.holds_end and not value.holds_others:
            read = self._parts[self._mark :]
            del self._parts[self._mark :]
            value.doomed = True
            self._source.rewind(value.offset, read)
            return None
        what = "is not closed" if value.holds_end or value.holds_others else "is cut off"
        self._refuse(f"the text ends inside the value of {value.key.written!r}, which {what}", value.offset)
        return self._outcome()

    def _open(self, key: Key, back: int, token: Token) -> None:
        """Begin a value whose key's line begins `back` characters before the opening delimiter."""
        self._close_gap(token.offset, back)
        if token.form == ">":
            self._warn(f"{key.written!r}: the delimiters >>> <<< are taken for »»» «««", token.offset)
        self._parts.append(token.text)
        self._mark = len(self._parts)
        names_tool = key.word == "command" and key.name not in self._commands
        self._commands.add(key.name)
        self._value = _Value(key, token.form, token.offset + len(token.text), names_tool)

    def _end_unclosed(self, value: _Value, back: int = 0) -> None:
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

    def _finished(self, value: _Value, text: str) -> str:
        """Return a value's text: as it stands between 「始」 and 「末」, trimmed between the others."""
        return text.strip() if value.form in ("»", ">") else text

    def _begin_gap(self) -> None:
        self._value = None
        self._mark = len(self._parts)
        self._line = "blank"
        self._commented, self._is_behind = [], True

    def _follow_line(self, text: str) -> None:
        line = text[text.rfind("\n") + 1 :]
        if len(line) < len(text):
            self._line = "blank"
            self._commented, self._is_behind = [], False
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
        """Refuse the block for what in the gap that ends at the offset `end`, but for its last `back` characters, is
        neither comment nor blank; code fences are ignored with a warning."""
        gap = self._text()
        text = gap[: len(gap) - back]
        understood = _NOTHING.match(text)
        begin = understood.end() if understood else 0
        if begin == len(text):
            return
        ignored = " ".join(_COMMENT.sub("", text[begin:]).split())
        shown = ignored if len(ignored) <= _SHOWN else ignored[:_SHOWN] + "…"
        if _FENCES.fullmatch(ignored):
            self._warn(f"the code fence within the block is ignored: {shown!r}", end - len(gap) + begin)
        else:
            self._refuse(f"not understood: {shown!r}", end - len(gap) + begin)

    def _without_end(self, offset: int) -> BlockText:
        text = self._text()
        rest = text.lstrip(" \t")
        if self._pairs and (_DELIMITER.search(text) or not (rest[:1] in ("", "\r", "\n") or _NOTHING.fullmatch(text))):
            self._refuse(f"it has no {END_MARKER}, and what stands behind its last value is not certain", offset)
        outcome = self._outcome()
        outcome.warnings.append(Warn(f"the block has no {END_MARKER}; it ends behind its last value", offset))
        if not _NOTHING.fullmatch(text):
            outcome.after = text
        return outcome

    def _outcome(self) -> BlockText:
        return BlockText(self._begin, self._parts, self._pairs, self._warnings, self._problem)

    def _warn(self, text: str, offset: int) -> None:
        self._warnings.append(Warn(text, offset))

    def _refuse(self, text: str, offset: int) -> None:
        self._problem = self._problem or Warn(text, offset)
