r"""Translates JavaScript's regular expressions, which rules and world books are written in, to those of the library
`regex`, so that both mean the same; matches nothing itself.

Only what JavaScript knows goes through: the library's own extensions (recursion, fuzzy matching, verbs …) never do.
`\d`, `\w` and `\b` are about ASCII, `.` and `$` know four line ends, `[^]` is every character, a group that took no
part matches nothing, as in ECMA-262, *RegExp*. A group may also be named `(?P<name>…)`, and `(?i)` may come first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_PATTERN = 10_000
"""The longest pattern, in characters."""

MAX_GROUPS_DEEP = 50
"""How deep groups may lie in each other."""

MAX_REPEAT = 65_535
"""The highest number in braces."""

_LINE_ENDS = r"\n\r\u2028\u2029"
_DIGITS = "0-9"
_WORD = "A-Za-z0-9_"
_SPACE = r"\t\n\v\f\r\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}

_AFTER_WORD, _BEFORE_WORD = f"(?<=[{_WORD}])", f"(?=[{_WORD}])"
_NOT_AFTER, _NOT_BEFORE = f"(?<![{_WORD}])", f"(?![{_WORD}])"
_BOUNDARY = f"(?:{_AFTER_WORD}{_NOT_BEFORE}|{_NOT_AFTER}{_BEFORE_WORD})"
_NO_BOUNDARY = f"(?:{_AFTER_WORD}{_BEFORE_WORD}|{_NOT_AFTER}{_NOT_BEFORE})"
_ANY, _NEVER = "(?s:.)", "(?!)"

LONGEST_LITERAL = 64
"""After how many pieces a literal is cut in two: for a long one the library makes tables before it searches, which
takes cubic time, regards no time limit and holds the interpreter."""

_NOTHING = f"(?!{_NEVER})"
"""Matches the empty text, and is no literal."""

_QUANTIFIER = re.compile(r"\{(\d+)(,?)(\d*)\}|[*+?]", re.ASCII)
_MODIFIERS = re.compile(r"\(\?([ims]*)(?:-([ims]*))?([:)])")
_NAMED = re.compile(r"\(\?P?<([A-Za-z_]\w*)>", re.ASCII)
_OPENERS = ("(?:", "(?=", "(?!", "(?<=", "(?<!")
_NAME_REFERENCE = re.compile(r"<([A-Za-z_]\w*)>", re.ASCII)
_PROPERTY = re.compile(r"\{([A-Za-z_0-9]+(?:=[A-Za-z_0-9]+)?)\}")
_CODE_POINT = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}")
_LOW_SURROGATE = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")


class PatternError(ValueError):
    """A pattern is not a regular expression; `str` is one clause that says where and why."""


@dataclass(frozen=True)
class _Atom:
    """One member of a character class: a character, or a set such as `\\d` or, `negated`, `\\D`."""

    text: str
    character: str | None = None
    negated: bool = False


def translate(source: str, flags: str = "") -> str:
    """Return the pattern in the library's syntax. `flags` are JavaScript's; `i`, `m` and `s` change what it means.

    Raises `PatternError`.
    """
    if len(source) > MAX_PATTERN:
        raise PatternError(f"it has {len(source):,} characters; at most {MAX_PATTERN:,} are possible")
    return _Translator(source, flags).pattern()


class _Translator:
    def __init__(self, source: str, flags: str) -> None:
        self._source = source
        self._at = 0
        self._flags = frozenset(flags) & frozenset("ims")
        self._outer_flags: list[frozenset[str]] = []
        self._open: list[int | None] = []
        self._closed: set[int] = set()
        self._groups = 0
        self._names: dict[str, int] = {}
        self._total, self._all_names = _count_groups(source)

    def pattern(self) -> str:
        """Translate from the start to the end."""
        first = _MODIFIERS.match(self._source)
        if first and first[3] == ")" and first[1] and not first[2]:
            self._flags |= set(first[1])
            self._at = first.end()
        case = "(?i)" if "i" in self._flags else ""
        pieces: list[str] = []
        repeatable = False
        atoms = 0
        while self._at < len(self._source):
            if self._source[self._at] in "*+?" or _QUANTIFIER.match(self._source, self._at):
                if not repeatable:
                    raise self._error("there is nothing to repeat")
                pieces.append(self._quantifier())
                repeatable = False
            else:
                atoms += 1
                if not atoms % LONGEST_LITERAL:
                    pieces.append(_NOTHING)
                piece, repeatable = self._piece()
                pieces.append(piece)
        if self._open:
            raise PatternError("a group is opened with ( and not closed")
        return case + "".join(pieces)

    def _piece(self) -> tuple[str, bool]:
        """Return the next piece, and whether a quantifier may follow."""
        character = self._source[self._at]
        if character == "\\":
            self._at += 1
            return self._escape()
        if character == "(":
            return self._group(), False
        if character == "[":
            return self._class(), True
        self._at += 1
        if character == ")":
            return self._close(), True
        if character == "|":
            return "|", False
        if character == ".":
            return (_ANY if "s" in self._flags else f"[^{_LINE_ENDS}]"), True
        if character == "^":
            return (f"(?<![^{_LINE_ENDS}])" if "m" in self._flags else r"\A"), False
        if character == "$":
            return (f"(?![^{_LINE_ENDS}])" if "m" in self._flags else r"\Z"), False
        return _literal(character), True

    def _quantifier(self) -> str:
        match = _QUANTIFIER.match(self._source, self._at)
        assert match is not None
        if match[1] and max(int(match[1][:9]), int(match[3][:9] or 0)) > MAX_REPEAT:
            raise self._error(f"a number in braces is over {MAX_REPEAT:,}")
        if match[3] and int(match[3][:9]) < int(match[1][:9]):
            raise self._error("the numbers in braces are out of order")
        self._at = match.end()
        lazy = self._source.startswith("?", self._at)
        self._at += lazy
        return match[0] + ("?" if lazy else "")

    def _group(self) -> str:
        if len(self._open) >= MAX_GROUPS_DEEP:
            raise self._error(f"groups lie more than {MAX_GROUPS_DEEP} deep in each other")
        for opener in _OPENERS:
            if self._source.startswith(opener, self._at):
                return self._enter(opener, len(opener), None)
        if named := _NAMED.match(self._source, self._at):
            if named[1] in self._names:
                raise self._error(f"two groups have the name {named[1]!r}")
            self._groups += 1
            self._names[named[1]] = self._groups
            return self._enter(f"(?P<{named[1]}>", len(named[0]), self._groups)
        if (changed := _MODIFIERS.match(self._source, self._at)) and changed[3] == ":":
            on, off = changed[1], changed[2] or ""
            opener = "(?i:" if "i" in on else "(?-i:" if "i" in off else "(?:"
            piece = self._enter(opener, len(changed[0]), None)
            self._flags = (self._flags | set(on)) - set(off)
            return piece
        if self._source.startswith("(?", self._at):
            raise self._error(f"{self._source[self._at : self._at + 3]!r} opens no known kind of group")
        self._groups += 1
        return self._enter("(", 1, self._groups)

    def _enter(self, opener: str, length: int, number: int | None) -> str:
        self._at += length
        self._open.append(number)
        self._outer_flags.append(self._flags)
        return opener

    def _close(self) -> str:
        if not self._open:
            raise self._error("a ) closes nothing", -1)
        number = self._open.pop()
        self._flags = self._outer_flags.pop()
        if number is not None:
            self._closed.add(number)
        return ")"

    def _escape(self) -> tuple[str, bool]:
        """Return the pattern of an escape outside of a class, and whether it can be repeated."""
        if self._at >= len(self._source):
            raise PatternError("it ends in a single backslash")
        character = self._source[self._at]
        if character in "bB":
            self._at += 1
            return (_BOUNDARY if character == "b" else _NO_BOUNDARY), False
        if character in "123456789":
            digits = re.compile(r"\d{1,5}", re.ASCII).match(self._source, self._at)
            assert digits is not None
            self._at = digits.end()
            return self._back_reference(int(digits[0]), f"\\{digits[0]}"), True
        if character == "k":
            named = _NAME_REFERENCE.match(self._source, self._at + 1)
            if named is None or named[1] not in self._all_names:
                raise self._error(r"\k must be followed by the <name> of a group")
            self._at = named.end()
            return self._back_reference(self._names.get(named[1], 0), f"\\k<{named[1]}>"), True
        atom = self._atom()
        if atom.character is not None:
            return _literal(atom.character), True
        if atom.text[:2] in (r"\p", r"\P"):
            return atom.text, True
        return f"[{'^' if atom.negated else ''}{atom.text}]", True

    def _back_reference(self, number: int, written: str) -> str:
        """A group that took no part, or is not over yet, matches the empty text."""
        if number > self._total:
            raise self._error(f"{written} refers to a group that is not there", -len(written))
        return f"(?({number})\\{number})" if number in self._closed else "(?:)"

    def _atom(self) -> _Atom:
        """Return the meaning of an escape that may stand in a class too; the backslash has been read."""
        character = self._source[self._at]
        if match := _CODE_POINT.match(self._source, self._at):
            self._at = match.end()
            return self._code_point(int(match[1] or match[2] or match[3], 16), paired=match[2] is not None)
        self._at += 1
        if character.lower() in _CLASSES:
            return _Atom(_CLASSES[character.lower()], negated=character.isupper())
        if character in _CONTROLS:
            return _Atom("", _CONTROLS[character])
        if character in "pP":
            match = _PROPERTY.match(self._source, self._at)
            if match is None:
                raise self._error(f"\\{character} must be followed by a {{property}}")
            self._at = match.end()
            return _Atom(f"\\{character}{{{match[1]}}}")
        if character == "0" and not self._source[self._at : self._at + 1].isdecimal():
            return _Atom("", "\0")
        if character == "c" and re.match("[A-Za-z]", self._source[self._at : self._at + 1]):
            self._at += 1
            return _Atom("", chr(ord(self._source[self._at - 1]) % 32))
        if character.isascii() and character.isalnum():
            raise self._error(f"\\{character} means nothing", -2)
        return _Atom("", character)

    def _code_point(self, number: int, *, paired: bool) -> _Atom:
        low = _LOW_SURROGATE.match(self._source, self._at) if paired and 0xD800 <= number < 0xDC00 else None
        if low:
            self._at = low.end()
            number = 0x10000 + ((number - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
        if number > 0x10FFFF:
            raise self._error("there is no such character")
        return _Atom("", chr(number))

    def _class(self) -> str:
        r"""Return a character class. One that holds `\D`, `\W` or `\S` becomes a choice, since classes do not nest."""
        start = self._at
        self._at += 1
        negated = self._source.startswith("^", self._at)
        self._at += negated
        members: list[str] = []
        without: list[str] = []
        while not self._source.startswith("]", self._at):
            low = self._member(start)
            if self._source.startswith("-", self._at) and not self._source.startswith("-]", self._at):
                self._at += 1
                high = self._member(start)
                if low.character is not None and high.character is not None:
                    if low.character > high.character:
                        raise self._error("a range is out of order")
                    members.append(f"{_literal(low.character)}-{_literal(high.character)}")
                    continue
                _add(high, members, without)
                members.append(_literal("-"))
            _add(low, members, without)
        self._at += 1
        if not members and not without:
            return _ANY if negated else _NEVER
        if any(text in members for text in without):  # [\s\S] and its like
            return _NEVER if negated else _ANY
        inside = "".join(members)
        if not without:
            return f"[{'^' if negated else ''}{inside}]"
        choice = "|".join([*([f"[{inside}]"] if inside else []), *(f"[^{text}]" for text in without)])
        return f"(?:(?!{choice}){_ANY})" if negated else f"(?:{choice})"

    def _member(self, start: int) -> _Atom:
        if self._at >= len(self._source):
            raise PatternError(f"the [ at character {start + 1} is not closed")
        character = self._source[self._at]
        self._at += 1
        if character != "\\":
            return _Atom("", character)
        if self._at >= len(self._source):
            raise PatternError("it ends in a single backslash")
        if self._source[self._at] == "b":
            self._at += 1
            return _Atom("", "\b")
        return self._atom()

    def _error(self, text: str, offset: int = 0) -> PatternError:
        return PatternError(f"{text} (at character {max(0, self._at + offset) + 1})")


def _add(atom: _Atom, members: list[str], without: list[str]) -> None:
    if atom.negated:
        without.append(atom.text)
    else:
        members.append(atom.text if atom.character is None else _literal(atom.character))


def _literal(character: str) -> str:
    """Return a character escaped, so that it matches itself, in a class and outside."""
    if character.isascii() and character.isalnum():
        return character
    return f"\\U{ord(character):08x}"


def _count_groups(source: str) -> tuple[int, set[str]]:
    """Return how many groups take what they match, and the names there are; brackets and escapes aside."""
    count, names, at, in_class = 0, set(), 0, False
    while at < len(source):
        character = source[at]
        if character == "\\":
            at += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character == "(":
            named = _NAMED.match(source, at)
            if named:
                names.add(named[1])
            count += named is not None or not source.startswith("(?", at)
        at += 1
    return count, names
