"""One call that is written as JSON, from behind its opening on: in a `<tool_call>` element, as open models do, or
behind `TOOL_CALL:`.

In an element the JSON ends at the first `<` outside of its strings; whole JSON without the closing tag is a call, with
a warning. Else it ends with its last brace. All else that names a tool is refused, and what names none is text.
"""

from __future__ import annotations

import re

from tavern_tam.native import NativeParser
from tavern_tam.tags import TAG, held_tag, same_name
from tavern_tam.window import Outcome, Warn, Window, behind_blanks
from tavern_tools.api.protocols import ParserOptions
from tavern_tools.api.toolcalls import ToolCallRequest

PROTOCOL = "tool_call"

HOW_TO_WRITE = 'Write it again as <tool_call>{"name": …, "arguments": {…}}</tool_call>, each key once, texts escaped'
"""The advice to a model whose JSON was refused."""

_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,200})"')
_MARK = re.compile('["<{}]')
_MARK_IN_STRING = re.compile(r'\\.|"', re.DOTALL)


class JsonBlock:
    """Reads one call, the `number`th of the text, from a window. `element` is the compared name of its element, empty
    where there is none."""

    def __init__(self, window: Window, element: str, opening: str, options: ParserOptions, number: int) -> None:
        self._window = window
        self._element = element
        self._options = options
        self._number = number
        self._begin = window.offset - len(opening)
        self._opening = opening
        self._parts: list[str] = []
        self._begun = False
        self._in_string = False
        self._depth = 0

    def read(self) -> Outcome | None:
        """Read on; return the finished block, with the window standing behind it, or None for more text."""
        window = self._window
        if not self._begun:
            begin = behind_blanks(window.data, window.position)
            if begin == len(window.data) and not window.final:
                return None
            if not window.data.startswith("{", begin):
                return Outcome(self._begin, self._opening)
            self._begun = True
        while (found := self._next_mark()) is not None:
            sign = found.group()
            if sign == "<" and self._element:
                return self._end(found.start())
            self._parts.append(window.take(found.end()))
            self._in_string ^= sign == '"'
            self._depth += (sign == "{") - (sign == "}")
            if sign == "}" and self._depth <= 0 and not self._element:
                return self._outcome("")
        cut_off = not window.final and self._in_string and window.data.endswith("\\")
        self._parts.append(window.take(len(window.data) - cut_off))
        return self._outcome("") if window.final else None

    def _next_mark(self) -> re.Match[str] | None:
        pattern = _MARK_IN_STRING if self._in_string else _MARK
        return pattern.search(self._window.data, self._window.position)

    def _end(self, place: int) -> Outcome | None:
        window = self._window
        self._parts.append(window.take(place))
        tag = TAG.match(window.data, place)
        if tag is None and not window.final and held_tag(window.data, place) == place:
            return None
        if tag is None or not tag["closing"] or same_name(tag["name"]) != self._element:
            return self._outcome("")
        return self._outcome(window.take(tag.end()))

    def _outcome(self, closing: str) -> Outcome:
        text = "".join(self._parts)
        outcome = Outcome(self._begin, f"{self._opening}{text}{closing}")
        # The end of a call in JSON that is not right may be its own: the rest of a value would be taken for text.
        parser = NativeParser(self._options, strict=True, mends="</" not in text)
        parser.feed(text)
        events = parser.finish()
        warning = next((event.text for event in events if event.kind == "warning"), None)
        calls = [event.call for event in events if event.call is not None]
        if warning is not None or len(calls) != 1:
            problem = warning or f"one element holds one call, not {len(calls)}"
            outcome.problem = Warn(f"{problem}; nothing is called", self._begin)
            if (named := _NAME.search(text)) is not None:
                call = ToolCallRequest(tool_id=named[1], block=self._number, protocol=PROTOCOL)
                outcome.refuse(call, HOW_TO_WRITE)
            return outcome
        outcome.calls = [calls[0].model_copy(update={"block": self._number, "protocol": PROTOCOL})]
        outcome.warnings = [Warn(repair, self._begin) for repair in calls[0].repairs]
        if self._element and not closing:
            outcome.warnings.append(Warn("it has no closing tag </tool_call>; it ends behind its JSON", self._begin))
        return outcome
