"""Names and values as people and language models write them: normal forms, patterns, and values shown in messages."""

from __future__ import annotations

import json
import re

_SEPARATORS = re.compile(r"[\s_-]+")


def normal_form(key: str) -> str:
    """Return a parameter name without case, underscores, hyphens and spaces."""
    return _SEPARATORS.sub("", key).casefold()


def quoted(value: object, *, limit: int = 80) -> str:
    """Return a value as one line of JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
