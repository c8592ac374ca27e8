"""The incremental parser of the protocols that write calls in tags: how their elements are found, and JSON behind a
prefix.

What looks like a call and is none is text; so is a call that is refused (`tag_block`), with a warning.
"""

from __future__ import annotations

import re
from functools import cache
from typing import ClassVar

from tavern_tam.json_block import JsonBlock
from tavern_tam.reader import TextReader
from tavern_tam.tag_block import Grammar, TagBlock, Unclosed
from tavern_tam.tags import TAG, held_opening, tag_of
from tavern_tam.window import Outcome, Window
from tavern_tools.api.protocols import ParserOptions
from tavern_tools.api.thoughts import PATTERN as THOUGHT


class TagParser(TextReader[Window]):
    """Finds the calls that a text writes in tags. A protocol is a subclass with its `grammar`."""

    grammar: ClassVar[Grammar]

    def __init__(self, options: ParserOptions) -> None:
        super().__init__(Window())
        self._pattern, self._arriving = _opening_of(self.grammar), _arriving_prefix(self.grammar)
        self._words = (self.grammar.root, "think", "thinking")
        self._unclosed = Unclosed()
        self._options = options
        self._block: TagBlock | JsonBlock | None = None

    def _find_opening(self, data: str, begin: int) -> tuple[int, int, bool] | None:
        for found in self._pattern.finditer(data, begin):
            if found["name"] is None:
                return found.start(), found.end(), found["prefix"] is not None
            tag = tag_of(found)
            if self.grammar.opens(tag) or self.grammar.opens_json(tag):
                return found.start(), found.end(), True
        return None

    def _held_opening(self, data: str, begin: int) -> int:
        found = self._arriving.search(data, max(begin, len(data) - _LONGEST_PREFIX))
        return min(held_opening(data, begin, self._words), len(data) if found is None else found.start())

    def _begin_block(self, opening: str) -> None:
        found = TAG.match(opening)
        if found is not None and self.grammar.opens(tag := tag_of(found)):
            self._block = TagBlock(self._window, self.grammar, tag, self._unclosed, self._blocks)
        else:
            element = "" if found is None else self.grammar.root
            self._block = JsonBlock(self._window, element, opening, self._options, self._blocks)

    def _read_block(self) -> Outcome | None:
        return self._block.read() if self._block is not None else None


_GAP = r"\s{0,8}"
_LONGEST_PREFIX = 40


@cache
def _opening_of(grammar: Grammar) -> re.Pattern[str]:
    """Return the pattern of the end of plain text: a tag or a prefix with which a call may begin, or a thought."""
    name = "[_-]?".join(grammar.words)
    call = rf"<(?P<closing>){_GAP}(?P<name>(?i:{name}))(?P<attributes>(?:[\s/][^<>]{{0,400}})?)>"
    prefix = rf"(?i:{name}){_GAP}:{_GAP}(?={{)" if grammar.has_prefix else "(?!)"
    return re.compile(rf"{call}|(?P<prefix>{prefix})|{THOUGHT}")


@cache
def _arriving_prefix(grammar: Grammar) -> re.Pattern[str]:
    """Return a prefix that is still arriving at the end of a text."""
    letters = [f"{letter}[_-]?" if letter == word[-1] else letter for word in grammar.words for letter in word]
    atoms = [*letters, _GAP, ":", _GAP] if grammar.has_prefix else ["(?!)"]
    return re.compile("(?:".join(atoms) + ")?" * (len(atoms) - 1) + r"\Z", re.IGNORECASE)
