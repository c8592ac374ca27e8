"""Comparing names that people and language models write: normal forms and near names."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable

_SEPARATORS = re.compile(r"[\s_-]+")


def normal_form(key: str) -> str:
    """Return a parameter name without case, underscores, hyphens and spaces (DESIGN §5, *TAM*)."""
    return _SEPARATORS.sub("", key).casefold()


def near_names(name: str, names: Iterable[str], *, limit: int = 3) -> list[str]:
    """Return up to `limit` of `names` that `name` may have been meant to be, the nearest first."""
    spelled: dict[str, str] = {}
    for candidate in names:
        spelled.setdefault(normal_form(candidate), candidate)
    return [spelled[match] for match in difflib.get_close_matches(normal_form(name), spelled, n=limit)]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean "a" or "b"?` to end a message with, or nothing where no name is near."""
    near = near_names(name, names)
    return f"; did you mean {' or '.join(quoted(n) for n in near)}?" if near else ""


def quoted(value: object, *, limit: int = 80) -> str:
    """Return a value as one line of JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
