"""Says which workflows are large, so that work on them is done in a thread: nobody waits for it."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

LARGE = 2_000
"""How many values in a document, those of some 200 nodes and edges, are looked at on the event loop; more of them in a
thread."""


def is_large(document: JsonValue) -> bool:
    """Return whether the document of a workflow holds very many values: nodes, edges, or what is in one of them."""
    level: list[Any] = [[document]]
    found = 0
    while level:
        found += sum(map(len, level))
        if found > LARGE:
            return True
        values = (value for part in level for value in (part.values() if isinstance(part, dict) else part))
        level = [value for value in values if isinstance(value, dict | list)]
    return False
