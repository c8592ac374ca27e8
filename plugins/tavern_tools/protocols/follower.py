"""A protocol that names no openings: it parses what the protocols before it left."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tavern_host.contracts.errors import PluginFailure
from tavern_tools.api.protocols import ActionParser, ParseEvent
from tavern_tools.protocols.stage import PARSER_FAILURES, Stage, checked_events, event_of_text


class Follower:
    """A protocol without openings: it gets the text that the protocols before it left, whatever stood between."""

    def __init__(self, stage: Stage, blocks: Iterator[int]) -> None:
        self._stage = stage
        self._blocks = blocks
        self._parser: ActionParser | None = None
        self._failed = False
        self._text = ""
        self._last = ""
        self._cursor = 0  # up to where its text and its calls account for it
        self._begins: list[int] = []  # where in the text that it was fed each piece begins
        self._offsets: list[int] = []  # and where in the whole text
        self._length = 0
        self._returned = 0
        self._took = False
        self._own_blocks: dict[int, int] = {}

    def follow(self, events: list[ParseEvent]) -> list[ParseEvent]:
        """Return the events with text replaced by what the parser makes of it."""
        followed: list[ParseEvent] = []
        for event in events:
            followed += self._read(event) if event.kind == "text" and not self._failed else [event]
        return followed

    def finish(self) -> list[ParseEvent]:
        """Return the events that the parser still holds."""
        if self._failed or self._parser is None:
            return []
        try:
            return self._owned(self._parser.finish())
        except PARSER_FAILURES as error:
            return self._give_up(error)

    def _read(self, event: ParseEvent) -> list[ParseEvent]:
        self._begins.append(self._length)
        self._offsets.append(event.offset or 0)
        self._length += len(event.text)
        self._text, self._last = self._text + event.text, event.text
        try:
            if self._parser is None:
                self._parser = self._stage.open()
            return self._owned(self._parser.feed(event.text))
        except PARSER_FAILURES as error:
            return self._give_up(error)

    def _owned(self, events: list[ParseEvent]) -> list[ParseEvent]:
        owned = []
        for event in checked_events(events):
            if event.kind == "text":
                self._returned += len(event.text)
                place = self._text.find(event.text, self._cursor)
                self._cursor = max(self._cursor, place + len(event.text)) if place >= 0 else self._cursor
            elif event.call is not None and self._stage.is_text:
                self._find(event.call.tool_id)
            self._took = self._took or event.kind == "call"
            offset = None if event.offset is None else self._original(event.offset)
            owned.append(event_of_text(event, self._stage, offset, self._own_blocks, self._blocks))
        return owned

    def _find(self, tool_id: str) -> None:
        """Find a call in the text that it took, by the tool's id or a name for it. Raises `PluginFailure`."""
        for name in (tool_id, *(name for name, id in self._stage.options.aliases.items() if id == tool_id)):
            if (place := self._text.find(name, self._cursor)) >= 0:
                self._cursor = place + len(name)
                return
        raise PluginFailure(f"returned a call of {tool_id[:100]!r}, which does not stand in the text that it took")

    def _original(self, offset: int) -> int:
        if not self._offsets:
            return offset
        index = max(0, bisect_right(self._begins, offset) - 1)
        return self._offsets[index] + offset - self._begins[index]

    def _give_up(self, error: BaseException) -> list[ParseEvent]:
        """Return the text that it has kept, as far as that is known."""
        self._failed = True
        text = f"{self._stage.name}: its parser failed: {self._stage.failed(error)}"
        kept = self._last if self._took else self._text[self._returned :]
        offset = self._original(self._length - len(kept))
        self._text = ""
        rest = [ParseEvent(kind="text", text=kept, offset=offset)] if kept else []
        return [*rest, ParseEvent(kind="warning", text=text)]
