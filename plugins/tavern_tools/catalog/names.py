"""Names and values as people and language models write them: normal forms, patterns, and values shown in messages."""

from __future__ import annotations

import json
import re
from functools import lru_cache

_SEPARATORS = re.compile(r"[\s_-]+")


def normal_form(key: str) -> str:
    """Return a parameter name without case, underscores, hyphens and spaces."""
    return _SEPARATORS.sub("", key).casefold()


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


def quoted(value: object, *, limit: int = 80) -> str:
    """Return a value as one line of JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
