"""One call that is written in tags, from behind its opening tag on, with its repairs.

What the formats leave open is decided so:

- Outside CDATA a value is verbatim but for its entities; where it begins with a line break, that one and the last
  are no part of it. Around a CDATA section blanks do not count.
- A value ends at the first closing tag of its element that is outside CDATA. One that holds another opening tag of a
  parameter is refused: it is not clear whether it is closed.
- A value is unclosed if the call's own closing tag comes (that of a call within the value is content), and then the
  text ends. It then ends before the next tag of the call. Where another call begins before the text ends, it may be
  part of the value, so that nothing is called.
- Where the text ends within a value, it was cut short, and nothing is called.
- Nothing is called either where something else stands between the elements, or one is given twice with different
  values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from tavern_tam.tags import CDATA, CDATA_END, MARK, TAG, Tag, decoded, held_tag, tag_of
from tavern_tam.window import UNNAMED, Outcome, Warn, Window, behind_blanks
from tavern_tools.api.toolcalls import ToolCallRequest

PARAMETERS = frozenset({"input", "param", "parameter"})
LISTS = frozenset({"inputs", "params", "parameters"})

HOW_TO_WRITE = (
    "Write the element again, with each parameter once, nothing else between the parameters, and a value that holds "
    "tags or code within <![CDATA[ and ]]> (]]> within one as ]]]]><![CDATA[>)"
)
"""The advice to a model whose element was refused."""

_MOST_STRAY = 500
_SHOWN = 60
_COMMENT, _COMMENT_END = "<!--", "-->"
_RETRIES = re.compile("[0-9]|10")
_FIRST_BREAK = re.compile(r"\r?\n")
_LAST_BREAK = re.compile(r"\r?\n[ \t]*\Z")


@dataclass(frozen=True)
class Grammar:
    """How a protocol writes a call: the words of its element, and the compared names of the elements with the id of
    the `tool`; where there are none, the attribute `name` is the id. `options` are the elements that say how the call
    is made, and `wrappers` those that these may stand in. Where it `has_prefix`, JSON behind the words and a colon is
    a call too."""

    protocol: str
    words: tuple[str, ...]
    tool: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()
    has_prefix: bool = False

    @property
    def root(self) -> str:
        """The compared name of a call's element."""
        return "".join(self.words)

    def opens(self, tag: Tag) -> bool:
        """Whether a call begins with `tag`."""
        return tag.name == self.root and not tag.closing and (bool(self.tool) or "name" in tag.attributes)

    def opens_json(self, tag: Tag) -> bool:
        """Whether a call that is written as JSON may begin with `tag`."""
        return tag.name == self.root and not (tag.closing or tag.empty or self.tool or tag.attributes)


@dataclass(slots=True)
class Unclosed:
    """What is known not to be closed: values of an element that begin before an offset, and CDATA sections that
    begin behind one. It keeps many unclosed values from being read to the end of the text each."""

    values: dict[str, float] = field(default_factory=dict)
    cdata: float = float("inf")


@dataclass(slots=True, eq=False)
class _Value:
    """An open value; `pieces` are its text so far, each with whether it is verbatim. `key` is None where the element
    names the tool. An `unclosed` one is known to have no closing tag of its own. `depth` counts the calls within it
    that are open; `others` says that another call began behind the end of the value's own."""

    element: str
    key: str | None
    offset: int
    mark: int
    unclosed: bool
    pieces: list[tuple[bool, str]] = field(default_factory=list)
    cdata: int | None = None
    verbatim: bool = False
    nested: bool = False
    depth: int = 0
    call_ended: bool = False
    others: bool = False


