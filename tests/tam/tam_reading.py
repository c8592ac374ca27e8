"""Reads text with a `TamParser` and sums up what it found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tavern_host.contracts.protocols import ParseEvent, ParserOptions
from tavern_host.contracts.toolcalls import ToolCallRequest
from tavern_tam.parser import TamParser

REQUEST = "<|[REQUEST_TOOL]|>"
END = "<|[END_TOOL]|>"


@dataclass
class Reading:
    """What a text holds: the text around its calls, the calls, and the warnings."""

    text: str = ""
    calls: list[ToolCallRequest] = field(default_factory=list)
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

    @classmethod
    def of(cls, events: Iterable[ParseEvent]) -> Reading:
        """Sum up what a parser found."""
        reading = cls()
        for event in events:
            if event.kind == "text":
                reading.text += event.text
            elif event.kind == "warning":
                reading.warnings.append(event.text)
            elif event.call is not None:
                reading.calls.append(event.call)
        return reading


def block(*lines: str) -> str:
    """Return a TAM block of these lines."""
    return "\n".join([REQUEST, *lines, END])


def events_of(pieces: Iterable[str], **parameters: Sequence[str]) -> list[ParseEvent]:
    """Feed a parser that knows these tools' parameters; return its events with text joined that was cut."""
    parser = TamParser(ParserOptions(parameters={tool: list(names) for tool, names in parameters.items()}))
    found = [event for piece in pieces for event in parser.feed(piece)] + parser.finish()
    return joined(found)


def joined(events: Iterable[ParseEvent]) -> list[ParseEvent]:
    """Return events with text joined that was cut."""
    whole: list[ParseEvent] = []
    for event in events:
        if event.kind == "text" and whole and follows(whole[-1], event):
            whole[-1] = whole[-1].model_copy(update={"text": whole[-1].text + event.text})
        else:
            whole.append(event)
    return whole


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


def follows(earlier: ParseEvent, event: ParseEvent) -> bool:
    """Return whether two texts stand side by side in the text that was fed."""
    return earlier.kind == "text" and (earlier.offset or 0) + len(earlier.text) == event.offset


def read(text: str, **parameters: Sequence[str]) -> Reading:
    """Read a whole text, all at once and one character at a time; both must say the same."""
    at_once = events_of([text], **parameters)
    assert events_of(text, **parameters) == at_once
    return Reading.of(at_once)
