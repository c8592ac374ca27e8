"""Pipelines of the first-party protocols and of small ones for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module

import tavern_tam
from tavern_host.contracts.protocols import ActionParser, ActionProtocolInfo, ParseEvent, ParserOptions
from tavern_host.contracts.toolcalls import ToolCallRequest
from tavern_tools.protocols.pipeline import Pipeline
from tavern_tools.protocols.stage import Stage


class Bangs:
    """A protocol without openings: `!word` is a call; `!crash` raises."""

    def __init__(self) -> None:
        self._blocks = 0

    def feed(self, text: str) -> list[ParseEvent]:
        events = []
        for word in text.split(" "):
            if word == "!crash":
                raise RuntimeError("I give up")
            if word.startswith("!"):
                events.append(ParseEvent(kind="call", call=ToolCallRequest(tool_id=word[1:], block=self._blocks)))
                self._blocks += 1
            else:
                events.append(ParseEvent(kind="text", text=word))
        return events

    def finish(self) -> list[ParseEvent]:
        return []


class Braces:
    """A protocol with an opening: `{{word}}` is a call in a block of its own."""

    def __init__(self) -> None:
        self._text = ""
        self._base = 0
        self._blocks = 0

    def feed(self, text: str) -> list[ParseEvent]:
        self._text += text
        events = []
        while True:
            begin = self._text.find("{{")
            end = self._text.find("}}", begin)
            if begin < 0 or end < 0:
                stop = begin if begin >= 0 else len(self._text) - self._text.endswith("{")
                return events + self._release(stop)
            events += self._release(begin)
            word = self._text[2 : end - begin]
            call = ToolCallRequest(tool_id=word, block=self._blocks)
            self._blocks += 1
            events.append(ParseEvent(kind="call", call=call, offset=self._base))
            self._drop(end - begin + 2)

    def finish(self) -> list[ParseEvent]:
        return self._release(len(self._text))

    def _release(self, stop: int) -> list[ParseEvent]:
        text, offset = self._text[:stop], self._base
        self._drop(stop)
        return [ParseEvent(kind="text", text=text, offset=offset)] if text else []

    def _drop(self, stop: int) -> None:
        self._text = self._text[stop:]
        self._base += stop


class Crashing(Braces):
    """As Braces, but `{{crash}}` raises."""

    def feed(self, text: str) -> list[ParseEvent]:
        events = super().feed(text)
        if any(event.call is not None and event.call.tool_id == "crash" for event in events):
            raise SystemExit("out")
        return events


def failed(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def small(name: str, parser: type[ActionParser], *openings: str) -> Stage:
    """Return a stage of a parser that needs no options."""
    return Stage(name, openings, parser, failed)


def first_party() -> list[Stage]:
    """Return the stages of the text protocols that the host ships; a parser of these that raises fails the test."""
    return [_stage(*info.handler.split(":"), info.name, info.openings) for info in _infos() if info.source == "text"]


def parse(text: str, stages: Sequence[Stage] | None = None) -> list[ParseEvent]:
    """Read a text at once and by single characters; both must say the same, and text stand where it says."""
    whole = events_of([text], stages)
    assert events_of(text, stages) == whole
    for event in whole:
        if event.kind == "text" and event.offset is not None:
            assert text[event.offset :].startswith(event.text)
    return whole


def events_of(pieces: Iterable[str], stages: Sequence[Stage] | None = None) -> list[ParseEvent]:
    """Return what a pipeline finds, with neighbouring text joined."""
    pipeline = Pipeline(first_party() if stages is None else stages)
    joined: list[ParseEvent] = []
    for event in [event for piece in pieces for event in pipeline.feed(piece)] + pipeline.finish():
        if joined and _goes_on(joined[-1], event):
            joined[-1] = joined[-1].model_copy(update={"text": joined[-1].text + event.text})
        else:
            joined.append(event)
    return joined


def called(events: Iterable[ParseEvent]) -> list[tuple[str | None, str, int]]:
    """Return protocol, tool and block of each call."""
    return [(e.call.protocol, e.call.tool_id, e.call.block) for e in events if e.call is not None]


def text_of(events: Iterable[ParseEvent]) -> str:
    return "".join(event.text for event in events if event.kind == "text")


def warnings_of(events: Iterable[ParseEvent]) -> list[str]:
    return [event.text for event in events if event.kind == "warning"]


def _infos() -> list[ActionProtocolInfo]:
    return tavern_tam.tavern_register_action_protocols()


def _stage(module: str, name: str, protocol: str, openings: list[str]) -> Stage:
    parser = getattr(import_module(module), name)
    return Stage(protocol, openings, lambda: parser(ParserOptions()), _raise)


def _raise(error: BaseException) -> str:
    raise error


def _goes_on(last: ParseEvent, event: ParseEvent) -> bool:
    if last.kind != "text" or event.kind != "text" or last.offset is None:
        return last.kind == event.kind == "text" and last.offset is event.offset
    return last.offset + len(last.text) == event.offset
