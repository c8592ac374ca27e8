"""Tools as a language model's own function calling has them: names that are allowed there, and schemas.

Function names may hold letters, digits, `_` and `-` and be 64 long; the ids of tools may hold anything.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from tavern_host.contracts.tools import ToolDefinition
from tavern_tools.api.protocols import ParserOptions
from tavern_tools.catalog.documentation import for_callers

LONGEST = 64

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]+")
_SHORTEST_HASH = 8


def aliases(tool_ids: Iterable[str]) -> dict[str, str]:
    """Return the tool of each alias, one for each id, in the order of the ids.

    What a function name may not hold becomes `_`. Where two ids would get the same name, letters are lost or the name
    is too long, a short hash of the id is put behind it; an id that is a function name already keeps it. The same ids
    give the same aliases, in whatever order they come.
    """
    ids = list(dict.fromkeys(tool_ids))
    wanted = Counter(_plain(tool_id) for tool_id in ids)
    names: dict[str, str] = {}
    for tool_id in ids:
        name = _plain(tool_id)
        if 0 < len(name) <= LONGEST and (name == tool_id or (wanted[name] == 1 and not _loses_letters(tool_id))):
            names[tool_id] = name
    taken = set(names.values())
    for tool_id in sorted(set(ids) - set(names)):
        names[tool_id] = _hashed(tool_id, taken)
        taken.add(names[tool_id])
    return {names[tool_id]: tool_id for tool_id in ids}


def with_aliases(options: ParserOptions, tool_ids: Iterable[str]) -> ParserOptions:
    """Return the options of parsers with the names under which these tools are offered natively: models write what they
    were shown. A name that is a tool's id means that tool."""
    known, existing = options.parameters, options.aliases
    names = {name: id for name, id in aliases(tool_ids).items() if name not in known and existing.get(name) != id}
    if not names:
        return options
    parameters = known | {name: known[id] for name, id in names.items() if id in known}
    return options.model_copy(update={"aliases": {**existing, **names}, "parameters": parameters})


def native_schemas(tool_ids: Iterable[str], tools: Mapping[str, ToolDefinition]) -> list[dict[str, JsonValue]]:
    """Return `{type: function, function: {name, description, parameters}}` for those of `tool_ids` that `tools` holds;
    the names are the `aliases` of all of them."""
    return [
        {
            "type": "function",
            "function": {
                "name": alias,
                "description": tools[tool_id].description or tools[tool_id].display_name,
                "parameters": {"type": "object", "properties": {}, **for_callers(tools[tool_id].parameters)},
            },
        }
        for alias, tool_id in aliases(tool_ids).items()
        if tool_id in tools
    ]


def _plain(tool_id: str) -> str:
    return _FORBIDDEN.sub("_", tool_id)


def _loses_letters(tool_id: str) -> bool:
    """Whether more than punctuation is replaced in a function name."""
    return any(sign.isalnum() for sign in "".join(_FORBIDDEN.findall(tool_id)))


def _hashed(tool_id: str, taken: set[str]) -> str:
    digest = hashlib.sha256(tool_id.encode("utf-8", "surrogatepass")).hexdigest()
    for length in range(_SHORTEST_HASH, LONGEST):
        end = digest[:length]
        start = _plain(tool_id)[: LONGEST - len(end) - 1].strip("_") or "tool"
        name = f"{start[: LONGEST - len(end) - 1]}_{end}"
        if name not in taken:
            return name
    raise AssertionError("SHA-256 has collided")
