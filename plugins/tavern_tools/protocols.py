"""The action protocols that plugins registered, and text run through them (DESIGN §5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tavern_host.context import Contribution, PluginContext
from tavern_host.contracts.errors import InvalidInput, PluginFailure, TavernError, describe
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.protocols import ActionParser, ActionProtocolInfo, ParseEvent, ParserOptions
from tavern_host.contracts.tools import ParsedText, ToolCallRequest
from tavern_tools.contributions import in_load_order, mend_hint

_STATE = "tools.protocols"


@dataclass(frozen=True)
class Protocol:
    """A registered protocol and the plugin's answer through which its parser is opened."""

    info: ActionProtocolInfo
    contribution: Contribution[Any]

    def parse(self, text: str, options: ParserOptions) -> ParsedText:
        """Return what is found in a whole text. Raises what the parser raises, be it `SystemExit`."""
        parser: ActionParser = self.contribution.open(self.info.handler, options)
        rest: list[str] = []
        calls: list[ToolCallRequest] = []
        warnings: list[str] = []
        for event in [*parser.feed(text), *parser.finish()]:
            if not isinstance(event, ParseEvent):
                raise PluginFailure(f"returned a list with {type(event).__name__}, expected a list of ParseEvent")
            if event.kind == "text":
                rest.append(event.text)
            elif event.kind == "call" and event.call is not None:
                calls.append(event.call.model_copy(update={"protocol": event.call.protocol or self.info.name}))
            elif event.kind == "warning":
                place = f" (at character {event.offset})" if event.offset is not None else ""
                warnings.append(f"{self.info.name}: {event.text}{place}")
        return ParsedText(text="".join(rest), calls=calls, warnings=warnings)


def protocols_of(context: PluginContext) -> Protocols:
    """Return the protocols that the parts of this plugin share in one host."""
    protocols = context.state.get(_STATE)
    if not isinstance(protocols, Protocols):
        protocols = context.state[_STATE] = Protocols(context)
    return protocols


class Protocols:
    """Collects the protocols again whenever plugins or grants have changed."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._revision = -1
        self._protocols: dict[str, Protocol] = {}
        self._failed: set[str] = set()

    async def all(self) -> dict[str, Protocol]:
        """Return the protocols by name, in the order in which text goes through them: that of hooks."""
        revision = self._context.hooks.revision
        if revision != self._revision:
            self._protocols = await self._collect()
            self._failed.clear()
            self._revision = revision
        return self._protocols

    async def parse(self, text: str, names: list[str] | None, parameters: dict[str, list[str]]) -> ParsedText:
        """Return the calls in `text` by the named protocols (all, where None), one protocol after the other.

        Each gets the text that the one before left over. Raises `InvalidInput` for an unknown name.
        """
        options = ParserOptions(parameters=parameters)
        calls: list[ToolCallRequest] = []
        warnings: list[str] = []
        for protocol in self._chosen(await self.all(), names):
            try:
                found = protocol.parse(text, options)
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                # A parser must not raise; one that does costs its own findings, not the others'.
                warnings.append(f"{protocol.info.name}: its parser failed: {self._why_failed(protocol, error)}")
                continue
            text = found.text
            calls += found.calls
            warnings += found.warnings
        return ParsedText(text=text, calls=calls, warnings=warnings)

    async def instructions(self) -> str:
        """Return what a language model is told about writing calls, for all protocols."""
        texts = [p.info.instructions.strip() for p in (await self.all()).values()]
        return "\n\n".join(text for text in texts if text)

    def _why_failed(self, protocol: Protocol, error: BaseException) -> str:
        """Return why a parser failed, in one line; the first failure of each is reported with its plugin."""
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
            message = f"the parser of the action protocol {name!r} failed: {reason}"
            self._context.hooks.report(owner, message, hint=mend_hint(owner))
        return reason

    async def _collect(self) -> dict[str, Protocol]:
        contributions = await self._context.hooks.collect("tavern_register_action_protocols")
        kept: dict[str, Protocol] = {}
        for contribution in await in_load_order(self._context, contributions):
            for info in contribution.value:
                first = kept.setdefault(info.name, Protocol(info, contribution))
                if first.info is not info:
                    self._report_taken(info.name, contribution.plugin, first.contribution.plugin)
        return {info.name: kept[info.name] for contribution in contributions for info in contribution.value}

    def _report_taken(self, name: str, plugin: str, first: str) -> None:
        if first == plugin:
            message, hint = f"the action protocol {name!r} is registered twice; the first is used", "remove one"
        else:
            message = f"the action protocol {name!r} is not used: it is {first}'s already, and {first} keeps it"
            hint = "choose another name"
        self._context.hooks.report(plugin, message, hint=hint)

    def _chosen(self, known: dict[str, Protocol], names: list[str] | None) -> list[Protocol]:
        if names is None:
            return list(known.values())
        for name in names:
            if name not in known:
                raise InvalidInput(f'there is no action protocol "{name}"{did_you_mean(name, known)}')
        return [known[name] for name in names]
