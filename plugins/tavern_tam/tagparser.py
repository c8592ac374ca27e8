"""The incremental parser of the protocols that write calls in tags: text outside of calls, thoughts and code fences.

What the documents leave open is decided so:

- A code fence is dropped together with the calls in it if it holds nothing else.
- What looks like a call and is none is text; a call that is refused (`tagblock`) is text too, with a warning.
- Lone surrogates, which no wire value may hold, become U+FFFD.
"""

from __future__ import annotations

import re
from functools import cache
from typing import ClassVar

from tavern_host.contracts.protocols import ParseEvent, ParserOptions
from tavern_host.contracts.toolcalls import ToolCallRequest
from tavern_tam.fences import fence_at_end, toggles
from tavern_tam.lexing import open_thought
from tavern_tam.tagblock import Grammar, Outcome, TagBlock, Unclosed
from tavern_tam.tags import Tag, Window, held_opening, tag_of

_THINK = "think"
_THINK_END = re.compile(r"<\s{0,8}/\s{0,8}think\s{0,8}>", re.IGNORECASE)
_THINK_END_LONGEST = 64
_FENCE_END = re.compile(r"\s{0,64}(`{3,8}|~{3,8})[ \t]{0,8}(?:(?=\r?\n)|\Z)")
_FENCE_END_CUT = re.compile(r"\s{0,64}(?:[`~]{1,8}[ \t]{0,8}\r?|<[^<>]{0,500})?\Z")
_BLANK = re.compile(r"\s{0,64}")
_SURROGATE = re.compile("[\ud800-\udfff]")