class TagBlock:
    """Reads one call, the `number`th of the text, from a window."""

    def __init__(self, window: Window, grammar: Grammar, opening: Tag, unclosed: Unclosed, number: int) -> None:
        self._window = window
        self._grammar = grammar
        self._unclosed = unclosed
        self._number = number
        self._begin = window.offset - len(opening.text)
        self._parts = [opening.text]
        self._certain = (1, window.offset)  # behind the last part that was understood: index in `_parts`, offset
        self._value: _Value | None = None
        self._in_comment = False
        self._in_list = False
        self._list_ended = False
        self._understood = self._ended = opening.empty
        self._repaired = False
        self._stray: tuple[int, int] | None = None  # where what is not understood begins, like `_certain`
        self._tool_id = None if grammar.tool else opening.attributes["name"]
        self._arguments: dict[str, str] = {}
        self._options: dict[str, Any] = {}
        self._written: dict[str, str] = {}  # what the options say
        self._warnings: list[Warn] = []
        self._problem: Warn | None = None

    def read(self) -> Outcome | None:
        """Read on; return the finished block, with the window standing behind it, or None for more text."""
        while not self._ended:
            before = self._window.offset, self._value, self._in_comment, self._in_list
            if self._in_comment:
                self._read_comment()
            elif self._value is not None:
                self._read_value(self._value)
            else:
                self._read_gap()
            after = self._window.offset, self._value, self._in_comment, self._in_list
            if before == after and not self._ended:
                return None
        return self._outcome()

    # --- between the elements --------------------------------------------------------------------------

    def _read_gap(self) -> None:
        window = self._window
        self._take(behind_blanks(window.data, window.position))
        data, begin = window.data, window.position
        if self._stray is not None and window.offset - self._stray[1] > _MOST_STRAY:
            self._end_here()
        elif begin == len(data):
            if window.final:
                self._end_here()
        elif data.startswith(_COMMENT, begin):
            self._flush_stray()
            self._take(begin + len(_COMMENT))
            self._in_comment = True
        elif (found := TAG.match(data, begin)) is not None:
            self._tag_in_gap(tag_of(found))
        elif window.final or held_tag(data, begin) != begin:
            stop = data.find("<", begin + 1)
            self._ignore(stop if stop >= 0 else len(data))

    def _ignore(self, stop: int) -> None:
        """Pass over what is not understood: a little of it between the elements, but no call begins with it."""
        if not self._understood:
            self._end_here()
            return
        if self._stray is None:
            self._stray = len(self._parts), self._window.offset
        self._take(stop)

    def _flush_stray(self) -> None:
        if self._stray is not None:
            index, offset = self._stray
            self._refuse(f"not understood: {_shown(''.join(self._parts[index:]))}", offset)
            self._stray = None

    def _read_comment(self) -> None:
        window = self._window
        end = window.data.find(_COMMENT_END, window.position)
        if end >= 0:
            self._take(end + len(_COMMENT_END))
            self._in_comment = False
            self._certain = len(self._parts), window.offset
        elif window.final:
            self._refuse("the text ends inside a comment", self._begin)
            self._take(len(window.data))
            self._ended = True
        else:
            self._take(max(window.position, len(window.data) - len(_COMMENT_END) + 1))

    def _tag_in_gap(self, tag: Tag) -> None:
        grammar, offset = self._grammar, self._window.offset
        if grammar.opens(tag):
            self._end_here()
            return
        end = self._window.position + len(tag.text)
        ends = tag.name == grammar.root and tag.closing
        is_option = tag.name in grammar.options and not self._in_list
        begins = (tag.name in PARAMETERS or tag.name in grammar.tool or self._in_list or is_option) and not tag.closing
        if not (ends or begins or tag.name in LISTS or tag.name in grammar.wrappers):
            if self._understood and tag.name in PARAMETERS:
                self._refuse(f"{_shown(tag.text)} closes nothing", offset)
            self._ignore(end)
            return
        self._flush_stray()
        self._take(end)
        if ends:
            if self._in_list:
                self._warn("the list of parameters is not closed", offset)
            self._understood = self._ended = True
        elif tag.name in LISTS:
            self._in_list = not tag.closing and not tag.empty
            self._list_ended = not self._in_list
        elif tag.name in PARAMETERS:
            self._open(tag, tag.attributes.get("name", "").strip())
            if not tag.attributes.get("name", "").strip():
                self._refuse(f"a parameter without a name: {_shown(tag.text)}", offset)
        elif tag.name in grammar.tool:
            self._open(tag, None)
        elif is_option:
            self._open(tag, tag.name)
        elif tag.name not in grammar.wrappers or self._in_list:
            self._refuse(f"{_shown(tag.text)} is no parameter; those are written <input name=…>", offset)
        self._understood = True
        self._certain = len(self._parts), self._window.offset

    def _end_here(self) -> None:
        """End a call that has no closing tag behind the last part of it that was understood."""
        self._ended = True
        whole = self._tool_id is not None and not self._in_list and not self._repaired
        complete = whole and (self._arguments or self._list_ended)
        if self._problem is None and self._understood and not complete:
            self._refuse("it breaks off before it is complete", self._begin)
        index, offset = self._certain
        self._stray = None
        after = self._parts[index:]
        del self._parts[index:]
        self._window.rewind(offset, after)
        if self._problem is None and self._understood:
            element = "_".join(self._grammar.words)
            self._warn(f"it has no closing tag </{element}>; it ends behind its last value", self._begin)

    # --- values ----------------------------------------------------------------------------------------

    def _open(self, tag: Tag, key: str | None) -> None:
        offset = self._window.offset
        unclosed = offset < self._unclosed.values.get(tag.name, -1)
        value = _Value(tag.name, key, offset, len(self._parts), unclosed)
        if tag.empty:
            self._close(value)
        else:
            self._value = value

    def _read_value(self, value: _Value) -> None:
        window = self._window
        if value.cdata is not None:
            self._read_cdata(value)
            return
        found = MARK.search(window.data, window.position)
        if found is None:
            stop = len(window.data) if window.final else held_tag(window.data, window.position)
            value.pieces.append((value.verbatim, self._take(stop)))
            if window.final:
                self._value_at_end(value)
            return
        value.pieces.append((value.verbatim, self._take(found.start())))
        if found["cdata"] is None:
            self._tag_in_value(value, tag_of(found))
            return
        offset = window.offset
        self._take(found.end())
        if offset < self._unclosed.cdata:
            value.cdata = offset
        else:
            value.verbatim = True
            self._warn(f"{CDATA} without {CDATA_END}; it ends with the value", offset)

    def _read_cdata(self, value: _Value) -> None:
        window = self._window
        end = window.data.find(CDATA_END, window.position)
        if end >= 0:
            value.pieces.append((True, self._take(end)))
            self._take(end + len(CDATA_END))
            value.cdata = None
        elif window.final:
            assert value.cdata is not None
            self._unclosed.cdata = value.cdata
            self._read_again(value)
        else:
            stop = max(window.position, len(window.data) - len(CDATA_END) + 1)
            value.pieces.append((True, self._take(stop)))

    def _tag_in_value(self, value: _Value, tag: Tag) -> None:
        """Handle a tag in an open value: most are content."""
        grammar = self._grammar
        own = tag.name == value.element
        if own and tag.closing:
            self._take(self._window.position + len(tag.text))
            self._close(value)
            return
        if value.key is None or (value.unclosed and value.depth == 0 and self._is_structure(tag)):
            self._warn(f"{self._what(value)} is not closed; it ends before {_shown(tag.text)}", value.offset)
            self._repaired = True
            self._close(value)
            if tag.closing and tag.name in PARAMETERS:
                self._take(self._window.position + len(tag.text))
            return
        self._take(self._window.position + len(tag.text))
        if grammar.opens(tag):
            value.others |= value.call_ended
            value.depth += not tag.empty
        elif tag.name == grammar.root and tag.closing:
            value.call_ended = value.call_ended or value.depth == 0
            value.depth = max(0, value.depth - 1)
        if own and "name" in tag.attributes and not tag.empty:
            value.nested = True
        value.pieces.append((value.verbatim, tag.text))

    def _is_structure(self, tag: Tag) -> bool:
        if tag.name in PARAMETERS or tag.name in self._grammar.tool:
            return tag.closing or tag.name in self._grammar.tool or "name" in tag.attributes
        return tag.closing and (tag.name in LISTS or tag.name == self._grammar.root)

    def _value_at_end(self, value: _Value) -> None:
        if value.unclosed or value.others or not value.call_ended:
            self._refuse(f"the text ends inside {self._what(value)}", value.offset)
            self._ended = True
        else:
            self._unclosed.values[value.element] = float("inf")
            self._read_again(value)

    def _read_again(self, value: _Value) -> None:
        """Go back to where `value` began, now that more is known of what is not closed."""
        read = self._parts[value.mark :]
        del self._parts[value.mark :]
        self._window.rewind(value.offset, read)
        self._warnings = [warning for warning in self._warnings if warning.offset < value.offset]
        unclosed = value.offset < self._unclosed.values.get(value.element, -1)
        self._value = _Value(value.element, value.key, value.offset, value.mark, unclosed)

    def _close(self, value: _Value) -> None:
        text = _text_of(value.pieces)
        if self._repaired and value.unclosed:
            text = text.rstrip()
        self._value = None
        self._certain = len(self._parts), self._window.offset
        if value.key is None:
            if self._tool_id is not None:
                self._refuse("it names two tools", value.offset)
            self._tool_id = text.strip()
            return
        if value.element in self._grammar.options:
            self._set_option(value, text.strip())
            return
        if value.nested:
            self._refuse(f"{self._what(value)} holds the tag of a parameter; such a value is {CDATA}…", value.offset)
        if value.others:
            self._refuse(f"{self._what(value)} holds the end of its call and another call", value.offset)
        if self._arguments.setdefault(value.key, text) != text:
            self._refuse(f"{value.key!r} is given twice, with different values", value.offset)

    def _set_option(self, value: _Value, text: str) -> None:
        if self._written.setdefault(value.element, text) != text:
            self._refuse(f"{value.element} is given twice, with different values", value.offset)
        if value.element != "retry":
            self._options["request_id"] = text or None
        elif _RETRIES.fullmatch(text):
            self._options["retry"] = int(text)
        else:
            self._warn(f"retry is a number from 0 to 10, not {_shown(text)}; the call is not tried again", value.offset)

    # --- what comes of it ------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        outcome = Outcome(self._begin, "".join(self._parts))
        tool_id = (self._tool_id or "").strip()
        self._flush_stray()
        if self._problem is None and not tool_id and self._understood:
            self._refuse("it names no tool", self._begin)
        if self._problem is not None:
            outcome.problem = Warn(f"{self._problem.text}; nothing is called", self._problem.offset)
        if self._understood and (self._problem is None or tool_id or self._arguments):
            call = ToolCallRequest(
                tool_id=tool_id or UNNAMED,
                arguments=dict(self._arguments) if self._problem is None else {},
                block=self._number,
                protocol=self._grammar.protocol,
                **self._options,
            )
            outcome.calls, outcome.warnings = [call], self._warnings
            outcome.refuse(call, HOW_TO_WRITE)
        return outcome

    def _what(self, value: _Value) -> str:
        return "the tool's id" if value.key is None else f"the value of {value.key!r}"

    def _take(self, end: int) -> str:
        text = self._window.take(end)
        if text:
            self._parts.append(text)
        return text

    def _warn(self, text: str, offset: int) -> None:
        self._warnings.append(Warn(text, offset))

    def _refuse(self, text: str, offset: int) -> None:
        if self._problem is None:
            self._problem = Warn(text, offset)


def _text_of(pieces: list[tuple[bool, str]]) -> str:
    """Return the text of a value, as the decisions above say."""
    runs = [(verbatim, "".join(text for _, text in run)) for verbatim, run in groupby(pieces, key=itemgetter(0))]
    if any(verbatim for verbatim, _ in runs):
        return "".join(text if verbatim else decoded(text) for verbatim, text in runs if verbatim or text.strip())
    text = runs[0][1] if runs else ""
    first = _FIRST_BREAK.match(text)
    if first is not None:
        text = _LAST_BREAK.sub("", text[first.end() :])
    return decoded(text)


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _SHOWN else line[:_SHOWN] + "…")
