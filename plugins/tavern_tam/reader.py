"""What the protocols that are written in text have in common: text around calls, thoughts, code fences.

What the published formats leave open is decided so:

- A code fence is dropped together with the calls in it if it holds nothing else; its events wait until that is known.
- A block that asks for nothing is returned as text, with a warning; one that asks for a call of which not all is
  understood gives a refused call, and its warning.
- Nothing is called in a thought, and one that is never closed holds the rest of the text.
- Lone surrogates, which no wire value may hold, become U+FFFD.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from tavern_host.contracts.wire import without_surrogates
from tavern_tam.window import Outcome, Window, event_of
from tavern_tools.api.fences import closing_fence, fence_at_end, has_fence_marks, is_closing_cut, toggles
from tavern_tools.api.protocols import ParseEvent
from tavern_tools.api.thoughts import Thought, open_thought

W = TypeVar("W", bound=Window)

_LONGEST_BLANK = 64


class TextReader(ABC, Generic[W]):
    """Finds the calls in one text, fed in any pieces; the result does not depend on how it is cut.

    Never raises on any text, and takes time linear in it. A protocol adds how its blocks are found and read.
    """

    def __init__(self, window: W) -> None:
        self._window = window
        self._blocks = 0  # how many blocks with calls there were
        self._in_block = False
        self._thought: Thought | None = None
        self._thought_offset = 0  # where the last one began
        self._fence = ""  # the opening line of a fence that so far holds nothing but blocks
        self._fence_offset = 0
        self._fenced: list[ParseEvent] = []  # what it holds: calls, warnings, and the blanks between blocks
        self._line_is_blank = True  # whether the text's current line holds nothing but blanks
        self._in_code = False  # whether the text's last fence was an opening one
        self._text: list[str] = []
        self._text_offset = 0
        self._events: list[ParseEvent] = []

    @abstractmethod
    def _find_opening(self, data: str, begin: int) -> tuple[int, int, bool] | None:
        """Return where the next opening of a block or a thought begins and ends, and whether it is a block's."""

    @abstractmethod
    def _held_opening(self, data: str, begin: int) -> int:
        """Return where the opening begins that may still be arriving at the end of `data`; else its end."""

    @abstractmethod
    def _begin_block(self, opening: str) -> None:
        """Begin to read a block, from behind its `opening` on."""

    @abstractmethod
    def _read_block(self) -> Outcome | None:
        """Read on in the block; return what it comes to, with the window standing behind it, or None for more text."""

    def feed(self, text: str) -> list[ParseEvent]:
        """Take more text; return what is certain by now."""
        self._window.append(without_surrogates(text))
        return self._advance()

    def finish(self) -> list[ParseEvent]:
        """Say that the text is complete; return the rest."""
        self._window.final = True
        events = self._advance()
        if self._thought is not None:
            events.append(
                event_of("warning", self._thought_offset, "a thought is never closed; no calls were looked for in it")
            )
        return events

    def _advance(self) -> list[ParseEvent]:
        more = True
        while more:
            if self._in_block:
                more = self._finish_block()
            elif self._thought is not None:
                more = self._read_thought(self._thought)
            elif self._fence:
                more = self._read_behind_block()
            else:
                more = self._read_text()
        self._flush_text()
        events, self._events = self._events, []
        return events

    # --- text ------------------------------------------------------------------------------------------

    def _read_text(self) -> bool:
        """Release text up to the next opening; return whether there is one."""
        window = self._window
        data, begin = window.data, window.position
        found = self._find_opening(data, begin)
        if found is None:
            self._release(window.take(len(data) if window.final else self._held_from(begin)))
            return False
        start, stop, is_block = found
        if not is_block:
            self._thought_offset = window.base + start
            self._release(window.take(start))
            self._thought = Thought()
            return True
        if has_fence_marks(data, begin, start):
            fence = fence_at_end(data, begin, start, self._line_is_blank, whole=True)
            self._release(window.take(start if fence is None else fence))
            if self._in_code:
                self._release(window.take(start))
            self._fence_offset = window.offset
            self._fence = window.take(start)
        else:
            self._add_text(window.take(start))  # nothing depends on the line that the block begins in
        self._open(stop)
        return True

    def _held_from(self, begin: int) -> int:
        """Return where the end of the text begins that may belong to a block still to come."""
        data = self._window.data
        stop = self._held_opening(data, begin)
        fence = fence_at_end(data, begin, stop, self._line_is_blank)
        return stop if fence is None else fence

    def _read_thought(self, thought: Thought) -> bool:
        """Release a thought's text up to its end; return whether it has ended."""
        window = self._window
        stop, ended = thought.read(window.data, window.position, final=window.final)
        if ended:
            self._thought = None
        self._add_text(window.take(stop))
        self._line_is_blank = False
        return ended

    def _release(self, text: str) -> None:
        """Return text that was just read and is outside of calls and thoughts, following its lines and code fences."""
        self._release_at(text, self._window.offset - len(text))

    def _release_at(self, text: str, offset: int) -> None:
        if text:
            if toggles(text, self._line_is_blank) % 2:
                self._in_code = not self._in_code
            line = text[text.rfind("\n") + 1 :]
            self._line_is_blank = (self._line_is_blank or len(line) < len(text)) and not line.strip(" \t")
            self._add_text(text, offset)

    def _add_text(self, text: str, offset: int | None = None) -> None:
        if text:
            if not self._text:
                self._text_offset = self._window.offset - len(text) if offset is None else offset
            self._text.append(text)

    def _flush_text(self) -> None:
        if self._text:
            self._events.append(event_of("text", self._text_offset, "".join(self._text)))
            self._text.clear()

    # --- blocks ----------------------------------------------------------------------------------------

    def _open(self, stop: int) -> None:
        self._in_block = True
        self._begin_block(self._window.take(stop))

    def _finish_block(self) -> bool:
        outcome = self._read_block()
        if outcome is None:
            return False
        self._in_block = False
        if not outcome.calls:
            self._release_fence()
            self._refuse(outcome)
            return True
        self._blocks += 1
        self._flush_text()
        events = self._fenced if self._fence else self._events
        for warning in outcome.warnings:
            events.append(event_of("warning", warning.offset, warning.text))
        if outcome.warnings and outcome.problem is None:
            repairs = [warning.text for warning in outcome.warnings]
            outcome.calls[0] = outcome.calls[0].model_copy(update={"repairs": repairs})
        for call in outcome.calls:
            events.append(event_of("call", outcome.offset, call=call))
        self._line_is_blank = False
        if outcome.problem is not None and (thought := open_thought(outcome.source)) is not None:
            outcome.after = outcome.source[thought:]
        if outcome.after:  # it is text like any other, and may hold a thought or the fence of the next block
            self._release_fence()
            self._window.rewind(outcome.offset + len(outcome.source) - len(outcome.after), [outcome.after])
        return True

    def _refuse(self, outcome: Outcome) -> None:
        """Return a block that asks for nothing as text; a refused block apart from other text, and with its warning.

        A thought that begins in it is read like any other.
        """
        problem, source = outcome.problem, outcome.source
        if problem is not None:
            self._flush_text()
        thought = open_thought(source)
        if thought is not None:
            self._window.rewind(outcome.offset + thought, [source[thought:]])
            source = source[:thought]
        self._release_at(source, outcome.offset)
        if problem is not None:
            self._flush_text()
            self._line_is_blank = False
            offset = min(problem.offset, outcome.offset + len(source) - 1)
            self._events.append(event_of("warning", offset, problem.text))

    def _read_behind_block(self) -> bool:
        """Find out whether the fence around a block holds nothing else; return False for more text."""
        window = self._window
        data, begin = window.data, window.position
        end = closing_fence(data, begin, self._fence)
        if end is not None:
            if end == len(data) and not window.final:
                return False
            window.take(end)
            self._events += [event for event in self._fenced if event.kind != "text"]
            self._fenced, self._fence = [], ""
            return True
        blank = begin
        while blank < len(data) and blank - begin < _LONGEST_BLANK and data[blank].isspace():
            blank += 1
        found = self._find_opening(data, blank)
        if found is not None and found[0] == blank and found[2]:
            if blank > begin:
                self._fenced.append(event_of("text", window.offset, window.take(blank)))
            self._open(found[1])
            return True
        if not window.final and (is_closing_cut(data, begin) or self._held_opening(data, blank) == blank):
            return False
        self._release_fence()
        return True

    def _release_fence(self) -> None:
        """Return a fence that holds more than blocks as text, before what was found in it."""
        if self._fence:
            opening, self._fence = self._fence, ""
            self._line_is_blank = True
            self._release_at(opening, self._fence_offset)
            self._flush_text()
            self._events += self._fenced
            self._fenced = []
            self._line_is_blank = False
