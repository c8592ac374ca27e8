"""Puts the calls of tools in an answer together from the fragments that servers send, in whatever form they do.

What the calls mean, and whether their arguments are right, is not decided here.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from tavern_llm.api.llm import LlmCallFragment, LlmToolCall

_MOST_CHECKED = 1 << 18
_KNOWN = frozenset({"id", "type", "index", "function", "name", "arguments"})


def new_id() -> str:
    """Return an id for a call that has none: nine letters and digits, which every server takes."""
    return uuid.uuid4().hex[:9]


@dataclass
class _Call:
    """A call as far as it came; `told` is how many of its `pieces` were passed on, None before the first.
    `has_index` says whether the first of them had an index."""

    number: int
    has_index: bool
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    told: int | None = None
    size: int = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def is_complete(self) -> bool:
        """Whether the arguments are a whole object, of those that are not too long to ask with each fragment."""
        if not self.pieces or self.size > _MOST_CHECKED or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(json.loads(self.text), dict)
        except (ValueError, RecursionError):
            return False

    def fragment(self, *, is_end: bool = False) -> LlmCallFragment | None:
        """Return the new part of the call, or None; the first fragment waits until the name is certain."""
        is_first = self.told is None
        if is_first and not is_end and not (self.name and self.pieces):
            return None
        arguments = "".join(self.pieces[self.told or 0 :])
        self.told = len(self.pieces)
        if not is_first:
            return LlmCallFragment(index=self.number, arguments=arguments) if arguments else None
        self.id = self.id or new_id()
        return LlmCallFragment(index=self.number, id=self.id, name=self.name, arguments=arguments)


class CallAssembler:
    """The calls of one answer.

    A fragment belongs to the call of its id, else to that of its index, else to the last one; one with neither id nor
    name continues the last one, whatever its index, where that one began without an index. Servers give the index 0 to
    every call, new ids or none, names again, late or in parts, and arguments as objects.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}

    def add(self, items: Any) -> list[LlmCallFragment]:
        """Take the `tool_calls` of a message or of a piece of it; return what is new."""
        listed = [item for item in (items if isinstance(items, list) else [items]) if isinstance(item, dict)]
        touched: dict[int, _Call] = {}
        for position, item in enumerate(listed):
            index = item.get("index")
            if not isinstance(index, int):
                index = position if len(listed) > 1 else None
            call = self._take(item, index)
            if call is not None:
                touched[call.number] = call
        return [fragment for call in touched.values() if (fragment := call.fragment()) is not None]

    def end(self) -> list[LlmCallFragment]:
        """Return the fragments that were held back, once the answer is whole."""
        return [fragment for call in self._calls if (fragment := call.fragment(is_end=True)) is not None]

    def calls(self, *, is_cut: bool) -> list[LlmToolCall]:
        """Return the calls. In an answer that was cut at its greatest length, arguments that did not come stay empty
        text, which is no JSON: the call is not taken for one without arguments."""
        return [
            LlmToolCall(
                id=call.id or new_id(),
                name=call.name,
                arguments=call.text or ("" if is_cut else "{}"),
                extra=call.extra or None,
            )
            for call in self._calls
        ]

    def _take(self, item: dict[str, Any], index: int | None) -> _Call | None:
        function = item.get("function")
        function = function if isinstance(function, dict) else item
        identity, name = (value if isinstance(value, str) else "" for value in (item.get("id"), function.get("name")))
        arguments = _arguments(function.get("arguments"))
        if not (identity or name or arguments):
            return None
        call = self._find(identity, index, name, arguments)
        if call is None:
            call = _Call(len(self._calls), has_index=index is not None)
            self._calls.append(call)
        elif identity and call.name == name and call.size == len(arguments) and call.text == arguments != "":
            return None  # all of it once more
        if index is not None:
            self._by_index[index] = call
        if identity and call is not self._by_id.get(identity):
            call.id = call.id or ("" if identity in self._by_id else identity)
            self._by_id[identity] = call
        if name:  # its next part, or all of it once more
            call.name = name if name.startswith(call.name) else call.name + name
        if arguments:
            call.pieces.append(arguments)
            call.size += len(arguments)
        call.extra |= {key: value for key, value in item.items() if key not in _KNOWN and value not in (None, "")}
        return call

    def _find(self, identity: str, index: int | None, name: str, arguments: str) -> _Call | None:
        """Return the call that a fragment continues; None where it begins one."""
        call = self._by_id.get(identity)
        if call is None:
            last = self._calls[-1] if self._calls else None
            call = self._by_index.get(index) if index is not None else last
            if last is not None and not (identity or name) and (call is None or not last.has_index):
                call = last
            if call is not None and identity and call.id and (name or call.is_complete()):
                return None
        # In JSON an object never follows another one, so that this is no further part of the same arguments.
        begins = call is not None and name and call.name and arguments.lstrip().startswith("{") and call.is_complete()
        return None if begins and (not identity or call is None or call.text != arguments) else call


def _arguments(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
