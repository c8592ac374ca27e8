"""The incremental parser of TAM: text outside of calls, thoughts, fences, and the blocks between them.

What the documents leave open is decided so:

- A code fence is dropped together with the block if it holds nothing but blocks; its opening line waits
  until that is known and is returned as text otherwise.
- A block that asks for nothing certain (no command, or cut short inside a value) is returned as text.
- Lone surrogates, which no wire value may hold, become U+FFFD.
"""

from __future__ import annotations

import re

from tavern_host.contracts.protocols import ParseEvent, ParserOptions
from tavern_host.contracts.tools import ToolCallRequest
from tavern_tam.block import Block, Outcome, Warn, regular_pairs
from tavern_tam.fences import HeldFence, fence_at_end, toggles
from tavern_tam.lexing import BLOCK_MARKER, OPENING, OPENING_CUT, THINK_END, THINK_END_CUT, Source, cut
from tavern_tam.steps import ParameterNames, steps_of

_SURROGATE = re.compile("[\ud800-\udfff]")


class TamParser:
    """Finds the calls in one text, fed in any pieces; the result does not depend on how it is cut.

    Never raises on any text, and takes time linear in it (DESIGN §5).
    """

    def __init__(self, options: ParserOptions) -> None:
        self._names = ParameterNames(options.parameters)
        self._source = Source()
        self._block: Block | None = None
        self._blocks = 0  # how many blocks with calls there were
        self._thinking = False
        self._thought = 0  # where the last thought began
        self._fence: HeldFence | None = None
        self._line_is_blank = True  # whether the text's current line holds nothing but blanks
        self._in_code = False  # whether the text's last fence was an opening one
        self._text: list[str] = []
        self._events: list[ParseEvent] = []

    def feed(self, text: str) -> list[ParseEvent]:
        """Take more text; return what is certain by now."""
        self._source.append(_without_surrogates(text))
        return self._advance()

    def finish(self) -> list[ParseEvent]:
        """Say that the text is complete; return the rest."""
        self._source.final = True
        events = self._advance()
        if self._thinking:
            text = "a thought is never closed; no calls were looked for in it"
            events.append(ParseEvent(kind="warning", text=text, offset=self._thought))
        return events

    def _advance(self) -> list[ParseEvent]:
        more = True
        while more:
            if self._block is not None:
                more = self._read_block(self._block)
            elif self._thinking:
                more = self._read_thought()
            else:
                more = self._read_text()
        self._flush_text()
        events, self._events = self._events, []
        return events

    def _read_text(self) -> bool:
        """Release text up to the next opening; return whether there is one."""
        source = self._source
        if self._fence is not None and not self._read_behind_block(self._fence):
            return False
        begin = source.position
        found = OPENING.search(source.data, begin)
        if found is None:
            stop = len(source.data) if source.final else self._held_from(begin)
            self._release(source.data[begin:stop])
            source.position = stop
            return False
        if found.lastgroup is None:
            self._release(source.data[begin : found.end()])
            self._thinking = True
            self._thought = source.base + found.start()
            source.position = found.end()
        else:
            self._release_before_block(source.data[begin : found.start()])
            source.position = found.end()
            self._begin_block(found.group())
        return True

    def _held_from(self, begin: int) -> int:
        """Return where the end of the text begins that may belong to a block still to come."""
        data = self._source.data
        stop = cut(OPENING_CUT, data, begin)
        fence = fence_at_end(data, begin, stop, self._line_is_blank)
        return stop if fence is None else fence

    def _release_before_block(self, text: str) -> None:
        fence = None if self._fence else fence_at_end(text, 0, len(text), self._line_is_blank, whole=True)
        if fence is None:
            self._release(text)
            return
        self._release(text[:fence])
        if self._in_code:
            self._release(text[fence:])
        else:
            self._fence = HeldFence(text[fence:])

    def _read_behind_block(self, fence: HeldFence) -> bool:
        """Settle whether a fence around a block holds nothing else; return False for more text."""
        source = self._source
        verdict, stop = fence.what_follows(source.data, source.position, source.final)
        if verdict == "more":
            return False
        if verdict == "closed":
            source.position = stop
            self._fence = None
        elif verdict == "block":
            fence.hold(source.data[source.position : stop])
            source.position = stop
        else:
            self._release_fence()
        return True

    def _release_fence(self) -> None:
        if self._fence is not None:
            fence, self._fence = self._fence, None
            self._line_is_blank = True
            self._release(fence.text)

    def _begin_block(self, opening: str) -> None:
        """Read a regular block at once if all of it is here, and otherwise begin to read it."""
        source = self._source
        begin = source.position
        marker = BLOCK_MARKER.search(source.data, begin)
        if marker is not None and marker.lastgroup == "end":
            pairs = regular_pairs(source.data[begin : marker.start()], source.offset)
            if pairs is not None:
                source.position = marker.end()
                text = source.data[begin - len(opening) : marker.end()]
                self._finish_block(Outcome(source.base + begin - len(opening), [text], pairs))
                return
        self._block = Block(source, opening)

    def _read_block(self, block: Block) -> bool:
        outcome = block.read()
        if outcome is None:
            return False
        self._block = None
        self._finish_block(outcome)
        return True

    def _finish_block(self, outcome: Outcome) -> None:
        """Say what a finished block asks for; one that asks for nothing certain is text."""
        problem = outcome.problem
        warnings, calls = outcome.warnings, list[ToolCallRequest]()
        if problem is None:
            steps = steps_of(outcome.pairs, self._names, outcome.offset, self._blocks)
            self._blocks += 1
            problem = steps.problem
            warnings, calls = [*warnings, *steps.warnings], steps.calls
        if problem is not None:
            warnings = [Warn(f"{problem.text}; nothing in the block is called", problem.offset)]
            self._release_fence()
            self._release(outcome.source)
        self._line_is_blank = False
        self._flush_text()
        self._events += [ParseEvent(kind="warning", text=w.text, offset=w.offset) for w in warnings]
        self._events += [ParseEvent(kind="call", call=call) for call in calls]
        if outcome.after and problem is None:
            self._release_fence()
            self._release(outcome.after)

    def _read_thought(self) -> bool:
        """Release a thought's text up to its end; return whether it has ended."""
        source = self._source
        begin = source.position
        found = THINK_END.search(source.data, begin)
        if found is not None:
            source.position = found.end()
            self._thinking = False
        else:
            source.position = len(source.data) if source.final else cut(THINK_END_CUT, source.data, begin)
        self._text.append(source.data[begin : source.position])
        self._line_is_blank = False
        return found is not None

    def _release(self, text: str) -> None:
        """Return text that is outside of calls and thoughts, following its lines and code fences."""
        if not text:
            return
        if toggles(text, self._line_is_blank) % 2:
            self._in_code = not self._in_code
        line = text[text.rfind("\n") + 1 :]
        self._line_is_blank = (self._line_is_blank or len(line) < len(text)) and not line.strip(" \t")
        self._text.append(text)

    def _flush_text(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if text:
            self._events.append(ParseEvent(kind="text", text=text))


def _without_surrogates(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text
