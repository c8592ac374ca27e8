"""One protocol of a pipeline, and its parser's events as those of the whole text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tavern_host.contracts.errors import PluginFailure
from tavern_tools.api.protocols import ActionParser, ParseEvent, ParserOptions, understood

PARSER_FAILURES = (Exception, SystemExit, KeyboardInterrupt)
"""What a parser may raise; the text is then parsed without it."""


@dataclass(frozen=True)
class Stage:
    """A protocol that text goes through: `open` gives a new parser, `failed` says in a line why one raised. `options`
    say what is known of the tools. What is no text is the JSON of native calls. The parser of one that `waits` is in
    another process."""

    name: str
    openings: Sequence[str]
    open: Callable[[], ActionParser]
    failed: Callable[[BaseException], str]
    options: ParserOptions = field(default_factory=ParserOptions)
    endings: Sequence[str] = ()
    advice: str = ""
    is_text: bool = True
    waits: bool = False


def checked_events(events: object) -> list[ParseEvent]:
    """Return a parser's answer. Raises `PluginFailure` if it is none."""
    if not isinstance(events, list):
        raise PluginFailure(f"returned {type(events).__name__}, expected a list of ParseEvent")
    for event in events:
        if not isinstance(event, ParseEvent):
            raise PluginFailure(f"returned a list with {type(event).__name__}, expected a list of ParseEvent")
    return events


def event_of_text(
    event: ParseEvent, stage: Stage, offset: int | None, own: dict[int, int], blocks: Iterator[int]
) -> ParseEvent:
    """Return a parser's event as one of the whole text: its offset there, its block's number, and whose it is."""
    if event.kind == "warning":
        return ParseEvent(kind="warning", text=f"{stage.name}: {event.text}", offset=offset)
    call = event.call
    if call is None:
        return ParseEvent(kind=event.kind, text=event.text, offset=offset)
    block = own.get(call.block)
    if block is None:
        block = own[call.block] = next(blocks)
    tool_id = stage.options.aliases.get(call.tool_id, call.tool_id)
    if call.block != block or call.protocol is None or call.tool_id != tool_id:
        call = call.model_copy(update={"block": block, "protocol": call.protocol or stage.name, "tool_id": tool_id})
    call = understood(call, stage.options, stage.advice)
    same = call is event.call and offset == event.offset
    return event if same else ParseEvent(kind="call", call=call, offset=offset)
