"""Fills in the macros of prompts and characters, such as `{{char}}` and `{{random::a::b}}`: the one place that does.

Names are those of SillyTavern and of the Character Card V3 specification. Knows no conversation and no character: the
values of names come from the caller.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property

from tavern_host import clock
from tavern_host.contracts.errors import InvalidInput

MAX_TEXT = 4_000_000
"""The longest text that is made, in characters."""

MAX_MACRO = 100_000
"""The longest macro, in characters; a longer one stays as it is written."""

MAX_DICE = 1_000
MAX_LEVELS = 50
"""How deep macros may stand in each other; deeper ones stay as they are written."""

_MARK = re.compile(r"\{\{|\}\}|<(?:USER|BOT|CHAR)>", re.IGNORECASE)
_OLD_NAMES = {"<user>": "user", "<bot>": "char", "<char>": "char"}
_TRIM = "\0trim\0"
_AROUND_TRIM = re.compile(rf"\s*{_TRIM}\s*")
_DICE = re.compile(r"(\d{0,4})d?(\d{1,6})([+-]\d{1,6})?", re.IGNORECASE)
_ZONE = re.compile(r"time_utc([+-]?\d{1,2})", re.IGNORECASE)
_SIMPLE: dict[str, Callable[[datetime], str]] = {
    "newline": lambda now: "\n",
    "noop": lambda now: "",
    "trim": lambda now: _TRIM,
    "time": lambda now: f"{now:%H:%M}",
    "date": lambda now: f"{now:%B} {now.day}, {now.year}",
    "weekday": lambda now: f"{now:%A}",
    "isotime": lambda now: f"{now:%H:%M}",
    "isodate": lambda now: f"{now:%Y-%m-%d}",
}


@dataclass
class Macros:
    """The values of names, in small letters, and what chance comes from: the same `seed` and text give the same.

    `{{pick}}` draws by `lasting` alone, which stays the same through a conversation. `variables` are those of
    `{{setvar}}`, which texts of one prompt share. Raises `InvalidInput` beginning with `who` for a text that grows over
    `MAX_TEXT`.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    who: str = "macros"
    seed: str = ""
    lasting: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    def fill(self, text: str, **more: str) -> str:
        """Return a text with its macros replaced, the inner ones first; what a value brings in is not looked at again.

        `<USER>`, `<BOT>` and `<CHAR>` are the old way of writing two of them; `{{// … }}` is a comment; an unknown
        macro stays.
        """
        if "{{" not in text and "<" not in text:
            return text
        values, drawn = {**self.values, **more}, _Draws(text, self.seed, self.lasting)
        levels: list[list[str]] = [[]]
        length = end = 0
        for match in _MARK.finditer(text):
            mark = match[0].lower()
            levels[-1].append(text[end : match.start()])
            length += match.start() - end
            end = match.end()
            if mark == "{{" and len(levels) <= MAX_LEVELS:
                levels.append([])
                continue
            if mark == "}}" and len(levels) > 1:
                inner = "".join(levels.pop())
                found = self._value(inner, values, drawn) if len(inner) <= MAX_MACRO else None
                piece = f"{{{{{inner}}}}}" if found is None else found
            else:
                piece = values.get(_OLD_NAMES.get(mark, ""), match[0])
            levels[-1].append(piece)
            length += len(piece)
            if length > MAX_TEXT:
                raise InvalidInput(
                    f"{self.who}: the result would have {length:,} characters; at most {MAX_TEXT:,} are possible"
                )
        levels[-1].append(text[end:])
        while len(levels) > 1:  # what was opened and not closed stays as it is written
            rest = "".join(levels.pop())
            levels[-1].append("{{" + rest)
        filled = "".join(levels[0])
        return _AROUND_TRIM.sub("", filled) if _TRIM in filled else filled

    def _value(self, inner: str, values: Mapping[str, str], drawn: _Draws) -> str | None:
        """Return the text that takes a macro's place; None for one that is not known."""
        stripped = inner.strip()
        if stripped.startswith("//"):
            return ""
        name = stripped.lower()
        if name in values:
            return values[name]
        if name in _SIMPLE:
            return _SIMPLE[name](clock.now().astimezone())
        if zone := _ZONE.fullmatch(name):
            hours = max(-23, min(23, int(zone[1])))
            return f"{clock.now().astimezone(timezone(timedelta(hours=hours))):%H:%M}"
        name, _, rest = (part.strip() for part in stripped.partition(":"))
        name, is_list = name.lower(), rest.startswith(":")
        rest = rest.removeprefix(":")
        if name in ("comment", "hidden_key"):
            return ""
        if name == "reverse":
            return rest[::-1]
        if name in ("random", "pick"):
            options = rest.split("::") if is_list else [one.strip() for one in re.split(r"(?<!\\),", rest)]
            return options[drawn.number(name == "pick") % len(options)].replace("\\,", ",") if rest else ""
        if name == "roll":
            return _rolled(rest, drawn)
        return self._variable(name, [part.strip() for part in rest.split("::", 1)])

    def _variable(self, name: str, parts: list[str]) -> str | None:
        key = parts[0]
        if name in ("getvar", "getglobalvar"):
            return self.variables.get(key, "")
        if name in ("setvar", "setglobalvar", "addvar", "addglobalvar") and len(parts) == 2:
            before = self.variables.get(key, "") if name.startswith("add") else ""
            if len(before) + len(parts[1]) > MAX_MACRO:
                raise InvalidInput(f"{self.who}: the variable {key[:60]!r} would be too long")
            try:
                self.variables[key] = f"{float(before) + float(parts[1]):g}"
            except ValueError:
                self.variables[key] = before + parts[1]
            if not name.startswith("add"):
                self.variables[key] = parts[1]
            return ""
        return None


@dataclass
class _Draws:
    """Chance for the macros of one text, each with a number of its own."""

    text: str
    seed: str
    lasting: str
    drawn: int = 0

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()

    def number(self, is_lasting: bool) -> int:
        """Return the next number."""
        self.drawn += 1
        drawn = f"{self.lasting if is_lasting else self.seed}\0{self.drawn}\0{self._digest}"
        return int.from_bytes(hashlib.blake2b(drawn.encode("utf-8", "replace"), digest_size=8).digest())


def _rolled(dice: str, drawn: _Draws) -> str:
    match = _DICE.fullmatch(dice.replace(" ", ""))
    if match is None:
        return ""
    if "d" in dice.lower():
        count, sides = int(match[1] or 1), int(match[2])
    else:
        count, sides = 1, int(match[1] + match[2])
    if not 0 < count <= MAX_DICE or sides < 1:
        return ""
    return str(sum(drawn.number(False) % sides + 1 for _ in range(count)) + int(match[3] or 0))
