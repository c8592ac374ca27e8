"""A shortcut for the blocks that most texts hold: one command, parameters between 「始」 and 「末」, and no repairs.

What it does not understand it leaves to `Block` and `steps_of`, whose result for these blocks is the same: with it a
text of a thousand calls takes a third of the time.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pydantic import JsonValue

from tavern_tam.keys import KEY_CHARACTERS, KEY_REACH, SEPARATORS, Key, key_of
from tavern_tam.steps import ParameterNames, call_of
from tavern_tools.api.toolcalls import ToolCallRequest

# From where the text is not regular it is all one match, whose value and gap are empty.
_VALUES = re.compile("「始」([^「]*+(?:「(?![始末]」)[^「]*+)*+)「末」([^「]*+)|「(?s:.*+)")

_COMMENTS = rf"(?:[{SEPARATORS}]*+#[^\n<]*+\n)*+[{SEPARATORS}]*+"
_GAP = re.compile(rf"{_COMMENTS}({KEY_CHARACTERS}++)[:：]\s*+")
_END = re.compile(rf"{_COMMENTS}(?:#[^\n<]*+)?")


def plain_call(text: str, names: ParameterNames, block: int) -> ToolCallRequest | None:
    """Return the call of a block that is an unnumbered command and, behind it, nothing but parameters.

    `text` is what stands between the block's markers, `block` its number. None means that `Block` is to read it.
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
    if len(different if known is None else arguments) != count or not (value or gap):
        return None
    return call_of(tool_id, arguments, block) if gap == "\n" or _END.fullmatch(gap) else None


@lru_cache(maxsize=1024)
def _key_of_gap(gap: str) -> Key | None:
    found = _GAP.fullmatch(gap)
    return key_of(found.group(1)) if found else None
