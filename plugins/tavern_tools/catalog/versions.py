"""Versions of tools and the ranges that pick one: `^1.2`, `~1.2.3`, `1.2.3`, `>=1,<2`, `*`.

As semantic versioning orders them; a range takes a version before a release (`2.0.0-rc.1`) only where it names one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

_NUMBER = r"(0|[1-9][0-9]{0,17})"
_VERSION = re.compile(
    rf"v?{_NUMBER}(?:\.{_NUMBER})?(?:\.{_NUMBER})?(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)
_COMPARATOR = re.compile(r"(\^|~|>=|<=|>|<|==?)?\s*(\S+)")
_MAX_TEXT = 100


@dataclass(frozen=True, order=True)
class Version:
    """A version. `order` sorts by age, without what follows a `+`; `parts` is how many of its numbers were written."""

    order: tuple[tuple[int, ...], tuple[tuple[int, int, str], ...]]
    parts: int = field(default=3, compare=False)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Major, minor and patch."""
        return self.order[0]

    @property
    def is_release(self) -> bool:
        """Whether it is no version before a release."""
        return self.order[1] == _RELEASE


_RELEASE = ((2, 0, ""),)
_NONE = Version(((), ()))
_COMPARED: dict[str, Callable[[Version, Version], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def read_version(text: str) -> Version | None:
    """Return the version that a text states, or None where it is none; `parts` is the count of its numbers."""
    match = _VERSION.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    if match is None:
        return None
    numbers = [int(number) for number in match.groups()[:3] if number is not None]
    padded = (*numbers, 0, 0)[:3]
    return Version((padded, _before_release(match[4])), len(numbers))


def _before_release(text: str | None) -> tuple[tuple[int, int, str], ...]:
    if text is None:
        return _RELEASE
    parts = text.split(".")
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


class Range:
    """Which versions are asked for; every part of it must hold."""

    def __init__(self, tests: list[Callable[[Version], bool]], named: frozenset[tuple[int, ...]]) -> None:
        self._tests = tests
        self._named = named

    def fits(self, version: Version) -> bool:
        """Return whether a version is one of those."""
        if not version.is_release and version.numbers not in self._named:
            return False
        return all(test(version) for test in self._tests)


def read_range(text: str) -> Range | None:
    """Return the range that a text names, or None where it names none.

    `1.2` and `1` mean every version that begins so; `^` changes nothing left of the first number that is not 0,
    `~` nothing but the last one.
    """
    if len(text) > _MAX_TEXT:
        return None
    tests: list[Callable[[Version], bool]] = []
    named: set[tuple[int, ...]] = set()
    for part in text.split(","):
        part = part.strip()
        if part == "*":
            continue
        match = _COMPARATOR.fullmatch(part)
        bound = read_version(match[2]) if match else None
        if match is None or bound is None:
            return None
        tests.append(_test(match[1] or "", bound))
        if not bound.is_release:
            named.add(bound.numbers)
    return Range(tests, frozenset(named))


def _test(sign: str, bound: Version) -> Callable[[Version], bool]:
    compared = _COMPARED.get(sign)
    if compared is not None:
        if sign in (">", "<=") and bound.parts < 3 and bound.is_release:
            end = _next(bound, bound.parts - 1)  # `<=1` holds for 1.9, too
            return (lambda version: version >= end) if sign == ">" else (lambda version: version < end)
        return lambda version: compared(version, bound)
    if sign == "^":
        first = next((place for place, number in enumerate(bound.numbers[: bound.parts]) if number), bound.parts - 1)
        end = _next(bound, first)
    elif sign == "~":
        end = _next(bound, min(1, bound.parts - 1))
    elif bound.parts < 3 and bound.is_release:
        end = _next(bound, bound.parts - 1)
    else:
        return lambda version: version == bound
    return lambda version: bound <= version < end


def _next(version: Version, place: int) -> Version:
    """Return the lowest version whose number at this place is one more."""
    numbers = (*version.numbers[:place], version.numbers[place] + 1, 0, 0)[:3]
    return Version((numbers, ((0, 0, ""),)))  # before every version before the release


def newest_first(versions: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    """Return (version, whatever has it) pairs, the newest first: releases, then versions before a release, then what
    is no version."""

    def rank(pair: tuple[str, T]) -> tuple[int, Version, str]:
        version = read_version(pair[0])
        if version is None:
            return 0, _NONE, pair[0]
        return (2 if version.is_release else 1), version, ""

    return sorted(versions, key=rank, reverse=True)
