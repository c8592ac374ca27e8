"""The action protocols that plugins registered: text and native calls run through them, and instructions for models.

How several protocols read one text is in `pipeline`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic import JsonValue

from tavern_host.context import HookResult, PluginContext
from tavern_host.contracts.documents import to_thread_if_large
from tavern_host.contracts.errors import InvalidInput, TavernError, describe
from tavern_host.contracts.names import did_you_mean
from tavern_host.runtime.threads import run_in_thread
from tavern_tools.api.protocols import ActionParser, ActionProtocolInfo, ParseEvent, ParserOptions
from tavern_tools.api.toolcalls import ParsedText, ToolCallRequest, take_call
from tavern_tools.catalog.contributions import mend_hint
from tavern_tools.protocols.pipeline import Pipeline
from tavern_tools.protocols.stage import Stage

SETTING = "protocol"
DEFAULT = "tam"
"""The setting, and its default: by which protocol models are instructed to ask for calls."""

MOST_ON_LOOP = 4_000
"""How many characters are read at once on the event loop: the worst text takes about 2.5 µs for each."""

PATIENCE = 60.0
"""Seconds for which a text may wait for parsers in other processes."""

T = TypeVar("T")


@dataclass(frozen=True)
class Protocol:
    """A registered protocol and the plugin's answer through which its parser is opened."""

    info: ActionProtocolInfo
    contribution: HookResult[Any]

    def open(self, options: ParserOptions) -> ActionParser:
        """Return a parser for one text. Raises what the plugin raises."""
        parser: ActionParser = self.contribution.open(self.info.handler, options)
        return parser


