"""Text through several action protocols at once, whole or as it comes.

A block is that of the protocol whose opening comes first: what is inside it, no other protocol searches, and none
searches thoughts (`<think>`). It knows no protocol; what the calls mean and who may make them is not decided here.
Behind a refused call all calls are refused: what looks like a call may be a part of that one's value. At the end, so
are the calls of a protocol behind which the end of a block stands that began nowhere (`endings`). A call lies in a
block that the host finds in the text itself: it begins with an opening of its protocol, or, where that has none, its
tool's id stands in the text that the parser took. A parser that returns another call is given up.

How it works: the places where a block of any protocol may begin cut the text into passages. From its opening on a
protocol's parser gets passage after passage, until it has returned the text up to the end of one. What it returned as
text is then looked through for openings of the others. All decisions fall at these places, never at the ends of the
pieces in which the text came, so the result does not depend on those. Protocols that name no openings get what the
others left, one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from operator import attrgetter

from tavern_host.contracts.errors import PluginFailure
from tavern_host.contracts.wire import without_surrogates
from tavern_tools.api.fences import LONGEST as LONGEST_FENCE
from tavern_tools.api.protocols import ParseEvent
from tavern_tools.api.thoughts import Thought
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.protocols.endings import EndWatch
from tavern_tools.protocols.fences import FenceTracker
from tavern_tools.protocols.follower import Follower
from tavern_tools.protocols.parser_reading import ParserReading
from tavern_tools.protocols.stage import PARSER_FAILURES, Stage, event_of_text
from tavern_tools.protocols.text_buffer import Openings, Places, TextBuffer


class Pipeline:
    """Reads one text; see the module. Never raises, whatever the text and the parsers. One that `waits` for a parser in
    another process is used on a thread."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.waits = any(stage.waits for stage in stages)
        owners = [stage for stage in stages if stage.openings]
        blocks = count()
        self._owners = _Owners(owners, blocks)
        self._followers = [Follower(stage, blocks) for stage in stages if not stage.openings]
        self._numbers: dict[int, int] = {}
        self._refused: ToolCallRequest | None = None
        self._watches = [EndWatch(stage) for stage in stages if stage.endings]

    @property
    def held(self) -> int:
        """How many characters came that are not returned yet, since they may belong to a block."""
        return self._owners.held

    def feed(self, text: str) -> list[ParseEvent]:
        """Take more text; return what is certain by now, with offsets in the whole text."""
        return self._follow(self._owners.feed(without_surrogates(text)))

    def finish(self) -> list[ParseEvent]:
        """Say that the text is complete; return the rest."""
        events = self._owners.finish()
        for follower in self._followers:
            events = follower.follow(events) + follower.finish()
        events = self._certain(self._numbered(_joined(events)))
        return [*events, *(event for watch in self._watches for event in watch.taken_back())]

    def _follow(self, events: list[ParseEvent]) -> list[ParseEvent]:
        for follower in self._followers:
            events = follower.follow(events)
        return self._certain(self._numbered(_joined(events)))

    def _certain(self, events: list[ParseEvent]) -> list[ParseEvent]:
        """Refuse the calls behind one that is refused."""
        for index, event in enumerate(events):
            if event.call is not None and event.call.refused is None and self._refused is not None:
                why = f"The call of {self._refused.tool_id} before it in the text was not understood; write both again"
                events[index] = event.model_copy(update={"call": event.call.model_copy(update={"refused": why})})
            elif event.call is not None and event.call.refused is not None:
                self._refused = self._refused or event.call
            for watch in self._watches:
                watch.see(events[index])
        return events

    def _numbered(self, events: list[ParseEvent]) -> list[ParseEvent]:
        """Number the blocks in the order in which they come out."""
        if not self._followers:  # they have been found in that order
            return events
        return [event if event.call is None else self._renumbered(event, event.call) for event in events]

    def _renumbered(self, event: ParseEvent, call: ToolCallRequest) -> ParseEvent:
        block = self._numbers.setdefault(call.block, len(self._numbers))
        return event.model_copy(update={"call": call.model_copy(update={"block": block})})


