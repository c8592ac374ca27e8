"""Ids of panels and their elements, made of names."""

from __future__ import annotations

import re
from collections.abc import Iterable


def new_id(name: str, taken: Iterable[str]) -> str:
    """Return an id that is none of those that are `taken`, made of a name."""
    known = set(taken)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name.rpartition("/")[2]).strip("-")[:60] or "element"
    return next(one for n in range(len(known) + 2) if (one := plain if n == 0 else f"{plain}-{n + 1}") not in known)
