"""In which language the host speaks to a person: which one that is, and what its English texts are there.

What goes to programs (codes, keys, states, logs, JSON of commands) is the same in every language.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

from tavern_host.contracts.documents import read_document_file
from tavern_host.contracts.errors import TavernError

LANGUAGES = ("en", "zh")
"""Those that the host has texts in."""
_LONGEST = 4_000
"""How many characters of a text are looked up; a longer one stays as it is."""

_SEPARATORS = ("; ", ": ")
"""Between these stands what is said by itself: problems, and the place of each. Where nothing fits the whole of a text,
its parts are looked up, if they are not too many."""
_PARTS = 100

_log = logging.getLogger("tavern.languages")


class Catalogue:
    """What English texts are in a language. `{}` in one stands for any text, which is put in the place of the `{}` of
    the translation, itself translated where the catalogue has it; `{1}` and `{2}` put them in another order."""

    def __init__(self, language: str = "en", texts: Mapping[str, str] | None = None) -> None:
        self.language = language
        self._texts = texts or {}
        templates = [(text.split("{}"), said) for text, said in self._texts.items() if "{}" in text]
        self._templates = sorted(templates, key=lambda each: -len("".join(each[0])))  # the most particular first

    @classmethod
    def read(cls, language: str, files: Iterable[Path]) -> Catalogue:
        """Read those of these files that there are, each a JSON object; the first that has a text counts."""
        texts: dict[str, str] = {}
        for file in files:
            try:
                found = read_document_file(file) if file.exists() else {}
            except TavernError as error:
                _log.warning("%s", error.message)
                continue
            texts = {**{text: said for text, said in found.items() if isinstance(said, str)}, **texts}
        return cls(language, texts)

    def say(self, text: str) -> str:
        """Return a text in this language, or as it is where the catalogue has nothing for it."""
        if not text or not self._texts or len(text) > _LONGEST:
            return text
        if (said := self._texts.get(text)) is not None:
            return said
        for pieces, said in self._templates:
            if (parts := _between(pieces, text)) is not None:
                parts = [self.say(part) if len(part) < len(text) else part for part in parts]
                return said.format(*parts) if "{}" in said else said.format("", *parts)
        for separator in _SEPARATORS:
            if 0 < text.count(separator) <= _PARTS:
                return separator.join(map(self.say, text.split(separator)))
        return text


def _between(pieces: list[str], text: str) -> list[str] | None:
    """Return the parts between the pieces that make up a text with them, or None. The part before the first words of a
    template is one thing, and no problem that comes before."""
    first, *inner, last = pieces
    if not text.startswith(first) or not text.endswith(last) or len(text) <= len(first) + len(last):
        return None
    rest, parts = text[len(first) : len(text) - len(last)], []
    for piece in inner:
        before, found, rest = rest.partition(piece)
        if not before or not found:
            return None
        parts.append(before)
    parts.append(rest)
    is_one = first or not any(separator in parts[0] for separator in _SEPARATORS)
    return parts if rest and is_one else None


CATALOGUE: ContextVar[Catalogue] = ContextVar("catalogue", default=Catalogue())  # noqa: B039  # it is never changed
"""The language of who is being answered. The command line sets it by its terminal, the server for each request."""


def say(text: str) -> str:
    """Return a text in the language of who is being answered."""
    return CATALOGUE.get().say(text)


def say_lines(text: str) -> str:
    """Return a text of several lines, each in the language of who is being answered, as far in as it was."""
    return "\n".join(line[: -len(line.lstrip()) or None] + say(line.lstrip()) for line in text.split("\n"))


def of_terminal(environment: Mapping[str, str]) -> str:
    """Return the language of a terminal, as POSIX and gettext name it; English where the host has no texts in it."""
    set_to = (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    locale = next(filter(None, set_to), "")
    wished = environment.get("LANGUAGE", "").split(":") if locale not in ("", "C", "POSIX") else []
    return next(filter(None, map(_known, [*wished, locale])), "en")


@lru_cache(maxsize=64)
def of_browser(accepted: str) -> str:
    """Return the language that an `Accept-Language` asks for most (RFC 9110 §12.5.4); English where the host has no
    texts in any of its languages."""
    best, found = 0.0, "en"
    for entry in accepted[:1000].split(","):
        tag, _, weight = entry.partition(";")
        try:
            wished = float(weight.partition("=")[2]) if weight else 1.0
        except ValueError:
            continue
        if wished > best and (known := _known(tag.strip())):
            best, found = wished, known
    return found


def _known(tag: str) -> str | None:
    """Return the language of a tag such as `zh-Hans-CN` or `zh_CN.UTF-8` if it is one of `LANGUAGES`."""
    primary = tag.replace("_", "-").partition("-")[0].partition(".")[0].lower()
    return primary if primary in LANGUAGES else None
