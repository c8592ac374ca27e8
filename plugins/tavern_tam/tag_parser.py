"""The incremental parser of the protocols that write calls in tags: how their elements are found.

What looks like a call and is none is text; so is a call that is refused (`tag_block`), with a warning.
"""

from __future__ import annotations

import re
from functools import cache
from typing import ClassVar

from tavern_host.contracts.protocols import ParserOptions
from tavern_host.contracts.thoughts import PATTERN as THOUGHT
from tavern_tam.json_block import JsonBlock
from tavern_tam.reader import TextReader
from tavern_tam.tag_block import Grammar, TagBlock, Unclosed
from tavern_tam.tags import TAG, held_opening, tag_of
from tavern_tam.window import Outcome, Window


class TagParser(TextReader[Window]):
    """Finds the calls that a text writes in tags. A protocol is a subclass with its `grammar`."""

    grammar: ClassVar[Grammar]

    def __init__(self, options: ParserOptions) -> None:
        super().__init__(Window())
        self._pattern = _opening_of(self.grammar)
        self._words = (self.grammar.root, "think", "thinking")
        self._unclosed = Unclosed()
        self._options = options
        self._block: TagBlock | JsonBlock | None = None

    def _find_opening(self, data: str, begin: int) -> tuple[int, int, bool] | None:
        for found in self._pattern.finditer(data, begin):
            if found["name"] is None:
                return found.start(), found.end(), False
            tag = tag_of(found)
            if self.grammar.opens(tag) or self.grammar.opens_json(tag):
                return found.start(), found.end(), True
        return None

    def _held_opening(self, data: str, begin: int) -> int:
        return held_opening(data, begin, self._words)

    def _begin_block(self, opening: str) -> None:
        found = TAG.match(opening)
        assert found is not None
        tag = tag_of(found)
        if self.grammar.opens(tag):
            self._block = TagBlock(self._window, self.grammar, tag, self._unclosed, self._blocks)
        else:
            self._block = JsonBlock(self._window, self.grammar.root, opening, self._options, self._blocks)

    def _read_block(self) -> Outcome | None:
        return self._block.read() if self._block is not None else None


@cache
def _opening_of(grammar: Grammar) -> re.Pattern[str]:
    """Return what ends plain text: a tag with which a call may begin, or a thought."""
    name = "[_-]?".join(grammar.words)
    call = rf"<(?P<closing>)\s{{0,8}}(?P<name>(?i:{name}))(?P<attributes>(?:[\s/][^<>]{{0,400}})?)>"
    return re.compile(rf"{call}|{THOUGHT}")
