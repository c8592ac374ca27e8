"""Patterns of ids of tools, as settings, profiles and scopes have them."""

from __future__ import annotations

import re
from functools import lru_cache


def fits(pattern: str, name: str) -> bool:
    """Return whether a whole name fits a pattern, in which `*` is any text and `?` any one character."""
    return pattern == name or (("*" in pattern or "?" in pattern) and _compiled(pattern).fullmatch(name) is not None)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    # Atomic groups: what stands between two stars is looked for once, or many stars take time without end.
    parts = [re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", pattern)]
    first, *between = parts
    if not between:
        return re.compile(first, re.DOTALL)
    last = between.pop()
    return re.compile(first + "".join(f"(?>.*?{part})" for part in between) + f".*{last}", re.DOTALL)
