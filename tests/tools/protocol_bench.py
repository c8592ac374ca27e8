"""Pipelines of the first-party protocols and of small ones for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import import_module

import tavern_tam
from tavern_tools.api.protocols import ActionParser, ParseEvent, ParserOptions
from tavern_tools.api.toolcalls import ToolCallRequest
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
    """A protocol with an opening: `{{word}}` is a call in a block of its own; `{{crash}}` raises."""

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
                return events + self._release(begin if begin >= 0 else len(self._text) - self._text.endswith("{"))
            events += self._release(begin)
            if (word := self._text[2 : end - begin]) == "crash":
                raise SystemExit("out")
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


def small(name: str, parser: type[ActionParser], *openings: str) -> Stage:
    """Return a stage of a parser that needs no options."""
    return Stage(name, openings, parser, lambda error: f"{type(error).__name__}: {error}")


def first_party(options: ParserOptions | None = None) -> list[Stage]:
    """Return the stages of the text protocols that the host ships; a parser of these that raises fails the test."""
    stages = []
    for info in tavern_tam.tavern_register_action_protocols():
        module, name = info.handler.split(":")
        parser = getattr(import_module(module), name)
        if info.source == "text":
            made = Stage(info.name, info.openings, lambda parser=parser: parser(options or ParserOptions()), _raise)
            stages.append(replace(made, endings=info.endings, advice=info.advice, options=options or ParserOptions()))
    return stages


def parse(text: str, stages: Sequence[Stage] | None = None) -> list[ParseEvent]:
    """Read a text at once and by single characters; both must say the same, and text stand where it says."""
    whole = events_of([text], stages)
    assert events_of(text, stages) == whole
    for event in whole:
        if event.kind == "text" and event.offset is not None:
            assert text[event.offset :].startswith(event.text)
    return whole


def events_of(pieces: Iterable[str], stages: Sequence[Stage] | None = None) -> list[ParseEvent]:
    """Return the events of a pipeline, with neighbouring text joined."""
    pipeline = Pipeline(first_party() if stages is None else stages)
    joined: list[ParseEvent] = []
    for event in [event for piece in pieces for event in pipeline.feed(piece)] + pipeline.finish():
        last = joined[-1] if joined else event
        end = None if last.offset is None else last.offset + len(last.text)
        if last is not event and event.kind == last.kind == "text" and event.offset == end:
            joined[-1] = last.model_copy(update={"text": last.text + event.text})
        else:
            joined.append(event)
    return joined


def called(events: Iterable[ParseEvent]) -> list[tuple[str | None, str, int]]:
    """Return protocol, tool and block of each call."""
    return [(e.call.protocol, e.call.tool_id, e.call.block) for e in events if e.call is not None]


def text_of(events: Iterable[ParseEvent], kind: str = "text") -> str:
    return "".join(event.text for event in events if event.kind == kind)


def _raise(error: BaseException) -> str:
    raise error
