"""What reading an answer that comes in parts (blocks, content) has in common for the wires that have such."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tavern_host.contracts.wire import LIMIT
from tavern_llm.api.llm import LlmCallFragment, LlmChunk, LlmResponse, LlmToolCall, LlmUsage
from tavern_llm.chat_wire import TooLong
from tavern_llm.native_calls import new_id

MOST_PARTS = 1024
"""How many parts one answer has at most."""


@dataclass
class PartCall:
    """A call as far as it came."""

    index: int
    id: str
    name: str
    pieces: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def fragment(self, arguments: str) -> LlmCallFragment:
        """Return a further piece of the arguments."""
        return LlmCallFragment(index=self.index, arguments=arguments)


class PartsReader:
    """The answer as far as it came; each wire says what an event adds."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[PartCall] = []
        self._extra: dict[str, Any] = {}
        self._usage = LlmUsage()
        self._id: str | None = None
        self._reason: str | None = None
        self.is_over = False

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return "".join(self._texts)

    @property
    def is_finished(self) -> bool:
        """Whether the model has said that it ends."""
        return self._reason is not None

    def end(self) -> list[LlmChunk]:
        """Hold nothing back."""
        return []

    def response(self, notices: list[str]) -> LlmResponse:
        """Return the whole answer. Arguments that did not come, of an answer that was cut, stay empty text."""
        is_cut = self._reason == "length"
        calls = [
            LlmToolCall(
                id=call.id,
                name=call.name,
                arguments="".join(call.pieces) or ("" if is_cut else "{}"),
                extra=call.extra or None,
            )
            for call in self._calls
        ]
        return LlmResponse(
            text=self.text,
            model=self._model,
            tool_calls=calls,
            reasoning="".join(self._thoughts).strip() or None,
            finish_reason=self._reason,
            usage=self._usage,
            response_id=self._id,
            extra=self._extra,
            notices=notices,
        )

    def say(self, text: Any) -> list[LlmChunk]:
        """Take a piece of text."""
        if not isinstance(text, str) or not text:
            return []
        self._texts.append(text)
        return [LlmChunk(text=text)]

    def think(self, text: Any) -> list[LlmChunk]:
        """Take a piece of a thought."""
        if not isinstance(text, str) or not text:
            return []
        self._thoughts.append(text)
        return [LlmChunk(reasoning=text)]

    def begin_call(self, identity: Any, name: Any, arguments: Any = None) -> tuple[PartCall, list[LlmChunk]]:
        """Take the beginning of a call, with its arguments where they came as an object. Raises `TooLong`."""
        if len(self._calls) >= MOST_PARTS:
            raise TooLong(f"sent more than {MOST_PARTS} calls")
        call_id = identity if isinstance(identity, str) and identity else new_id()
        call = PartCall(len(self._calls), call_id, name if isinstance(name, str) else "")
        text = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) and arguments else ""
        if text:
            call.pieces.append(text)
        self._calls.append(call)
        return call, [LlmChunk(call=LlmCallFragment(index=call.index, id=call.id, name=call.name, arguments=text))]

    def use(self, **counts: Any) -> None:
        """Take figures of usage, as far as they are such."""
        right = {name: count for name, count in counts.items() if is_count(count)}
        self._usage = self._usage.model_copy(update=right)


def is_count(value: Any) -> bool:
    """Return whether a value is a number of tokens."""
    return type(value) is int and 0 <= value < LIMIT


def counted(*values: Any) -> int | None:
    """Return the sum of the figures that are given; None where none is."""
    right = [value for value in values if is_count(value)]
    return sum(right) if right else None
