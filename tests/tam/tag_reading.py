"""Reads text with the parsers of tags and sums up what they found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tavern_host.contracts.protocols import ParseEvent, ParserOptions
from tavern_host.contracts.toolcalls import ToolCallRequest
from tavern_tam.action import ActionParser
from tavern_tam.tag_parser import TagParser
from tavern_tam.tool_call import ToolCallParser


@dataclass
class Reading:
    """What a text holds: the text around its calls, the calls, and the warnings."""

    text: str = ""
    calls: list[ToolCallRequest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def called(self) -> list[tuple[str, dict[str, object]]]:
        """Each call as tool and arguments."""
        return [(call.tool_id, dict(call.arguments)) for call in self.calls]

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments of the only call."""
        (call,) = self.calls
        return dict(call.arguments)


def tag_events(pieces: Iterable[str], parser: type[TagParser]) -> list[ParseEvent]:
    """Return a parser's events with neighbouring text joined."""
    reader = parser(ParserOptions())
    found = [event for piece in pieces for event in reader.feed(piece)] + reader.finish()
    joined: list[ParseEvent] = []
    for event in found:
        if joined and _follows(joined[-1], event):
            joined[-1] = joined[-1].model_copy(update={"text": joined[-1].text + event.text})
        else:
            joined.append(event)
    return joined


def _follows(last: ParseEvent, event: ParseEvent) -> bool:
    if last.kind != "text" or event.kind != "text" or last.offset is None:
        return False
    return last.offset + len(last.text) == event.offset


def read_tags(text: str, parser: type[TagParser] = ActionParser) -> Reading:
    """Read a whole text, at once and one character at a time; both must say the same, and text stand where it says."""
    at_once = tag_events([text], parser)
    assert tag_events(text, parser) == at_once
    reading = Reading()
    for event in at_once:
        if event.kind == "text":
            assert event.offset is not None
            assert text[event.offset :].startswith(event.text)
            reading.text += event.text
        elif event.kind == "warning":
            reading.warnings.append(event.text)
        elif event.call is not None:
            reading.calls.append(event.call)
    return reading


def read_tool_call(text: str) -> Reading:
    """Read a text with the parser of `tool_call`."""
    return read_tags(text, ToolCallParser)


def action(*inputs: str, tool: str = "t") -> str:
    """Return an ACTION of the first shape."""
    return f"<ACTION><tool_id>{tool}</tool_id><inputs>{''.join(inputs)}</inputs></ACTION>"


def value(text: str, name: str = "v") -> str:
    """Return an input as it is."""
    return f'<input name="{name}">{text}</input>'
