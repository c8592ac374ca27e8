"""The ends of blocks that stand behind calls where no block began: a value that holds such an end was cut there."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_tools.api.protocols import ParseEvent
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.protocols.stage import Stage
from tavern_tools.protocols.text_buffer import Openings


class EndWatch:
    """Watches the text behind the calls of one protocol."""

    def __init__(self, stage: Stage) -> None:
        self._name, self._advice = stage.name, stage.advice
        self._last = tuple(ending[:-1] for ending in stage.endings if ending.endswith("\n"))
        endings = tuple(ending for ending in stage.endings if not ending.endswith("\n"))
        both = Openings.of((tuple(stage.openings), endings))
        self._begins, self._ends = both.each[:2]
        self._longest = both.longest
        self._calls: list[tuple[ParseEvent, ToolCallRequest]] = []
        self._behind: str | None = None  # the end of the text behind the latest call, None where a block begins in it
        self._end: int | None = None  # where in the text

    def see(self, event: ParseEvent) -> None:
        """Take an event of the text."""
        if event.call is not None:
            if event.call.protocol == self._name:
                self._calls += [(event, event.call)] if event.call.refused is None else []
                self._behind = "" if event.call.refused is None else None
            elif self._behind is not None:
                self._behind = ""
        elif event.kind == "text" and self._behind is not None and self._end is None:
            text = self._behind + event.text
            begin, end = self._begins.search(text), self._ends.search(text)
            if end is not None and (begin is None or end.start() < begin.start()):
                self._end = (event.offset or 0) + end.end() - len(self._behind)
            self._behind = None if begin is not None else text[-self._longest :]

    def taken_back(self) -> Iterator[ParseEvent]:
        """Yield the calls once more, refused, where an end was found behind one of them."""
        ends_so = bool(self._last) and self._behind is not None and self._behind.rstrip().endswith(self._last)
        if self._end is None and not ends_so:
            return
        why = "the end of a block stands behind it, where none began: a value that holds such an end itself was cut"
        yield ParseEvent(kind="warning", text=f"{self._name}: {why}; nothing is called", offset=self._end)
        for event, call in self._calls:
            changed = {"refused": f"{why[0].upper()}{why[1:]}. {self._advice}", "arguments": {}, "repairs": []}
            yield event.model_copy(update={"call": call.model_copy(update=changed)})
