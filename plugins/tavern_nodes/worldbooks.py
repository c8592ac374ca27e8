"""World books: reads their entries and finds those that a conversation calls up.

Reads the form of SillyTavern's world files (`entries` by number, `key`, `keysecondary`, `order`, `position` 0–6) and
that of the books in character cards (`entries` as a list, `keys`, `secondary_keys`, `insertion_order`). The rules:

- An entry comes in if it is `constant`, or if one of its keys stands in the last messages: as many of them as the
  entry's, else the book's, scan depth says, else two. Case counts only where the entry says so; a key written
  `/pattern/flags` is a regular expression.
- With secondary keys (unless `selective` is false) they decide too: any of them, not all, none, all.
- Where the book is recursive, entries that came in call up others, except as `excludeRecursion` (is not called up)
  and `preventRecursion` (calls up nothing) say.
- With a token budget, constant entries are taken first, then those of higher priority, then of higher order, as long
  as they fit; four bytes count as a token, since models differ.
- Chance is left out, so that the same conversation gives the same prompt: an entry with a probability of 0 stays out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tavern_host import InvalidInput
from tavern_nodes.api.jsregex import PatternError
from tavern_nodes.api.patterns import MAX_SEARCHED, Allowance, UserPattern, compile_pattern, split_literal
from tavern_nodes.values import kind_of, shorten, show

MAX_ENTRIES = 10_000
MAX_KEYS = 100_000
MAX_NUMBER = 2**53
MAX_ROUNDS = 20
"""How often entries may call up others that call up others."""

DEFAULT_SCAN_DEPTH = 2
DEFAULT_DEPTH = 4
DEFAULT_ORDER = 100

Position = Literal["before", "after", "depth", "before_examples", "after_examples"]
_POSITIONS: dict[Any, Position] = {
    0: "before",
    1: "after",
    2: "depth",  # about the author's note, which there is none of here
    3: "depth",
    4: "depth",
    5: "before_examples",
    6: "after_examples",
    "before_char": "before",
    "after_char": "after",
}
_ROLES = {0: "system", 1: "user", 2: "assistant", "system": "system", "user": "user", "assistant": "assistant"}
_ANY, _NOT_ALL, _NONE, _ALL = range(4)
"""What secondary keys may ask for, by SillyTavern's numbers."""


@dataclass(frozen=True)
class Key:
    """Something to look for: a text or a pattern."""

    text: str
    pattern: UserPattern | None = None
    whole_word: bool = False
    case_sensitive: bool = False

    def occurs_in(self, text: str, lower: str, allowance: Allowance) -> bool:
        """Return whether it stands in `text`; `lower` is the same in small letters. Raises `OutOfTime`."""
        allowance.left()
        if self.pattern is not None:
            return self.pattern.occurs_in(text, allowance)
        wanted, where = (self.text, text) if self.case_sensitive else (self.text.lower(), lower)
        if not self.whole_word:
            return wanted in where
        return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", where) is not None


@dataclass(frozen=True)
class Entry:
    """A piece of knowledge, when it comes in, and where it goes."""

    content: str
    keys: tuple[Key, ...]
    secondary: tuple[Key, ...] = ()
    logic: int = _ANY
    constant: bool = False
    order: float = DEFAULT_ORDER
    priority: float = 0
    position: Position = "before"
    depth: int = DEFAULT_DEPTH
    role: str = "system"
    scan_depth: int = DEFAULT_SCAN_DEPTH
    exclude_recursion: bool = False
    prevent_recursion: bool = False

    def is_called_by(self, text: str, lower: str, allowance: Allowance) -> bool:
        """Return whether the entry's keys stand in `text`. Raises `OutOfTime`."""
        if not any(key.occurs_in(text, lower, allowance) for key in self.keys):
            return False
        if not self.secondary:
            return True
        found = [key.occurs_in(text, lower, allowance) for key in self.secondary]
        return {_ANY: any(found), _NOT_ALL: not all(found), _NONE: not any(found), _ALL: all(found)}[self.logic]


