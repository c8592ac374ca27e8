"""Replacement rules: reads them from data, merges lists of them, applies them one after another.

A rule is `{name, pattern, replacement, flags, enabled}`; scripts of SillyTavern (`scriptName`, `findRegex`,
`replaceString`, `trimStrings`, `disabled`) are read as rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tavern_host import InvalidInput
from tavern_nodes.api.jsregex import PatternError
from tavern_nodes.api.patterns import Allowance, UserPattern, compile_pattern, split_literal
from tavern_nodes.values import bounded, kind_of, shorten

MAX_RULES = 1000
"""How many rules a list may hold."""

MAX_TRIMMED = 100
"""How many texts a rule may cut out of what a match brings in."""

DEFAULT_FLAGS = "g"
"""The flags of a rule that names none: it replaces every match."""


@dataclass(frozen=True)
class Rule:
    """A replacement. A `name` may be empty. `trim` are texts that are cut out of what a match brings in."""

    name: str
    pattern: str
    replacement: str
    flags: str
    enabled: bool
    trim: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the rule as edges carry it."""
        found = {
            "name": self.name,
            "pattern": self.pattern,
            "replacement": self.replacement,
            "flags": self.flags,
            "enabled": self.enabled,
        }
        return {**found, "trimStrings": list(self.trim)} if self.trim else found

    def compiled(self, where: str, allowance: Allowance) -> UserPattern:
        """Return the pattern, ready for use. Raises `InvalidInput` beginning with `where`, and `OutOfTime`."""
        try:
            return compile_pattern(self.pattern, self.flags, allowance)
        except PatternError as problem:
            name = f" {shorten(self.name)!r}" if self.name else ""
            raise InvalidInput(
                f"{where}: the pattern {shorten(self.pattern)!r} of the rule{name} is wrong: {problem}"
            ) from None


def read_rules(value: Any, where: str) -> list[Rule]:
    """Return the rules of a list, of one rule, of `{"rules": […]}`, or of nothing. Raises `InvalidInput`."""
    if isinstance(value, dict):
        value = value.get("rules", [value])
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInput(f"{where}: expected a list of rules, not {kind_of(value)}")
    if len(value) > MAX_RULES:
        raise InvalidInput(f"{where}: {len(value):,} rules are too many; at most {MAX_RULES:,} are possible")
    return [_read(rule, f"{where}[{index}]") for index, rule in enumerate(value)]


def merged(first: Sequence[Rule], second: Sequence[Rule]) -> list[Rule]:
    """Return the rules of both lists in order; of several with one name the earliest. Nameless ones all stay."""
    names: set[str] = set()
    found = []
    for rule in (*first, *second):
        if rule.name not in names:
            found.append(rule)
        if rule.name:
            names.add(rule.name)
    return found


def apply(rules: Sequence[Rule], text: str, allowance: Allowance, where: str) -> str:
    """Return `text` after all rules that are enabled, in order. Raises `OutOfTime`, `InvalidInput`."""
    for rule in rules:
        if rule.enabled:
            pattern = rule.compiled(where, allowance)
            text = pattern.replaced(text, pattern.replacement(rule.replacement, rule.trim), allowance, where)
    return text


def _read(value: Any, where: str) -> Rule:
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected an object with pattern and replacement, not {kind_of(value)}")
    if "findRegex" in value:
        return _read_script(value, where)
    rule = Rule(
        name=_text(value, "name", where, ""),
        pattern=_text(value, "pattern", where),
        replacement=_text(value, "replacement", where, ""),
        flags=_text(value, "flags", where, DEFAULT_FLAGS),
        enabled=_is_enabled(value, where),
        trim=_texts(value, "trimStrings", where),
    )
    literal = split_literal(rule.pattern)
    return replace(rule, pattern=literal[0], flags=literal[1]) if literal and "flags" not in value else rule


def _read_script(value: dict[str, Any], where: str) -> Rule:
    written = _text(value, "findRegex", where)
    pattern, flags = split_literal(written) or (written, "")
    return Rule(
        name=_text(value, "scriptName", where, ""),
        pattern=pattern,
        replacement=_text(value, "replaceString", where, "").replace("{{match}}", "$&"),
        flags=flags,
        enabled=_is_enabled(value, where),
        trim=_texts(value, "trimStrings", where),
    )


def _is_enabled(value: dict[str, Any], where: str) -> bool:
    enabled, disabled = value.get("enabled", True), value.get("disabled", False)
    for key, flag in (("enabled", enabled), ("disabled", disabled)):
        if not isinstance(flag, bool):
            raise InvalidInput(f"{where}.{key}: expected true or false, not {kind_of(flag)}")
    return enabled and not disabled


def _text(value: dict[str, Any], key: str, where: str, default: str | None = None) -> str:
    found = value.get(key)
    found = default if found is None else found
    if not isinstance(found, str):
        raise InvalidInput(f"{where}.{key}: expected text, not {kind_of(found)}")
    if default is None and not found:
        raise InvalidInput(f"{where}.{key}: must not be empty")
    return found


def _texts(value: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    found = value.get(key) or []
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise InvalidInput(f"{where}.{key}: expected a list of texts")
    bounded(len(found), MAX_TRIMMED, f"{where}.{key}", "texts")
    return tuple(text for text in found if text)
