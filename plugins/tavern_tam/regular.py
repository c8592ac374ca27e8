"""Reads at once the blocks that need no repair and have but 「始」「末」 for delimiters: nearly all that come.

What it does not understand it leaves to `Block` and `steps_of`, which read these blocks with the same result, more
slowly.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pydantic import JsonValue

from tavern_host.contracts.toolcalls import ToolCallRequest
from tavern_tam.block import Pair
from tavern_tam.events import plain_call
from tavern_tam.keys import KEY_CHARACTERS, KEY_REACH, SEPARATORS, Key, key_of
from tavern_tam.steps import ParameterNames

_OPEN, _CLOSE = len("「始」"), len("「末」")
# From where the text is not regular it is all one match, whose value and gap are empty.
_VALUES = re.compile("「始」([^「]*+(?:「(?![始末]」)[^「]*+)*+)「末」([^「]*+)|「(?s:.*+)")

_COMMENTS = rf"(?:[{SEPARATORS}]*+#[^\n<]*+\n)*+[{SEPARATORS}]*+"
_GAP = re.compile(rf"{_COMMENTS}({KEY_CHARACTERS}++)[:：]\s*+")
_END = re.compile(rf"{_COMMENTS}(?:#[^\n<]*+)?")


def single_call(text: str, names: ParameterNames, block: int) -> ToolCallRequest | None:
    """Return the call of a block that is an unnumbered command and, behind it, nothing but parameters.

    `text` is what stands between the block's markers, `block` its number. None means that `pairs_of`, or else `Block`,
    is to read it.
    """
    begin = text.find("「")
    gap = text[:begin]
    key = _key_of_gap(gap) if 0 < begin <= KEY_REACH else None
    if key is None or key.word != "command" or key.digits:
        return None
    values = iter(_VALUES.findall(text))
    value, gap = next(values)
    tool_id = value.strip()
    if not tool_id:
        return None
    known = names.of(tool_id)
    arguments: dict[str, JsonValue] = {}
    different = set()
    count = 0
    for value, following in values:
        key = _key_of_gap(gap) if len(gap) <= KEY_REACH else None
        if key is None or key.word:
            return None
        gap = following
        count += 1
        name = key.written
        if known is None:
            different.add(key.name)
        else:
            name = known.get(name) or known.get(key.name) or name
        arguments[name] = value
    if len(different if known is None else arguments) != count or not (value or gap) or not _is_end(gap):
        return None
    return plain_call(tool_id, arguments, block)


def pairs_of(text: str, offset: int) -> list[Pair] | None:
    """Return the keys and values of a block, None if there is anything else in it.

    `text` is what stands between the block's markers, and begins at `offset`.
    """
    gap = text[: text.find("「")]
    value = ""
    pairs = []
    for value, following in _VALUES.findall(text):
        key = _key_of_gap(gap) if len(gap) <= KEY_REACH else None
        if key is None:
            return None
        offset += len(gap) + _OPEN
        pairs.append(Pair(key, value, offset))
        offset += len(value) + _CLOSE
        gap = following
    return pairs if pairs and (value or gap) and _is_end(gap) else None


def _is_end(gap: str) -> bool:
    return gap == "\n" or _END.fullmatch(gap) is not None


@lru_cache(maxsize=1024)
def _key_of_gap(gap: str) -> Key | None:
    found = _GAP.fullmatch(gap)
    return key_of(found.group(1)) if found else None