class TagParser:
    """Finds the calls in one text, fed in any pieces; the result does not depend on how it is cut.

    Never raises on any text, and takes time linear in it (DESIGN §5). A protocol is a subclass with its `grammar`.
    """

    grammar: ClassVar[Grammar]

    def __init__(self, options: ParserOptions) -> None:
        self._opening = _opening_of(self.grammar)
        self._words = (self.grammar.root, _THINK)
        self._window = Window()
        self._unclosed = Unclosed()
        self._block: TagBlock | None = None
        self._blocks = 0
        self._thinking = False
        self._thought = 0  # where the last thought began
        self._fence = ""  # the opening line of a fence that so far holds nothing but calls
        self._fence_offset = 0
        self._fenced: list[ParseEvent] = []  # what the fence holds: calls, and the blanks between them
        self._line_is_blank = True
        self._in_code = False
        self._text: list[str] = []
        self._text_offset = 0
        self._events: list[ParseEvent] = []

    def feed(self, text: str) -> list[ParseEvent]:
        """Take more text; return what is certain by now."""
        self._window.append(_without_surrogates(text))
        return self._advance()

    def finish(self) -> list[ParseEvent]:
        """Say that the text is complete; return the rest."""
        self._window.final = True
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
        begin = search = window.position
        while True:
            found = self._opening.search(window.data, search)
            if found is None:
                self._release(window.take(len(window.data) if window.final else self._held_from(begin)))
                return False
            if found["name"].casefold() == _THINK:
                self._begin_thought(found)
                return True
            tag = tag_of(found)
            if self.grammar.opens(tag):
                self._begin_block(tag, found.start(), found.end())
                return True
            search = found.end()

    def _held_from(self, begin: int) -> int:
        """Return where the end of the text begins that may belong to a call still to come."""
        data = self._window.data
        stop = held_opening(data, begin, self._words)
        fence = fence_at_end(data, begin, stop, self._line_is_blank)
        return stop if fence is None else fence

    def _begin_thought(self, found: re.Match[str]) -> None:
        self._thought = self._window.base + found.start()
        self._release(self._window.take(found.end()))
        self._thinking = True

    def _read_thought(self) -> bool:
        """Release a thought's text up to its end; return whether it has ended."""
        window = self._window
        data, begin = window.data, window.position
        found = _THINK_END.search(data, begin)
        if found is not None:
            stop = found.end()
        elif window.final:
            stop = len(data)
        else:
            last = data.rfind("<", max(begin, len(data) - _THINK_END_LONGEST))
            stop = len(data) if last < 0 or ">" in data[last:] else last
        self._thinking = found is None
        self._add_text(window.take(stop), self._window.offset - (stop - begin))
        self._line_is_blank = False
        return found is not None

    def _release(self, text: str) -> None:
        """Return text that was just read and is outside of calls and thoughts, following its lines and fences."""
        self._release_at(text, self._window.offset - len(text))

    def _release_at(self, text: str, offset: int) -> None:
        if not text:
            return
        if toggles(text, self._line_is_blank) % 2:
            self._in_code = not self._in_code
        line = text[text.rfind("\n") + 1 :]
        self._line_is_blank = (self._line_is_blank or len(line) < len(text)) and not line.strip(" \t")
        self._add_text(text, offset)

    def _add_text(self, text: str, offset: int) -> None:
        if not self._text:
            self._text_offset = offset
        self._text.append(text)

    def _flush_text(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if text:
            self._events.append(ParseEvent(kind="text", text=text, offset=self._text_offset))

    # --- calls -----------------------------------------------------------------------------------------

    def _begin_block(self, tag: Tag, start: int, end: int) -> None:
        window = self._window
        data, begin = window.data, window.position
        fence = fence_at_end(data, begin, start, self._line_is_blank, whole=True)
        self._release(window.take(start if fence is None else fence))
        if self._in_code:
            self._release(window.take(start))
        self._fence_offset = window.offset
        self._fence = window.take(start)
        window.take(end)
        self._block = TagBlock(window, self.grammar, tag, self._unclosed)

    def _read_block(self, block: TagBlock) -> bool:
        outcome = block.read()
        if outcome is None:
            return False
        self._block = None
        if outcome.tool_id is None:
            self._release_fence()
            self._refuse(outcome)
        else:
            self._call(outcome, outcome.tool_id)
        return True

    def _refuse(self, outcome: Outcome) -> None:
        """Return what asks for nothing as text; a refused call apart from other text, and with its warning. A thought
        that begins in it goes on behind it."""
        problem = outcome.problem
        if problem is not None:
            self._flush_text()
        thought = open_thought(outcome.source)
        if thought is not None:
            self._window.rewind(outcome.offset + thought, [outcome.source[thought:]])
        source = outcome.source[:thought]
        self._release_at(source, outcome.offset)
        if problem is not None:
            self._flush_text()
            self._line_is_blank = False
            offset = min(problem.offset, outcome.offset + len(source) - 1)
            self._events.append(ParseEvent(kind="warning", text=f"{problem.text}; nothing is called", offset=offset))

    def _call(self, outcome: Outcome, tool_id: str) -> None:
        request = ToolCallRequest(
            tool_id=tool_id,
            arguments=dict(outcome.arguments),
            block=self._blocks,
            protocol=self.grammar.protocol,
        )
        self._blocks += 1
        self._flush_text()
        events = [ParseEvent(kind="warning", text=w.text, offset=w.offset) for w in outcome.warnings]
        events.append(ParseEvent(kind="call", call=request, offset=outcome.offset))
        if self._fence:
            self._fenced += events
        else:
            self._events += events
            self._line_is_blank = False

    def _read_behind_block(self) -> bool:
        """Settle whether the fence around a call holds nothing else; return False for more text."""
        window = self._window
        data, begin = window.data, window.position
        closing = _FENCE_END.match(data, begin)
        if closing is not None and closing[1].startswith(self._run_of_fence()):
            if closing.end() == len(data) and not window.final:
                return False
            self._events += [event for event in self._fenced if event.kind != "text"]
            self._fenced, self._fence = [], ""
            window.take(closing.end())
            self._line_is_blank = False
            return True
        blank = _BLANK.match(data, begin)
        stop = blank.end() if blank else begin
        found = self._opening.match(data, stop)
        if found is not None and self.grammar.opens(tag := tag_of(found)):
            if stop > begin:
                offset = window.offset
                self._fenced.append(ParseEvent(kind="text", text=window.take(stop), offset=offset))
            window.take(found.end())
            self._block = TagBlock(window, self.grammar, tag, self._unclosed)
            return True
        if not window.final and _FENCE_END_CUT.match(data, begin):
            return False
        self._release_fence()
        return True

    def _run_of_fence(self) -> str:
        mark = self._fence[0]
        return mark * (len(self._fence) - len(self._fence.lstrip(mark)))

    def _release_fence(self) -> None:
        """Return the fence as text, before what was found in it."""
        if self._fence:
            self._line_is_blank = True
            opening = self._fence
            self._fence = ""
            self._release_at(opening, self._fence_offset)
            self._flush_text()
        self._events += self._fenced
        self._fenced = []
        self._line_is_blank = False


@cache
def _opening_of(grammar: Grammar) -> re.Pattern[str]:
    """Return what ends plain text: a tag with which a call may begin, or a thought."""
    names = "|".join(["[_-]?".join(grammar.words), _THINK])
    return re.compile(
        rf"<(?P<closing>)\s{{0,8}}(?P<name>{names})(?P<attributes>(?:[\s/][^<>]{{0,400}})?)>", re.IGNORECASE
    )


def _without_surrogates(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text