@dataclass(frozen=True)
class Book:
    """Entries that go together. A `token_budget` of 0 is none."""

    entries: tuple[Entry, ...] = ()
    recursive: bool = False
    token_budget: int = 0

    def called_up(self, messages: Sequence[str], allowance: Allowance) -> list[Entry]:
        """Return the entries that the messages, oldest first, call up, by order. Raises `OutOfTime`."""
        scanned: dict[int, tuple[str, str]] = {}
        active: list[Entry] = []
        waiting: list[Entry] = []
        for entry in self.entries:
            if entry.scan_depth not in scanned:
                scanned[entry.scan_depth] = _lowered(_last(messages, entry.scan_depth))
            called = entry.constant or entry.is_called_by(*scanned[entry.scan_depth], allowance)
            (active if called else waiting).append(entry)
        new = active
        for _ in range(MAX_ROUNDS if self.recursive else 0):
            text = _lowered("\n".join(entry.content for entry in new if not entry.prevent_recursion)[:MAX_SEARCHED])
            new = [e for e in waiting if not e.exclude_recursion and e.is_called_by(*text, allowance)]
            if not new:
                break
            taken = set(map(id, new))
            active = active + new
            waiting = [entry for entry in waiting if id(entry) not in taken]
        return sorted(self._within_budget(active), key=lambda entry: entry.order)

    def _within_budget(self, entries: list[Entry]) -> list[Entry]:
        if self.token_budget <= 0:
            return entries
        left = self.token_budget
        kept = set()
        for entry in sorted(entries, key=lambda e: (not e.constant, -e.priority, -e.order)):
            cost = -(-len(entry.content.encode("utf-8", "replace")) // 4)
            if cost <= left:
                left -= cost
                kept.add(id(entry))
        return [entry for entry in entries if id(entry) in kept]


def read_book(value: Any, where: str, allowance: Allowance) -> Book:
    """Return the book that data holds; of nothing an empty one.

    Raises `InvalidInput` naming the entry, and `OutOfTime` where its patterns take too long to compile.
    """
    if value is None or value == {}:
        return Book()
    if isinstance(value, list):
        value = {"entries": value}
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: a world book is an object with entries, not {kind_of(value)}")
    entries = value.get("entries")
    if isinstance(entries, dict):
        entries = list(entries.values())
    if not isinstance(entries, list):
        raise InvalidInput(f"{where}: a world book needs entries, a list or an object")
    if len(entries) > MAX_ENTRIES:
        raise InvalidInput(f"{where}: {len(entries):,} entries are too many; at most {MAX_ENTRIES:,} are possible")
    fields = _Fields(value, where)
    depth = fields.whole("scan_depth", "scanDepth", default=DEFAULT_SCAN_DEPTH)
    found = [_read_entry(entry, f"{where}.entries[{index}]", depth, allowance) for index, entry in enumerate(entries)]
    if sum(len(entry.keys) + len(entry.secondary) for entry in found if entry is not None) > MAX_KEYS:
        raise InvalidInput(f"{where}: the entries have more than {MAX_KEYS:,} keys")
    return Book(
        entries=tuple(entry for entry in found if entry is not None),
        recursive=fields.flag("recursive_scanning", "recursive", default=False),
        token_budget=fields.whole("token_budget", "tokenBudget", default=0),
    )


class _Fields:
    """Reads the fields of an object that different programs name differently."""

    def __init__(self, value: dict[str, Any], where: str) -> None:
        inner = value.get("extensions")
        self._value = {**(inner if isinstance(inner, dict) else {}), **value}
        self._where = where

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the first of these fields that is there and not null."""
        return next((self._value[name] for name in names if self._value.get(name) is not None), default)

    def number(self, *names: str, default: float) -> float:
        found = self.get(*names, default=default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not -MAX_NUMBER <= found <= MAX_NUMBER:
            raise InvalidInput(f"{self._where}.{names[0]}: expected a number, not {show(found)}")
        return found

    def whole(self, *names: str, default: int) -> int:
        """Return a number without its fraction."""
        return int(self.number(*names, default=default))

    def flag(self, *names: str, default: bool) -> bool:
        found = self.get(*names, default=default)
        if not isinstance(found, bool):
            raise InvalidInput(f"{self._where}.{names[0]}: expected true or false, not {kind_of(found)}")
        return found

    def texts(self, *names: str) -> list[str]:
        """Return a list of texts, or the parts between the commas of one."""
        found = self.get(*names, default=[])
        if isinstance(found, str):
            found = found.split(",")
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            raise InvalidInput(f"{self._where}.{names[0]}: expected a list of texts")
        return [text.strip() for text in found if text.strip()]


def _read_entry(value: Any, where: str, scan_depth: int, allowance: Allowance) -> Entry | None:
    """Return an entry, or None for one that is switched off."""
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected an object with keys and content, not {kind_of(value)}")
    fields = _Fields(value, where)
    chance = fields.number("probability", default=100) if fields.flag("useProbability", default=True) else 100
    if fields.flag("disable", default=False) or not fields.flag("enabled", default=True) or chance <= 0:
        return None
    content = fields.get("content", default="")
    if not isinstance(content, str):
        raise InvalidInput(f"{where}.content: expected text, not {kind_of(content)}")
    secondary = fields.texts("secondary_keys", "keysecondary") if fields.flag("selective", default=True) else []
    logic = fields.get("selectiveLogic", default=_ANY)
    return Entry(
        content=content,
        keys=_keys(fields, fields.texts("keys", "key"), where, allowance),
        secondary=_keys(fields, secondary, where, allowance),
        logic=logic if logic in (_ANY, _NOT_ALL, _NONE, _ALL) else _ANY,
        constant=fields.flag("constant", default=False),
        order=fields.number("insertion_order", "order", default=DEFAULT_ORDER),
        priority=fields.number("priority", default=0),
        position=_position(value, fields),
        depth=max(0, fields.whole("depth", default=DEFAULT_DEPTH)),
        role=_ROLES.get(_hashable(fields.get("role")), "system"),
        scan_depth=fields.whole("scanDepth", "scan_depth", default=scan_depth),
        exclude_recursion=fields.flag("excludeRecursion", "exclude_recursion", default=False),
        prevent_recursion=fields.flag("preventRecursion", "prevent_recursion", default=False),
    )


def _position(value: dict[str, Any], fields: _Fields) -> Position:
    """The number in a card's `extensions` says more than the two words that cards have for it."""
    inner = value.get("extensions")
    number = inner.get("position") if isinstance(inner, dict) else None
    chosen = number if isinstance(number, int) else fields.get("position", default=0)
    return _POSITIONS.get(_hashable(chosen), "before")


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _keys(fields: _Fields, texts: list[str], where: str, allowance: Allowance) -> tuple[Key, ...]:
    case_sensitive = fields.flag("case_sensitive", "caseSensitive", default=False)
    whole_word = fields.flag("matchWholeWords", "match_whole_words", default=False)
    always_pattern = fields.flag("use_regex", default=False)
    found = []
    for text in texts:
        literal = split_literal(text)
        if literal is None and always_pattern:
            literal = (text, "" if case_sensitive else "i")
        pattern = _pattern(*literal, where, allowance) if literal else None
        found.append(Key(text, pattern, whole_word, case_sensitive))
    return tuple(found)


def _pattern(source: str, flags: str, where: str, allowance: Allowance) -> UserPattern:
    try:
        return compile_pattern(source, flags, allowance)
    except PatternError as problem:
        raise InvalidInput(f"{where}: the key {shorten(source)!r} is no regular expression: {problem}") from None


def _last(messages: Sequence[str], depth: int) -> str:
    return "\n".join(messages[-depth:])[-MAX_SEARCHED:] if depth > 0 else ""


def _lowered(text: str) -> tuple[str, str]:
    return text, text.lower()
