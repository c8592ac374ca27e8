"""The action protocols that plugins registered, and text run through them (DESIGN §5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tavern_host.context import Contribution, PluginContext
from tavern_host.contracts.errors import InvalidInput, describe
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.protocols import ActionParser, ActionProtocolInfo, ParseEvent, ParserOptions
from tavern_host.contracts.tools import ParsedText, ToolCallRequest

_STATE = "tools.protocols"


@dataclass(frozen=True)
class Protocol:
    """A registered protocol and the plugin's answer through which its parser is opened."""

    info: ActionProtocolInfo
    contribution: Contribution[Any]

    def parse(self, text: str, options: ParserOptions) -> list[ParseEvent]:
        """Return all events of a whole text."""
        parser: ActionParser = self.contribution.open(self.info.handler, options)
        return [*parser.feed(text), *parser.finish()]


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

    async def all(self) -> dict[str, Protocol]:
        """Return the protocols by name, in order of registration."""
        revision = self._context.hooks.revision
        if revision != self._revision:
            self._protocols = await self._collect()
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
                events = protocol.parse(text, options)
            except Exception as error:
                # A parser must not raise; one that does costs its own findings, not the others'.
                owner = protocol.contribution.plugin
                self._context.log.exception("the parser of %s (plugin %s) failed", protocol.info.name, owner)
                warnings.append(f"{protocol.info.name}: its parser failed: {describe(error)}")
                continue
            text = "".join(event.text for event in events if event.kind == "text")
            for event in events:
                if event.kind == "call" and event.call is not None:
                    name = event.call.protocol or protocol.info.name
                    calls.append(event.call.model_copy(update={"protocol": name}))
                elif event.kind == "warning":
                    place = f" (at character {event.offset})" if event.offset is not None else ""
                    warnings.append(f"{protocol.info.name}: {event.text}{place}")
        return ParsedText(text=text, calls=calls, warnings=warnings)

    async def instructions(self) -> str:
        """Return what a language model is told about writing calls, for all protocols."""
        texts = [p.info.instructions.strip() for p in (await self.all()).values()]
        return "\n\n".join(text for text in texts if text)

    async def _collect(self) -> dict[str, Protocol]:
        found: dict[str, Protocol] = {}
        for contribution in await self._context.hooks.collect("tavern_register_action_protocols"):
            for info in contribution.value or ():
                earlier = found.setdefault(info.name, Protocol(info, contribution))
                if earlier.contribution is not contribution:
                    self._context.log.warning(
                        "the action protocol %s is registered by %s and %s; that of %s is used",
                        *(info.name, earlier.contribution.plugin, contribution.plugin, earlier.contribution.plugin),
                    )
        return found

    def _chosen(self, known: dict[str, Protocol], names: list[str] | None) -> list[Protocol]:
        if names is None:
            return list(known.values())
        for name in names:
            if name not in known:
                raise InvalidInput(f'there is no action protocol "{name}"{did_you_mean(name, known)}')
        return [known[name] for name in names]