class Protocols:
    """Collects the protocols again whenever plugins or grants have changed."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._revision = -1
        self._protocols: dict[str, Protocol] = {}
        self._failed: set[str] = set()
        self._to_report: list[tuple[str, str]] = []

    async def all(self) -> dict[str, Protocol]:
        """Return the protocols by name, in the order in which text goes through them: that in which their plugins were
        loaded, so that none takes the blocks of an earlier one."""
        revision = self._context.hooks.revision
        if revision != self._revision:
            self._protocols = await self._collect()
            self._failed.clear()
            self._revision = revision
        return self._protocols

    async def infos(self) -> list[ActionProtocolInfo]:
        """Return the protocols, in the order in which text goes through them."""
        return [protocol.info for protocol in (await self.all()).values()]

    async def parse(self, text: str, names: list[str] | None, options: ParserOptions) -> ParsedText:
        """Return the calls in `text` by the named protocols (all for text, where None), in the order of the text.

        Raises `InvalidInput` for an unknown name, and for one that is not for text.
        """
        pipeline = await self._pipeline(names, options)
        return await self._read(pipeline, len(text), partial(_read_whole, pipeline, text))

    async def parse_stream(
        self, chunks: AsyncIterator[str], names: list[str] | None, options: ParserOptions
    ) -> AsyncIterator[ParseEvent]:
        """Yield what is found in a text while it comes; see `parse`."""
        pipeline = await self._pipeline(names, options)
        async for chunk in chunks:
            for event in await self._read(pipeline, len(chunk) + pipeline.held, partial(pipeline.feed, chunk)):
                yield event
        for event in await self._read(pipeline, pipeline.held, pipeline.finish):
            yield event

    async def parse_native(self, tool_calls: list[JsonValue], aliases: dict[str, str]) -> ParsedText:
        """Return the calls in an answer's field `tool_calls`, by the first native protocol that finds some; `aliases`
        are the names that the model was given. Never raises on bad calls."""
        options = ParserOptions(aliases=aliases)
        parsed = ParsedText(text="")
        for protocol in (await self.all()).values():
            if protocol.info.source != "native":
                continue
            stage = self._stage(protocol, options)
            pipeline = Pipeline([Stage(stage.name, (), stage.open, stage.failed, is_text=False, waits=stage.waits)])
            text = json.dumps(tool_calls)
            found = await self._read(pipeline, len(text), partial(_read_whole, pipeline, text))
            parsed = ParsedText(text="", calls=found.calls, warnings=[*parsed.warnings, *found.warnings])
            if found.calls:
                break
        return parsed

    async def instructions(self, names: list[str] | None = None) -> str:
        """Return how a language model is to ask for calls by these protocols; where None, by the one that
        the setting names. Raises `InvalidInput` for an unknown name."""
        known = await self.all()
        if names is None:
            texts = [name for name, protocol in known.items() if protocol.info.source == "text"]
            chosen = str(self._context.settings.get(SETTING, DEFAULT))
            names = [chosen] if chosen in texts else texts[:1]
        protocols = [self._known(name, known) for name in dict.fromkeys(names)]
        return "\n\n".join(text for text in (p.info.instructions.strip() for p in protocols) if text)

    async def _read(self, pipeline: Pipeline, chars: int, read: Callable[[], T]) -> T:
        """Return the result of `read`, which reads so many characters, in a thread where it waits or may hold the loop
        for long; report the parsers that failed."""
        if pipeline.waits:  # as long as others like: on a thread of its own
            found = await run_in_thread(read, what="reading a text", deadline=PATIENCE)
        else:
            found = await to_thread_if_large(chars > MOST_ON_LOOP, read)
        failures, self._to_report = self._to_report, []
        for owner, message in failures:
            self._context.hooks.report(owner, message, hint=mend_hint(owner))
        return found

    async def _pipeline(self, names: list[str] | None, options: ParserOptions) -> Pipeline:
        known = await self.all()
        if names is None:
            chosen = [protocol for protocol in known.values() if protocol.info.source == "text"]
        else:
            chosen = [self._known(name, known) for name in dict.fromkeys(names)]
        for protocol in chosen:
            if protocol.info.source != "text":
                raise InvalidInput(f"the action protocol {protocol.info.name!r} is not for text")
        return Pipeline([self._stage(protocol, options) for protocol in chosen])

    def _stage(self, protocol: Protocol, options: ParserOptions) -> Stage:
        return Stage(
            name=protocol.info.name,
            openings=protocol.info.openings,
            open=lambda: protocol.open(options),
            failed=lambda error: self._why_failed(protocol, error),
            options=options,
            endings=protocol.info.endings,
            advice=protocol.info.advice,
            waits=not protocol.contribution.is_here,
        )

    def _known(self, name: str, known: dict[str, Protocol]) -> Protocol:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise InvalidInput(f'there is no action protocol "{name}"{hint}')
        return known[name]

    def _why_failed(self, protocol: Protocol, error: BaseException) -> str:
        """Return why a parser failed, in one line; the first failure of each is to be reported with its plugin."""
        name, owner = protocol.info.name, protocol.contribution.plugin
        self._context.log.error("the parser of %s (plugin %s) failed", name, owner, exc_info=error)
        if isinstance(error, TavernError):
            reason = error.message
        elif isinstance(error, Exception):
            reason = describe(error)
        else:
            reason = f"it tried to end the program ({describe(error)})"
        if name not in self._failed:
            self._failed.add(name)
            self._to_report.append((owner, f"the parser of the action protocol {name!r} failed: {reason}"))
        return reason

    async def _collect(self) -> dict[str, Protocol]:
        hooks, owners = self._context.hooks, dict[str, str]()
        return {
            info.name: Protocol(info, contribution)
            for contribution in await hooks.collect("tavern_register_action_protocols")
            for info in contribution.value
            if hooks.claim(owners, "action protocol", info.name, contribution.plugin)
        }


def _read_whole(pipeline: Pipeline, text: str) -> ParsedText:
    return _summed([*pipeline.feed(text), *pipeline.finish()])


def _summed(events: Iterable[ParseEvent]) -> ParsedText:
    """Return the text, calls and warnings of a pipeline's events."""
    rest: list[str] = []
    calls: list[ToolCallRequest] = []
    warnings: list[str] = []
    for event in events:
        if event.kind == "text":
            rest.append(event.text)
        elif event.call is not None:
            take_call(calls, event.call)
        else:
            place = f" (at character {event.offset})" if event.offset is not None else ""
            warnings.append(f"{event.text}{place}")
    return ParsedText(text="".join(rest), calls=calls, warnings=warnings)
