"""Takes texts apart into the words that they are found by: words of letters and digits, and of Chinese, Japanese and
Korean text every two characters that stand side by side. Says nothing about which text is the better one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from tavern_nodes.api.patterns import split_literal

_CJK = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3040-\u30ff\u3131-\u318e\u31f0-\u31ff"
_CJK += "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af"

_PART = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_CJK_CHARACTER = re.compile(f"[{_CJK}]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

LONGEST_WORD = 64
"""How many characters of a word count."""

_FEW = """a an and are as at be by can could do does for from get give has have how i if in into is it its make me my
    need no not of on one or please should so some something that the their them there these this to want was what when
    where which who will with would you your"""
_COMMON = frozenset(_FEW.split())
_COMMON_CHINESE = re.compile(
    "请问|怎么样|怎么|怎样|如何|什么|哪一个|哪一种|哪种|哪个|哪些|有没有|能不能|能否|可以|我想要|我想|想要|我要|我们|我有|我|"
    "一个|这个|那个|一下|的话|用来|需要|应该|吗|呢|吧"
)


def is_cjk(text: str) -> bool:
    """Return whether a text has characters of a script that puts no spaces between words."""
    return _CJK_CHARACTER.search(text) is not None


def is_pattern(key: str) -> bool:
    """Return whether a key is a regular expression, `/…/flags`."""
    return key.startswith("/") and split_literal(key.strip()) is not None


def normal(text: str) -> str:
    """Return a text in the form in which texts are compared: full width as half width, without case."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def indexed(texts: Iterable[str]) -> str:
    """Return the words of texts with spaces between, for the index. A run of Chinese ends with its last character, so
    that every character begins a word."""
    return " ".join(word for text in texts for word in _words(text, whole=True))


def asked(query: str, most: int) -> list[str]:
    """Return the words of a query, each once and at most so many; without those that say nothing, if others are left.
    One character alone is given with a `*` behind it: it begins a word."""
    telling = [word for word in _words(_COMMON_CHINESE.sub(" ", query), whole=False) if word not in _COMMON]
    return list(dict.fromkeys(telling or _words(query, whole=False)))[:most]


def _words(text: str, *, whole: bool) -> Iterator[str]:
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    for match in _PART.finditer(text):
        part = match[0]
        if _CJK_CHARACTER.match(part):
            yield from (part[i : i + 2] for i in range(len(part) - 1))
            if whole:
                yield part[-1]
            elif len(part) == 1:
                yield f"{part}*"
            continue
        yield part.casefold()[:LONGEST_WORD]
        pieces = _CAMEL.split(part) if len(part) <= LONGEST_WORD and not part.islower() else [part]
        if len(pieces) > 1:
            yield from (piece.casefold() for piece in pieces)
