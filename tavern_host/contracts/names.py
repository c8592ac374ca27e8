"""Guesses which name was meant, for the errors that say that there is no such thing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST = 100
"""Names longer than this are not compared: nobody mistyped them, and comparing is quadratic."""


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
