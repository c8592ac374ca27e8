"""Action protocols: how text asks for tool calls. A parser is fed text as it arrives and never raises on it."""

from __future__ import annotations

import re
from typing import ClassVar, Literal, Protocol

from pydantic import Field

from tavern_host.contracts.contributions import ContributionKind, Handler
from tavern_host.contracts.wire import Model
from tavern_tools.api.toolcalls import ToolCallRequest


class ParserOptions(Model):
    """What a parser may know beforehand: the parameter names of each tool, to decide whether a digit at
    the end of a key is part of the name or the number of a step; those of tools that are `closed`, and take nothing
    else; and which `aliases` stand for which tool. Read only: parsers share it."""

    parameters: dict[str, list[str]] = Field(default_factory=dict)
    closed: dict[str, list[str]] = Field(default_factory=dict)
    aliases: dict[str, str] = Field(default_factory=dict)


def understood(call: ToolCallRequest, options: ParserOptions, advice: str) -> ToolCallRequest:
    """Return a call, refused where a closed tool has no parameter for what it gives: a value that holds the marks of
    its protocol may have been cut there, and what follows be a part of it."""
    known = options.closed.get(call.tool_id)
    if call.refused is not None or known is None or call.arguments.keys() <= {*known}:
        return call
    names = {_bare(name) for name in known}
    for name in (name for name in call.arguments if _bare(name) not in names):
        has = ", ".join(known) or "none"
        why = f"{name!r:.80} is no parameter of {call.tool_id} (it has {has}); a value before it may have been cut"
        return call.model_copy(update={"refused": f"{why}. {advice}".strip(), "arguments": {}, "repairs": []})
    return call


def _bare(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).casefold()


class ParseEvent(Model):
    """One thing found in the text, in order.

    `text`: text outside of calls, released as soon as it cannot be part of one. `call`: one call of a
    finished block. `warning`: what was repaired or not understood. `offset` is where it begins, in characters of the
    text that was fed: of a call, its block. A warning about a place in the text that is returned with it says that
    there is a block which was refused: no other protocol looks for calls in that text. A refused call with the block
    and index of an earlier one takes that back (`take_call`): what came behind it shows that it was not whole.
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


class ActionProtocolInfo(Model):
    """A protocol: `handler` is `module:Class` in the plugin; the class is opened with `ParserOptions`.

    `instructions` is what an LLM reads so that it can write the protocol. `source` is what is parsed: the text of
    an answer, or (`native`) the JSON of its field `tool_calls`, which no text goes through.

    `openings` are the texts with which a block begins, whatever their case and the blanks between their signs. From
    one of them on a block is this protocol's alone, and its parser is fed; it gives `offset` with all text. A
    protocol without openings gets what the others left of the text. `endings` are the texts with which a block ends,
    written alike: where one stands behind a call, in text in which no block begins, a value of that call may have been
    cut, and the protocol's calls are refused (one with a line break at its end counts at the end of the text alone);
    `advice` is what a model then reads about how to write them.
    """

    KIND: ClassVar[ContributionKind] = ContributionKind(protocol=ActionParser)

    name: str
    handler: Handler
    description: str = ""
    instructions: str = ""
    source: Literal["text", "native"] = "text"
    openings: list[str] = Field(default_factory=list)
    endings: list[str] = Field(default_factory=list)
    advice: str = ""
