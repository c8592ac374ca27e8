"""Results of calls that are given again for equal arguments, of the tools that ask for it (`cache`).

Keeps them in memory, for as long and for whom the tool says. Whether somebody may call the tool is decided before.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from tavern_host.contracts.calls import Principal
from tavern_host.contracts.toolcalls import ToolResult
from tavern_host.contracts.tools import ToolDefinition
from tavern_tools.catalog.catalogue import Tool

MAX_BYTES = 32 * 2**20
"""How much memory, roughly, all results take."""

_ENTRY_BYTES = 500
_LARGEST = 4
_TOOLS = 1024
_OF_THE_CALL = ("index", "block", "request_id", "coercions", "warnings", "attempts", "duration_ms", "cached")


@dataclass(frozen=True, slots=True)
class _Kept:
    result: ToolResult
    size: int
    expires_at: float


class ResultCache:
    """Results by the keys of calls, those that were used last. `clock` gives seconds and never jumps back.

    A key is for one tool as it was prepared: where plugins, tools or workflows have changed, tools are prepared anew,
    and what they gave before is not given again.
    """

    def __init__(self, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._bytes = 0
        self._tools: OrderedDict[int, tuple[Tool, bytes]] = OrderedDict()
        self._numbers = itertools.count()

    def key(self, tool: Tool, arguments: dict[str, JsonValue], principal: Principal) -> bytes | None:
        """Return what equal calls have in common; None where a result is not kept.

        Equal are arguments with the same JSON, whatever the order of their names.
        """
        caching = tool.definition.cache
        if caching is None:
            return None
        asking = None if caching.shared else [principal.kind, principal.id]
        try:
            text = json.dumps([asking, arguments], sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError):  # no JSON
            return None
        return hashlib.blake2b(self._name(tool) + text.encode(), digest_size=32).digest()

    def get(self, key: bytes) -> ToolResult | None:
        """Return a copy of the result for a key, marked as `cached`, or None."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if self._clock() >= kept.expires_at:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return kept.result.model_copy(deep=True)

    def put(self, key: bytes, tool: Tool, result: ToolResult) -> None:
        """Keep a result, if it is one that can be given again: done, without streams, and not too large."""
        caching = tool.definition.cache
        if caching is None or result.cached or not _is_repeatable(result):
            return
        try:
            size = len(result.model_dump_json(exclude=set(_OF_THE_CALL))) + _ENTRY_BYTES
            copied = result.model_copy(update=_as_kept(), deep=True)
        except (ValueError, RecursionError):  # no JSON
            return
        self._drop(key)
        if size > self._max_bytes // _LARGEST:
            return
        self._kept[key] = _Kept(copied, size, self._clock() + caching.seconds)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size

    def _name(self, tool: Tool) -> bytes:
        """Return what names a tool as it was prepared; of those that were not used for long, another name each time."""
        known = self._tools.get(id(tool))
        if known is None:
            name = f"{next(self._numbers)} {_identity(tool.definition)}\n".encode()
            known = self._tools[id(tool)] = (tool, name)
            if len(self._tools) > _TOOLS:
                self._tools.popitem(last=False)
        self._tools.move_to_end(id(tool))
        return known[1]


def _is_repeatable(result: ToolResult) -> bool:
    return result.status == "done" and result.task_id is None and all(part.type != "stream" for part in result.content)


def _as_kept() -> dict[str, object]:
    """Return what belongs to the call and not to its result, as it is for a call that was not made."""
    empty = ToolResult(tool_id="", status="done")
    return {**{name: getattr(empty, name) for name in _OF_THE_CALL}, "cached": True}


def _identity(definition: ToolDefinition) -> str:
    return json.dumps([definition.id, definition.version])
