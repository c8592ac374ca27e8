"""Whether a version is in one of the ranges of an advisory: PEP 440 for PyPI, semantic versions for npm."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from packaging.version import InvalidVersion, Version

_SEMVER = re.compile(r"v?(\d{1,18})\.(\d{1,18})\.(\d{1,18})(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")

Key = Callable[[str], Any]
"""Returns what versions of an ecosystem are compared by. Raises `ValueError`."""


def semantic(version: str) -> tuple[Any, ...]:
    """Return the key by which a semantic version is compared (semver.org, section 11). Raises `ValueError`."""
    match = _SEMVER.fullmatch(version.strip())
    if match is None:
        raise ValueError(f"{version!r} is no semantic version")
    numbers = tuple(int(number) for number in match.groups()[:3])
    if match[4] is None:
        return (*numbers, 1, ())
    return (*numbers, 0, tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in match[4].split(".")))


def python(version: str) -> Version:
    """Return a Python version in the form that compares. Raises `ValueError`."""
    try:
        return Version(version)
    except InvalidVersion as error:
        raise ValueError(str(error)) from None


KEYS: dict[str, Key] = {"PyPI": python, "npm": semantic}
"""The ecosystems that are known."""


def in_events(version: str, events: list[dict[str, str]], key: Key) -> bool:
    """Return whether a version is in a range, given by its events in any order: `introduced` (`0` is before all), then
    `fixed`, `limit` or `last_affected`. Raises `ValueError` for what is no version."""
    here, marks = key(version), []
    for event in events:
        for kind, at in event.items():
            if kind == "introduced" and at == "0":
                marks.append((0, None, True))
            elif kind in ("introduced", "fixed", "last_affected") or (kind == "limit" and at != "*"):
                marks.append((1, key(at), kind == "introduced"))
                if kind == "last_affected" and here == key(at):
                    return True
    marks.sort(key=lambda mark: (mark[0], mark[1]) if mark[0] else (0,))
    is_in = False
    for _, mark, begins in marks:
        if mark is None or mark <= here:
            is_in = begins
    return is_in
