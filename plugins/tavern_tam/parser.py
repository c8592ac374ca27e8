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
from tavern_tam.arriving import ArrivingBlock
from tavern_tam.block import Block, Outcome, Warn
from tavern_tam.events import call_event, text_event
from tavern_tam.fences import HeldFence, fence_at_end, has_fence_marks, toggles
from tavern_tam.lexing import (
    OPENING_CUT,
    REQUEST_MARKER,
    THINK_END,
    THINK_END_CUT,
    Source,
    block_marker,
    cut,
    open_thought,
    opening,
)
from tavern_tam.regular import pairs_of, single_call
from tavern_tam.steps import ParameterNames, Steps, steps_of

_SURROGATE = re.compile("[\ud800-\udfff]")


class TamParser:
    """Finds the calls in one text, fed in any pieces; the result does not depend on how it is cut.

    Never raises on any text, and takes time linear in it (DESIGN §5).
    """

    def __init__(self, options: ParserOptions) -> None:
        self._names = ParameterNames(options.parameters)
        self._source = Source()
        self._arriving: ArrivingBlock | None = None
        self._block: Block | None = None
        self._blocks = 0  # how many blocks with calls there were
        self._thinking = False
        self._thought = 0  # where the last thought began
        self._fence: HeldFence | None = None
        self._line_is_blank = True  # whether the text's current line holds nothing but blanks
        self._in_code = False  # whether the text's last fence was an opening one
        self._nothing_waits = True  # whether all text was released, outside of blocks
        self._text: list[str] = []
        self._text_begin = self._text_end = 0  # offsets
        self._events: list[ParseEvent] = []

    def feed(self, text: str) -> list[ParseEvent]:
        """Take more text; return what is certain by now."""
        arriving = self._arriving
        if arriving is not None:
            arriving.parts.append(text)
            if ">" not in text or not arriving.completes(text):
                return []
            self._begin_arrived(arriving)
        elif self._nothing_waits and "<" not in text and (self._thinking or not ("`" in text or "~" in text)):
            return self._pass_on(text) if text else []
        else:
            self._source.append(_without_surrogates(text))
        return self._advance()

    def finish(self) -> list[ParseEvent]:
        """Say that the text is complete; return the rest."""
        self._source.final = True
        if self._arriving is not None:
            self._begin_arrived(self._arriving)
        events = self._advance()
        if self._thinking:
            text = "a thought is never closed; no calls were looked for in it"
            events.append(ParseEvent(kind="warning", text=text, offset=self._thought))
        return events

    def _pass_on(self, text: str) -> list[ParseEvent]:
        """Release text that holds no marker and not the beginning of one."""
        if not text.isascii():
            text = _without_surrogates(text)
        if (self._line_is_blank or "\n" in text) and not self._thinking:
            self._follow_line(text)
        return [text_event(text, self._source.skip(len(text)))]

    def _advance(self) -> list[ParseEvent]:
        more = True
        while more:
            if self._block is not None:
                more = self._read_block(self._block)
            elif self._thinking:
                more = self._read_thought()
            else:
                if self._fence is None:
                    self._read_single_calls()
                more = self._read_text()
        self._flush_text()
        self._nothing_waits = self._block is None and self._fence is None and self._source.is_used_up
        events, self._events = self._events, []
        return events

    def _read_single_calls(self) -> None:
        """Read on while nothing comes but text and regular blocks of a single call: most texts, to their end."""
        self._flush_text()
        source, events, names, block = self._source, self._events, self._names, self._blocks
        data, base, position = source.data, source.base, source.position
        while True:
            begin = data.find("<", position)
            if begin < 0 or not data.startswith(REQUEST_MARKER, begin):
                break
            behind = begin + len(REQUEST_MARKER)
            marker = block_marker(data, behind)
            text = data[position:begin]
            if marker is None or not marker[2] or has_fence_marks(text):
                break
            call = single_call(data[behind : marker[0]], names, block)
            if call is None:
                break
            if text:
                events.append(text_event(text, base + position))
            events.append(call_event(call, base + begin))
            position = marker[1]
            block += 1
        if block > self._blocks:
            self._blocks = block
            self._line_is_blank = False
            source.position = position

    def _read_text(self) -> bool:
        """Release text up to the next opening; return whether there is more to read."""
        source = self._source
        if self._fence is not None and not self._read_behind_block(self._fence):
            return False
        begin = source.position
        found = opening(source.data, begin)
        if found is None:
            stop = len(source.data) if source.final else self._held_from(begin)
            self._release(source.data[begin:stop], source.offset)
            source.position = stop
            return False
        start, stop, is_block = found
        if not is_block:
            self._release(source.data[begin:stop], source.offset)
            self._thinking = True
            self._thought = source.base + start
            source.position = stop
            return True
        self._release_before_block(source.data[begin:start], source.offset)
        source.position = stop
        return self._begin_block(source.data[start:stop])

    def _held_from(self, begin: int) -> int:
        """Return where the end of the text begins that may belong to a block still to come."""
        data = self._source.data
        stop = cut(OPENING_CUT, data, begin)
        fence = fence_at_end(data, begin, stop, self._line_is_blank)
        return stop if fence is None else fence

    def _release_before_block(self, text: str, offset: int) -> None:
        if not has_fence_marks(text):
            self._add_text(text, offset)  # nothing depends on the line that the block begins in
            return
        fence = None if self._fence else fence_at_end(text, 0, len(text), self._line_is_blank, whole=True)
        if fence is None:
            self._release(text, offset)
            return
        self._release(text[:fence], offset)
        if self._in_code:
            self._release(text[fence:], offset + fence)
        else:
            self._fence = HeldFence(text[fence:], offset + fence)

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
            fence.hold(source.data[source.position : stop], source.offset)
            source.position = stop
        else:
            self._release_fence()
        return True

    def _release_fence(self) -> None:
        if self._fence is not None:
            fence, self._fence = self._fence, None
            self._line_is_blank = True
            for text, offset in fence.held:
                self._release(text, offset)

    def _begin_block(self, marker: str) -> bool:
        """Begin to read a block behind its request marker; return whether more of it is here."""
        source = self._source
        begin = source.position
        found = block_marker(source.data, begin)
        if found is None and not source.final:
            self._arriving = ArrivingBlock(marker, source.take_rest())
            return False
        if found is not None and found[2]:
            pairs = pairs_of(source.data[begin : found[0]], source.offset)
            if pairs is not None:
                offset = source.offset - len(marker)
                text = source.data[begin : found[1]]
                source.position = found[1]
                self._finish_block(Outcome(offset, [marker, text], pairs))
                return True
        self._block = Block(source, marker)
        return True

    def _begin_arrived(self, arrived: ArrivingBlock) -> None:
        """Read a block that has arrived, as far as its first marker or to the end of the text."""
        self._arriving = None
        text = arrived.marker + _without_surrogates(arrived.text)
        self._source.put_back(text, self._source.offset - len(arrived.marker))

    def _read_block(self, block: Block) -> bool:
        outcome = block.read()
        if outcome is None:
            return False
        self._block = None
        self._finish_block(outcome)
        return True

    def _finish_block(self, outcome: Outcome) -> None:
        """Say what a finished block asks for; one that asks for nothing certain is text."""
        problem, warnings, steps = outcome.problem, outcome.warnings, Steps()
        if problem is None:
            steps = steps_of(outcome.pairs, self._names, outcome.offset, self._blocks)
            self._blocks += 1
            problem = steps.problem
            warnings = [*warnings, *steps.warnings]
        if problem is not None:
            warnings = [Warn(f"{problem.text}; nothing in the block is called", problem.offset)]
            self._release_fence()
            self._release_refused(outcome.source, outcome.offset)
        self._line_is_blank = False
        self._flush_text()
        self._events += [ParseEvent(kind="warning", text=w.text, offset=w.offset) for w in warnings]
        if problem is None:
            self._events += [call_event(call, outcome.offset) for call in steps.calls]
            if outcome.after:  # it is text like any other, and may hold a thought or the fence of the next block
                self._release_fence()
                self._source.rewind(outcome.offset + len(outcome.source) - len(outcome.after), [outcome.after])

    def _release_refused(self, text: str, offset: int) -> None:
        """Return a block that calls nothing as text; a thought that begins in it goes on behind it."""
        thought = open_thought(text)
        if thought is not None:
            self._source.rewind(offset + thought, [text[thought:]])
        self._release(text[:thought], offset)

    def _read_thought(self) -> bool:
        """Release a thought's text up to its end; return whether it has ended."""
        source = self._source
        begin, offset = source.position, source.offset
        found = THINK_END.search(source.data, begin)
        if found is not None:
            source.position = found.end()
            self._thinking = False
        else:
            source.position = len(source.data) if source.final else cut(THINK_END_CUT, source.data, begin)
        self._add_text(source.data[begin : source.position], offset)
        self._line_is_blank = False
        return found is not None

    def _release(self, text: str, offset: int) -> None:
        """Return text that is outside of calls and thoughts, following its lines and code fences."""
        if text:
            if toggles(text, self._line_is_blank) % 2:
                self._in_code = not self._in_code
            self._follow_line(text)
            self._add_text(text, offset)

    def _follow_line(self, text: str) -> None:
        line = text[text.rfind("\n") + 1 :]
        self._line_is_blank = (self._line_is_blank or len(line) < len(text)) and not line.strip(" \t")

    def _add_text(self, text: str, offset: int) -> None:
        if self._text and offset != self._text_end:
            self._flush_text()
        if not self._text:
            self._text_begin = offset
        self._text.append(text)
        self._text_end = offset + len(text)

    def _flush_text(self) -> None:
        if self._text:
            text = "".join(self._text)
            self._text.clear()
            if text:
                self._events.append(text_event(text, self._text_begin))


def _without_surrogates(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode("utf-32-le")  # the quickest look at every character
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text