class _Owners:
    """The protocols that name their openings. All text before `_here` has been returned."""

    def __init__(self, stages: Sequence[Stage], blocks: Iterator[int]) -> None:
        self._stages = stages
        self._blocks = blocks
        self._openings = Openings.of(tuple(tuple(stage.openings) for stage in stages))
        self._signs = self._openings.signs("`~")
        self._thought = len(stages)
        self._text = TextBuffer()
        self._places = Places()
        self._scanned = 0  # up to where the openings are known
        self._tail = ""  # the text behind that
        self._here = 0
        self._final = False
        self._failed: set[int] = set()
        self._readings: dict[int, ParserReading] = {}
        self._searched = [0] * len(stages)  # up to where a protocol said that there is nothing of its own
        self._taking: ParserReading | None = None  # whose call was returned, while the end of its block is not known
        self._thinking: Thought | None = None
        self._thought_began = 0
        self._fences = FenceTracker()
        self._events: list[ParseEvent] = []

    @property
    def held(self) -> int:
        return self._text.end - self._here

    def feed(self, text: str) -> list[ParseEvent]:
        begin = self._here
        if begin == self._text.end and not self._readings and self._thinking is None and not self._signs.search(text):
            self._fences.follow(text)
            self._text.skip(len(text))
            self._here = self._scanned = self._text.end
            return [ParseEvent(kind="text", text=text, offset=begin)] if text else []
        self._text.append(text)
        self._scan(self._tail + text)
        return self._advance()

    def finish(self) -> list[ParseEvent]:
        self._final = True
        self._scan(self._tail)
        events = self._advance()
        if self._thinking is not None:
            text = "a thought is never closed; no calls were looked for in it"
            events.append(ParseEvent(kind="warning", text=text, offset=self._thought_began))
        return events

    def _scan(self, text: str) -> None:
        """Find the openings in `text`, which begins where the last scan ended."""
        base, position = self._scanned, 0
        while (found := self._openings.any.search(text, position)) is not None:
            begin = found.start()
            owners = tuple(o for o, opening in enumerate(self._openings.each) if opening.match(text, begin))
            self._places.append(base + begin, owners)
            position = begin + 1
        stop = len(text) if self._final else self._openings.held(text, position)
        self._scanned = base + stop
        self._tail = text[stop:]

    def _advance(self) -> list[ParseEvent]:
        while self._step():
            pass
        self._text.drop(self._here)
        self._places.drop(self._here)
        events, self._events = self._events, []
        return events

    def _step(self) -> bool:
        """Do what comes next at `_here`; return False where more text is needed."""
        if self._thinking is not None:
            return self._read_thought(self._thinking)
        if self._taking is not None:
            return self._take_on(self._taking)
        reading, live = self._first_reading()
        before = self._scanned if live is None else live + 1
        lagging = self._lagging(before)
        opening = self._next_opening(before if lagging is None else min(before, lagging.fed))
        if opening is not None:
            offset, owner, begin = opening
            if reading is None or live is None or (begin, owner) < (live, reading.owner):
                self._open(offset, owner, begin)
                return True
        if lagging is not None and (live is None or lagging.fed < live):
            self._release(self._safe_end(lagging.fed))
            return self._feed(lagging)
        if reading is not None and live is not None:
            self._release(live)
            return self._listen(reading)
        self._release(self._scanned if self._final else self._safe_end(self._scanned))
        return False

    def _safe_end(self, end: int) -> int:
        """Return up to where text before `end` can be released, if no parser found anything in it: before a fence."""
        begin = max(self._here, end - 2 * LONGEST_FENCE)
        return begin + self._fences.at_end(self._text.text(begin, end), arriving=True, cut=begin > self._here)

    # --- who reads -------------------------------------------------------------------------------------

    def _first_reading(self) -> tuple[ParserReading | None, int | None]:
        """Return the parser that found something first, or may be about to, and where."""
        first: ParserReading | None = None
        live: int | None = None
        for owner, reading in sorted(self._readings.items()):
            place = reading.next()
            if place is None:
                if reading.finished or self._places.is_of_others(reading.fed, owner):
                    self._drop(owner, reading.fed)
            elif live is None or place < live:
                first, live = reading, place
        return first, live

    def _lagging(self, before: int) -> ParserReading | None:
        """Return the parser that has not read on to `before`, though all that it has read is text."""
        idle = [reading for reading in self._readings.values() if reading.fed < before and reading.next() is None]
        return min(idle, key=attrgetter("fed")) if idle else None

    def _drop(self, owner: int, searched: int) -> None:
        del self._readings[owner]
        self._searched[owner] = max(self._searched[owner], searched)

    def _next_opening(self, before: int) -> tuple[int, int, int] | None:
        """Return the next opening that was not looked at: its offset, its protocol, and where its fence begins."""
        places = self._places
        for index in range(places.index(self._here), len(places.offsets)):
            offset = places.offsets[index]
            if offset >= before:
                break
            for owner in places.owners[index]:
                if self._is_new(owner, offset):
                    return offset, owner, self._fence_before(offset)
        return None

    def _is_new(self, owner: int, offset: int) -> bool:
        if owner == self._thought:
            return True
        return owner not in self._failed and owner not in self._readings and offset >= self._searched[owner]

    def _fence_before(self, offset: int) -> int:
        return self._here + self._fences.at_end(self._text.text(self._here, offset))

    def _open(self, offset: int, owner: int, begin: int) -> None:
        """Begin to read a block, or a thought."""
        if owner == self._thought:
            self._release(offset)
            self._thinking = Thought()
            self._thought_began = offset
            return
        self._release(begin)
        try:
            parser = self._stages[owner].open()
        except PARSER_FAILURES as error:
            self._give_up(owner, error)
            return
        reading = self._readings[owner] = ParserReading(owner, self._openings.each[owner], parser, begin, begin, begin)
        self._feed(reading, offset)

    def _feed(self, reading: ParserReading, opening: int | None = None) -> bool:
        """Feed a parser up to the next place where a block may begin; return False if there is no text for it.

        It continues with a block of its own; it is released only where one of another may begin.
        """
        begin = reading.fed
        after = self._places.after(begin if opening is None else opening)
        end = self._scanned if after is None else min(after, self._scanned)
        try:
            if begin < end:
                reading.feed(self._text.text(begin, end))
            elif self._final and not reading.finished:
                reading.finish()
            else:
                return False
        except PARSER_FAILURES as error:
            self._give_up(reading.owner, error)
        return True

    def _give_up(self, owner: int, error: BaseException) -> None:
        """Continue without a protocol whose parser failed."""
        self._failed.add(owner)
        reading = self._readings.pop(owner, None)
        if reading is not None and self._taking is reading:
            self._taking = None
            self._release(reading.fed)
        stage = self._stages[owner]
        self._events.append(ParseEvent(kind="warning", text=f"{stage.name}: its parser failed: {stage.failed(error)}"))

    # --- what is found ---------------------------------------------------------------------------------

    def _listen(self, reading: ParserReading) -> bool:
        """Take what a parser found at `_here`, or let it read on."""
        found = reading.found
        while found and found[0].kind == "text":
            found.popleft()
        if not found:
            return self._feed(reading)
        item = found.popleft()
        if item.event is not None:
            if self._emit(reading, item.event) and item.event.kind == "call":
                self._taking = reading
        elif item.kind == "block":
            self._release(item.end)
            while found and found[0].event is not None and found[0].event.kind == "warning":
                self._emit(reading, found[0].event)
                found.popleft()
            self._cut(reading)
        else:
            self._pass_over(reading, item.end)
        return True

    def _take_on(self, reading: ParserReading) -> bool:
        """Find the end of a block whose calls were returned."""
        found = reading.found
        if not found and not reading.finished:
            return self._feed(reading)
        if found and found[0].event is not None:
            self._emit(reading, found[0].event)
            found.popleft()
            return True
        if found and found[0].kind == "gap":
            self._pass_over(reading, found.popleft().end)
        self._taking = None
        return True

    def _pass_over(self, reading: ParserReading, end: int) -> None:
        self._here = end
        self._fences.break_off()
        self._cut(reading)

    def _cut(self, winner: ParserReading) -> None:
        """Restart the other parsers behind a block, but for those that had read on behind it and past a place
        where a block of another may begin."""
        for owner, reading in list(self._readings.items()):
            place = reading.next()
            if reading is winner:
                continue
            untouched = place is None or place >= self._here
            if not untouched or self._places.of_others(self._here, reading.fed, owner) is None:
                self._drop(owner, self._here)

    def _emit(self, reading: ParserReading, event: ParseEvent) -> bool:
        """Pass an event on. Give the parser up, and return False, for a call that is in no block of its protocol."""
        stage = self._stages[reading.owner]
        offset = None if event.offset is None else reading.begin + event.offset
        if event.kind == "call" and not (offset is not None and self._opens(reading, offset)):
            self._give_up(reading.owner, PluginFailure("returned a call that is not where a block of it begins"))
            return False
        self._events.append(event_of_text(event, stage, offset, reading.blocks, self._blocks))
        return True

    def _opens(self, reading: ParserReading, offset: int) -> bool:
        """Whether a block of a parser's protocol begins at a place in what it was fed and has not returned as text."""
        owner, places = reading.owner, self._places
        index = places.index(offset)
        known = index < len(places.offsets) and places.offsets[index] == offset and owner in places.owners[index]
        return known and self._here <= offset < reading.fed

    def _release(self, end: int) -> None:
        """Return the text up to `end`."""
        text = self._text.text(self._here, end)
        if text:
            self._fences.follow(text)
            self._events.append(ParseEvent(kind="text", text=text, offset=self._here))
            self._here = end

    def _read_thought(self, thought: Thought) -> bool:
        """Return a thought's text up to its end; return whether it has ended."""
        begin = self._here
        text = self._text.text(begin, self._text.end)
        stop, ended = thought.read(text, 0, final=self._final)
        if stop:
            self._events.append(ParseEvent(kind="text", text=text[:stop], offset=begin))
        self._here = begin + stop
        self._fences.break_off()
        if ended:
            self._thinking = None
            for owner, reading in list(self._readings.items()):
                if reading.fed <= self._here:
                    self._drop(owner, self._here)
        return ended


def _joined(events: list[ParseEvent]) -> list[ParseEvent]:
    """Return the events with neighbouring text as one."""
    joined: list[ParseEvent] = []
    run: list[ParseEvent] = []
    for event in events:
        if event.kind == "text" and run and not _continues(run[-1], event):
            joined.append(_one(run))
            run = []
        if event.kind == "text":
            run.append(event)
            continue
        if run:
            joined.append(_one(run))
            run = []
        joined.append(event)
    return [*joined, _one(run)] if run else joined


def _continues(before: ParseEvent, event: ParseEvent) -> bool:
    if before.offset is None or event.offset is None:
        return before.offset is event.offset
    return before.offset + len(before.text) == event.offset


def _one(run: list[ParseEvent]) -> ParseEvent:
    if len(run) == 1:
        return run[0]
    return ParseEvent(kind="text", text="".join(event.text for event in run), offset=run[0].offset)
