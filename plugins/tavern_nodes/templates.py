"""Fills in the placeholders of a text: `{name}` and `{user.name}`. Where their values come from is the caller's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tavern_nodes.values import MAX_TEXT, bounded, join

if TYPE_CHECKING:
    from collections.abc import Callable

_PLACEHOLDER = re.compile(r"\{\{([\w.]++)\}\}|\{(\w++(?:\.\w++)*+)\}")


def fill(template: str, find: Callable[[str], str | None], who: str) -> str:
    """Return `template` with each `{path}` replaced by `find(path)`, which is asked once for each path.

    Where that is None the placeholder stays. `{{path}}` stays as `{path}`; all other braces are left alone, so JSON
    in a template needs no care. Raises `InvalidInput` where the result is over `MAX_TEXT`, and what `find` raises.
    """
    pieces: list[str] = []
    filled: dict[str, str | None] = {}
    end = length = 0
    for match in _PLACEHOLDER.finditer(template):
        path = match[2]
        if path and path not in filled:
            filled[path] = find(path)
        piece = filled[path] if path else f"{{{match[1]}}}"
        pieces += (template[end : match.start()], match[0] if piece is None else piece)
        end = match.end()
        length += len(pieces[-2]) + len(pieces[-1])
        bounded(length, MAX_TEXT, who, "characters")
    return join("", [*pieces, template[end:]], who)
