"""The names that a plugin may have, and the name that was probably meant by one that does not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from tavern_host.contracts.errors import NotFound

T = TypeVar("T")

RESERVED = "tavern-host"
"""The name under which the host provides services of its own."""
_LONGEST_PLUGIN_NAME = 100
_KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

LONGEST = 100
"""Names longer than this are not compared: nobody mistyped them, and comparing is quadratic."""


def plugin_name(value: str) -> str:
    """Return a name if a plugin may have it. Raises `ValueError` with what it must be."""
    if len(value) > _LONGEST_PLUGIN_NAME:
        raise ValueError(f"must be at most {_LONGEST_PLUGIN_NAME} characters")
    if not _KEBAB.fullmatch(value):
        raise ValueError("must be kebab-case: lower-case letters and digits, words joined by '-'")
    if value == RESERVED:
        raise ValueError(f"must be another name; {RESERVED!r} is the host itself")
    return value


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three of `names` that look like `name`, the likeliest first, none far behind it.

    Upper and lower case count as the same.
    """
    if len(name) > LONGEST:
        return []
    spelt = {n.casefold(): n for n in names if len(n) <= LONGEST}
    near = difflib.get_close_matches(name.casefold(), spelt, n=3, cutoff=0.6)
    likeness = [difflib.SequenceMatcher(None, n, name.casefold()).ratio() for n in near]
    return [spelt[n] for n, ratio in zip(near, likeness, strict=True) if ratio > likeness[0] - 0.1]


def suggest(name: str, names: Iterable[str]) -> str | None:
    """Return `did you mean x or y?`, or None where no name is near."""
    found = near_names(name, names)
    return f"did you mean {' or '.join(found)}?" if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ` (did you mean x or y?)`, or nothing where no name is near."""
    hint = suggest(name, names)
    return f" ({hint})" if hint else ""


def look_up(what: str, name: str, known: Mapping[str, T]) -> T:
    """Return the entry with this name. Raises `NotFound` with near names."""
    if name not in known:
        hint = suggest(name, known)
        raise NotFound(f"there is no {what} {name!r}" + (f"; {hint}" if hint else ""))
    return known[name]
