"""The incremental parser of TAM, the Tavern Action Manifest: how its blocks are found and what they ask for."""

from __future__ import annotations

from tavern_tam.block import Block
from tavern_tam.lexing import REQUEST_MARKER, Source, block_marker, opening, opening_cut
from tavern_tam.plain import plain_call
from tavern_tam.reader import TextReader
from tavern_tam.steps import ParameterNames, call_of, steps_of
from tavern_tam.window import UNNAMED, Outcome, Warn
from tavern_tools.api.protocols import ParserOptions

HOW_TO_WRITE = (
    "Write the block again, with each key once, nothing else between the values, and a value that holds delimiters or "
    "block markers between 「始ESCAPE:x」 and 「末ESCAPE:x」, where x is a word of your choice that is not in the value"
)
"""The advice to a model whose block was refused."""


class TamParser(TextReader[Source]):
    """Finds the calls that a text asks for in TAM."""

    def __init__(self, options: ParserOptions) -> None:
        super().__init__(Source())
        self._names = ParameterNames(options.parameters)
        self._block: Block | None = None
        self._opening = REQUEST_MARKER

    def _find_opening(self, data: str, begin: int) -> tuple[int, int, bool] | None:
        return opening(data, begin)

    def _held_opening(self, data: str, begin: int) -> int:
        return opening_cut(data, begin)

    def _begin_block(self, opening: str) -> None:
        self._opening = opening

    def _read_block(self) -> Outcome | None:
        if self._block is None:
            plain = self._read_plain_call()
            if plain is not None:
                return plain
            self._block = Block(self._window, self._opening)
        found = self._block.read()
        if found is None:
            return None
        self._block = None
        steps = steps_of(found.pairs, self._names, found.offset, self._blocks)
        outcome = Outcome(
            found.offset, found.source, steps.calls, [*found.warnings, *steps.warnings], after=found.after
        )
        problem = found.problem or steps.problem
        if problem is not None:
            outcome.problem = Warn(f"{problem.text}; nothing in the block is called", problem.offset)
            tool_ids = [pair.value.strip() for pair in found.pairs if pair.key.word == "command"]
            if found.pairs:
                outcome.refuse(call_of(next(filter(None, tool_ids), UNNAMED), {}, self._blocks), HOW_TO_WRITE)
        return outcome

    def _read_plain_call(self) -> Outcome | None:
        """Read a block at once that is all here and holds one call without repairs: nearly all that come are such."""
        source = self._window
        begin = source.position
        found = block_marker(source.data, begin)
        if found is None or not found[2]:
            return None
        call = plain_call(source.data[begin : found[0]], self._names, self._blocks)
        if call is None:
            return None
        source.position = found[1]
        return Outcome(source.base + begin - len(self._opening), calls=[call])
