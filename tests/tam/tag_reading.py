"""Reads text with the parsers of tags and sums up what they found."""

from __future__ import annotations

from collections.abc import Iterable

from tam_reading import Reading, joined

from tavern_host.contracts.protocols import ParseEvent, ParserOptions
from tavern_tam.action import ActionParser
from tavern_tam.tag_parser import TagParser
from tavern_tam.tool_call import ToolCallParser


def tag_events(pieces: Iterable[str], parser: type[TagParser]) -> list[ParseEvent]:
    """Return a parser's events with neighbouring text joined."""
    reader = parser(ParserOptions())
    found = [event for piece in pieces for event in reader.feed(piece)] + reader.finish()
    return joined(found)


def read_tags(text: str, parser: type[TagParser] = ActionParser) -> Reading:
    """Read a whole text, at once and one character at a time; both must say the same, and text stand where it says."""
    at_once = tag_events([text], parser)
    assert tag_events(text, parser) == at_once
    for event in at_once:
        assert event.kind != "text" or text[event.offset :].startswith(event.text)
    return Reading.of(at_once)


def read_tool_call(text: str) -> Reading:
    """Read a text with the parser of `tool_call`."""
    return read_tags(text, ToolCallParser)


def action(*inputs: str, tool: str = "t") -> str:
    """Return an ACTION of the first shape."""
    return f"<ACTION><tool_id>{tool}</tool_id><inputs>{''.join(inputs)}</inputs></ACTION>"


def value(text: str, name: str = "v") -> str:
    """Return an input as it is."""
    return f'<input name="{name}">{text}</input>'
