"""Action protocols: how text asks for tool calls. A parser is fed text as it arrives and never raises on it."""

from __future__ import annotations

from typing import Literal, Protocol

from pydantic import Field

from tavern_host.contracts.tools import ToolCallRequest
from tavern_host.contracts.wire import Model


class ActionProtocolInfo(Model):
    """A protocol: `handler` is `module:Class` in the plugin; the class is opened with `ParserOptions`.

    `instructions` is what an LLM is told, so that it can write the protocol.
    """

    name: str
    handler: str
    description: str = ""
    instructions: str = ""


class ParserOptions(Model):
    """What a parser may know beforehand: the parameter names of each tool, to settle whether a digit at
    the end of a key is part of the name or the number of a step."""

    parameters: dict[str, list[str]] = Field(default_factory=dict)


class ParseEvent(Model):
    """One thing found in the text, in order.

    `text`: text outside of calls, released as soon as it cannot be part of one. `call`: one call of a
    finished block. `warning`: what was repaired or not understood, with `offset` in characters.
    """

    kind: Literal["text", "call", "warning"]
    text: str = ""
    call: ToolCallRequest | None = None
    offset: int | None = None


class ActionParser(Protocol):
    """An incremental parser of one text."""

    def feed(self, text: str) -> list[ParseEvent]:
        """Take more text; return what is certain by now."""

    def finish(self) -> list[ParseEvent]:
        """Say that the text is complete; return the rest. The parser is not used again."""
