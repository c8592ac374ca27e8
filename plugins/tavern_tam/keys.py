"""The keys of TAM: which spellings are the same, and which keys are words of the protocol itself.

Whether a number at the end of a key is a step depends on the block and is decided in `steps`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

LONGEST_KEY = 64

Word = Literal["", "command", "comment", "request_id", "on_error", "retry", "type_hint", "common", "argument"]

KEY_REACH = 200
"""How much text before an opening delimiter is looked at for its key."""

KEY_CHARACTERS = "[^:：「」»«<>\r\n]"
"""What a key may consist of; it cannot begin with `#`, which begins a comment."""

SEPARATORS = " \t\r\n,，;；"
"""What may stand between one value and the next key."""

_KEY = re.compile(rf"(?!#){KEY_CHARACTERS}{{1,{LONGEST_KEY}}}")
_DECORATION = SEPARATORS + "-*\"'`"
_IGNORED = re.compile(r"[\s_\-]+")
_DIGITS = re.compile(r"[0-9]+\Z")
_TYPE_HINT = re.compile(r"type[\s_\-]*hint[\s_\-]*(?=.)", re.IGNORECASE)
_COMMON = re.compile(r"common[\s_\-]+(?=.)", re.IGNORECASE)
_ARGUMENT = re.compile(r"argument[\s_\-]+(?=.)", re.IGNORECASE)
_PLAIN_WORDS: dict[str, Word] = {"comment": "comment", "requestid": "request_id"}
_NUMBERED_WORDS: dict[str, Word] = {"command": "command", "onerror": "on_error", "retry": "retry"}


@dataclass(frozen=True, slots=True)
class Key:
    """A key: as `written`, its `name` for comparing, the `digits` at its end, and which of TAM's own words
    it is. `inner` is the parameter that a `type_hint_P`, `common_P` or `argument_P` is about."""

    written: str
    name: str
    digits: str
    word: Word
    inner: Key | None = None


@lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """Return a key as it is compared: without case, underscores, hyphens and spaces."""
    return _IGNORED.sub("", text).casefold()


@lru_cache(maxsize=4096)
def key_of(text: str) -> Key | None:
    """Return the key that is written as `text` (quotes and list marks around it are dropped), or None."""
    written = text.strip().strip(_DECORATION)
    name = normalise(written)
    if not name or not _KEY.fullmatch(written):
        return None
    found = _DIGITS.search(written)
    digits = found.group() if found else ""
    word, inner = _word(written, name, digits)
    return Key(written, name, digits, word, inner)


def without_number(written: str, length: int) -> str:
    """Return a key without the last `length` digits and the separator before them."""
    return written[:-length].rstrip(" \t_-")


def _word(written: str, name: str, digits: str) -> tuple[Word, Key | None]:
    if name in _PLAIN_WORDS:
        return _PLAIN_WORDS[name], None
    word = _NUMBERED_WORDS.get(name[: -len(digits)] if digits else name)
    if word is not None and len(digits) < 10:
        return word, None
    for prefix, prefixed in ((_TYPE_HINT, "type_hint"), (_COMMON, "common")):
        found = prefix.match(written)
        inner = key_of(written[found.end() :]) if found else None
        if inner is not None:
            return ("type_hint" if prefixed == "type_hint" else "common"), inner
    found = _ARGUMENT.match(written)
    inner = key_of(written[found.end() :]) if found else None
    if inner is not None and inner.word:
        return "argument", Key(inner.written, inner.name, inner.digits, "")
    return "", None


def key_before(text: str, *, whole: bool) -> tuple[Key, int] | None:
    """Return the key that stands on a line of its own at the end of `text`, before an opening delimiter,
    and where its line begins. `whole` says that `text` begins where a key may begin."""
    tail = text[-KEY_REACH:]
    head = tail.rstrip()
    if not head.endswith((":", "：")):
        return None
    start = head.rfind("\n") + 1
    if start == 0 and not (whole and len(text) <= KEY_REACH):
        return None
    key = key_of(head[start:-1].strip(SEPARATORS))
    return (key, len(text) - len(tail) + start) if key else None
