"""The part of a text that has arrived and is not read yet, and what reading it comes to; the same for all protocols."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeVar

from tavern_host.contracts.wire import Model
from tavern_tools.api.protocols import ParseEvent
from tavern_tools.api.toolcalls import ToolCallRequest

M = TypeVar("M", bound=Model)

UNNAMED = "(unnamed)"
"""The tool of a refused call whose text does not say it."""

_BLANK = re.compile(r"\s*+")


def behind_blanks(text: str, begin: int) -> int:
    """Return the index behind the blanks that stand in `text` at `begin`."""
    found = _BLANK.match(text, begin)
    return found.end() if found else begin


@dataclass(slots=True)
class Window:
    """The text that has arrived and has not been used up, and how far it was read.

    `base` is the offset of `data[0]` in the whole text; `final` says that no more will come.
    """

    data: str = ""
    position: int = 0
    base: int = 0
    final: bool = False

    @property
    def offset(self) -> int:
        """How far the whole text was read, in characters."""
        return self.base + self.position

    def append(self, text: str) -> None:
        """Add text, dropping what was read."""
        self.base += self.position
        self.data = self.data[self.position :] + text
        self.position = 0

    def take(self, end: int) -> str:
        """Read on up to the index `end` of `data` and return what was read."""
        text = self.data[self.position : end]
        self.position = end
        return text

    def rewind(self, offset: int, parts: list[str]) -> None:
        """Go back to `offset`; `parts` is all that was read since."""
        if offset >= self.base:
            self.position = offset - self.base
        else:
            self.data = "".join(parts) + self.data[self.position :]
            self.base = offset
            self.position = 0


class Warn(NamedTuple):
    """What was repaired or not understood, and where."""

    text: str
    offset: int


@dataclass(slots=True)
class Outcome:
    """What a finished block asks for: its calls, or the `problem` for which nothing is called.

    With neither it is no block at all. Where it asks for a call all the same, that is in `calls`, refused. `source` is
    the block as it was written; it is returned as text where there are no calls. `after` is text behind the calls that
    turned out to be no part of the block.
    """

    offset: int
    source: str = ""
    calls: list[ToolCallRequest] = field(default_factory=list)
    warnings: list[Warn] = field(default_factory=list)
    problem: Warn | None = None
    after: str = ""

    def refuse(self, call: ToolCallRequest, how_to_write: str) -> None:
        """Have it ask for this call only, which is refused for the `problem`; its result says how to write it."""
        if self.problem is not None:
            self.calls = [call.model_copy(update={"refused": f"{self.problem.text}. {how_to_write}"})]
            self.warnings = [self.problem]


def made(model: type[M], values: dict[str, Any]) -> M:
    """Return a model with `values` for all of its fields, in their order, without validating them.

    Only for values that a parser made itself: a text may hold thousands of small calls, and validating them takes as
    long as finding them.
    """
    instance = object.__new__(model)
    put = object.__setattr__  # models are frozen
    put(instance, "__dict__", values)
    put(instance, "__pydantic_fields_set__", _fields_of(model))
    put(instance, "__pydantic_extra__", None)
    put(instance, "__pydantic_private__", None)
    return instance


@cache
def _fields_of(model: type[Model]) -> set[str]:
    return set(model.model_fields)


def event_of(kind: str, offset: int, text: str = "", call: ToolCallRequest | None = None) -> ParseEvent:
    """Return an event that begins at `offset`; `kind` is that of `ParseEvent`."""
    return made(ParseEvent, {"kind": kind, "text": text, "call": call, "offset": offset})
