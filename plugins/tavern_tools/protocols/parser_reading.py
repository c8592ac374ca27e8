"""A parser at work on a part of the text, and what it has found in it so far."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tavern_host.contracts.errors import PluginFailure
from tavern_tools.api.protocols import ActionParser, ParseEvent
from tavern_tools.protocols.stage import checked_events


class Found(NamedTuple):
    """What a parser said, in order: `text` that is of no interest to it, a `block` that it refused (text too, but
    no other parser searches it), a `gap` where it returned nothing, or an `event`, which stands at a place."""

    kind: Literal["text", "block", "gap", "event"]
    begin: int
    end: int
    event: ParseEvent | None = None


@dataclass(eq=False)
class ParserReading:
    """A parser at work on the text from `begin` on: how far it was `fed`, and how far it `returned` text."""

    owner: int
    opening: re.Pattern[str]
    parser: ActionParser
    begin: int
    fed: int
    returned: int
    found: deque[Found] = field(default_factory=deque)
    blocks: dict[int, int] = field(default_factory=dict)
    took: bool = False  # whether there was a call behind the text that was returned last
    finished: bool = False

    def next(self) -> int | None:
        """Return where what it found, or may be about to find, begins; None if all that it was fed is text."""
        for item in self.found:
            if item.kind != "text":
                return item.begin
        return self.returned if self.returned < self.fed else None

    def feed(self, text: str) -> None:
        """Feed the text behind what was fed. Raises what the parser raises."""
        self.fed += len(text)
        self._take(self.parser.feed(text))

    def finish(self) -> None:
        """Feed no more. Raises what the parser raises."""
        self.finished = True
        self._take(self.parser.finish())
        if self.returned < self.fed:
            self._add("gap", self.returned, self.fed)
            self.returned = self.fed

    def _take(self, events: list[ParseEvent]) -> None:
        events = checked_events(events)
        refused = sorted(self.begin + e.offset for e in events if e.kind == "warning" and e.offset is not None)
        for event in events:
            if event.kind == "text":
                self._take_text(event, refused)
            else:
                self.took = self.took or event.kind == "call"
                self.found.append(Found("event", self.returned, self.returned, event))

    def _take_text(self, event: ParseEvent, refused: list[int]) -> None:
        if not event.text:
            return
        if event.offset is None and self.took:
            raise PluginFailure("returned text without its offset, expected one from a protocol with openings")
        begin = self.returned if event.offset is None else self.begin + event.offset
        end = begin + len(event.text)
        if end > self.fed:
            raise PluginFailure(f"returned text up to character {end - self.begin} of {self.fed - self.begin}")
        if begin < self.returned:
            self.found.append(Found("event", self.returned, self.returned, event))
            return
        if begin > self.returned:
            self._add("gap", self.returned, begin)
        place = bisect_left(refused, begin)
        if place == len(refused) or refused[place] >= end:
            self._add("text", begin, end)
        else:
            found = self.opening.search(event.text)
            block = begin + found.start() if found and begin + found.start() <= refused[place] else begin
            if begin < block:
                self._add("text", begin, block)
            self._add("block", block, end)
        self.returned = end
        self.took = False

    def _add(self, kind: Literal["text", "block", "gap"], begin: int, end: int) -> None:
        last = self.found[-1] if self.found else None
        if kind == "text" and last is not None and last.kind == "text" and last.end == begin:
            self.found[-1] = Found("text", last.begin, end)
        else:
            self.found.append(Found(kind, begin, end))
