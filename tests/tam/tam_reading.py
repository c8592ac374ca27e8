"""Reads text with the parsers of the first-party protocols and sums up what they found."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tavern_tam.parser import TamParser
from tavern_tools.api.protocols import ActionParser, ParseEvent, ParserOptions
from tavern_tools.api.toolcalls import ToolCallRequest

REQUEST, END = "<|[REQUEST_TOOL]|>", "<|[END_TOOL]|>"
TAM_PIECES = [
    *("「", "」", "始", "末", "「始」", "「末」", "「始ESCAPE」", "「末ESCAPE」", "「始ESCAPE:a」", "「末ESCAPE:a」"),
    *("»»»", "«««", ">>>", "<<<", "<", "|", "#", ",", "x", "1", "ESCAPE", "command:", "command1:「始」t「末」", "k:"),
    *("：", ":", "comment:「始」c「末」", "<think>", "</think>", "```", "~~~", "`", "\ud800", "\x00", "\ufeff"),
    *("漢字", "\n", "\n", "\r\n", " ", "\ncommand:「始」t「末」", "\ncommand1:「始」t「末」", "\na_1:「始」x「末」"),
    *("\nk:「始」", "\nk:»»»", "\nk:「始ESCAPE」", "\nfilePath:「始」x「末」", "\nfile_path:「始」y「末」"),
    *("\na1:「始」「末」", "\n# c\n", "\non_error_1:「始」continue「末」", "# 「x」\n", "```\n", "\n```\n"),
    *("```py\n", "k" * 150, "\n" * 150, " 「quoted」 "),
]
"""What blocks are made of, and what looks like it."""


@dataclass
class Reading:
    """What a text holds: the text around its calls, the calls, those that are refused, and the warnings."""

    text: str = ""
    calls: list[ToolCallRequest] = field(default_factory=list)
    refused: list[ToolCallRequest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def steps(self) -> list[tuple[int, str, dict[str, object]]]:
        """Each call as index, tool and arguments."""
        return [(call.index, call.tool_id, dict(call.arguments)) for call in self.calls]

    @property
    def called(self) -> list[tuple[str, dict[str, object]]]:
        """Each call as tool and arguments."""
        return [(call.tool_id, dict(call.arguments)) for call in self.calls]

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments of the only call."""
        (call,) = self.calls
        return dict(call.arguments)


def block(*lines: str) -> str:
    """Return a TAM block of these lines."""
    return "\n".join([REQUEST, *lines, END])


def tam(written: str) -> str:
    """Return a TAM block of `key=value|key=value`."""
    pairs = [pair.partition("=") for pair in written.split("|")]
    return block(*(f"{key}:「始」{value}「末」" for key, _, value in pairs))


def fed(text: str) -> str:
    """Return a text as a parser takes it: lone surrogates become the replacement character."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def events_of(
    pieces: Iterable[str], parser: Callable[[ParserOptions], ActionParser] = TamParser, **parameters: Sequence[str]
) -> list[ParseEvent]:
    """Feed a parser that knows these tools' parameters; return its events with text joined that was cut."""
    reader = parser(ParserOptions(parameters={tool: list(names) for tool, names in parameters.items()}))
    whole: list[ParseEvent] = []
    for event in [event for piece in pieces for event in reader.feed(piece)] + reader.finish():
        last = whole[-1] if whole else event
        if event.kind == last.kind == "text" and (last.offset or 0) + len(last.text) == event.offset:
            whole[-1] = last.model_copy(update={"text": last.text + event.text})
        else:
            whole.append(event)
    return whole


def read(
    text: str, parser: Callable[[ParserOptions], ActionParser] = TamParser, **parameters: Sequence[str]
) -> Reading:
    """Read a text, at once and one character at a time; both must say the same, and text stand where it says."""
    at_once = events_of([text], parser, **parameters)
    assert events_of(text, parser, **parameters) == at_once
    reading = Reading()
    for event in at_once:
        if event.kind == "text":
            assert fed(text)[event.offset :].startswith(event.text)
            reading.text += event.text
        elif event.kind == "warning":
            reading.warnings.append(event.text)
        elif event.call is not None:
            (reading.calls if event.call.refused is None else reading.refused).append(event.call)
    return reading


def told(reading: Reading, *beginnings: str) -> bool:
    """Return whether the warnings of a reading begin so."""
    warnings = reading.warnings
    return len(warnings) == len(beginnings) and all(map(str.startswith, warnings, beginnings))


def calls_made(function: Callable[..., object], *arguments: object) -> int:
    """Return how many calls of Python and C functions a function makes: its work, whatever the machine's load."""
    count = 0

    def counting(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event.endswith("call")

    sys.setprofile(counting)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return count
