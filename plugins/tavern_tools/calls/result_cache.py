"""Results of calls that are returned again for equal arguments, of the tools that ask for it (`cache`).

They are in memory, for as long and for whom the tool says. Whether somebody may call the tool is decided before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from cachetools import TLRUCache
from pydantic import JsonValue

from tavern_host import clock
from tavern_host.contracts.calls import Principal
from tavern_tools.api.toolcalls import ToolResult
from tavern_tools.catalog.catalog import Tool

MAX_BYTES = 32 * 2**20
"""How much memory, roughly, all results take."""

_ENTRY_BYTES = 500
_LARGEST = 4
_OF_THE_CALL = ("index", "block", "request_id", "coercions", "warnings", "attempts", "duration_ms", "cached")


@dataclass(frozen=True, slots=True)
class _Entry:
    result: ToolResult
    size: int
    seconds: float


class ResultCache:
    """Results by the keys of calls, the least recently used evicted first.

    A key is for one tool as it was prepared: where plugins, tools or workflows have changed, tools are prepared
    again, and what they returned before is not returned again; nor is it when any setting has changed: `settings`
    returns their revision.
    """

    def __init__(self, settings: Callable[[], int], max_bytes: int = MAX_BYTES) -> None:
        self._settings = settings
        self._max_bytes = max_bytes
        self._entries: TLRUCache[bytes, _Entry] = TLRUCache(
            max_bytes,
            ttu=lambda _, entry, now: now + entry.seconds,
            timer=clock.monotonic,
            getsizeof=lambda entry: entry.size,
        )

    def key(self, tool: Tool, arguments: dict[str, JsonValue], principal: Principal) -> bytes | None:
        """Return the key that equal calls share; None where a result is not cached.

        Equal are arguments with the same JSON, whatever the order of their names.
        """
        caching = tool.definition.cache
        if caching is None:
            return None
        asking = None if caching.shared else [principal.kind, principal.id]
        try:
            text = json.dumps([tool.number, self._settings(), asking, arguments], sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError):  # no JSON
            return None
        return hashlib.blake2b(text.encode(), digest_size=32).digest()

    def get(self, key: bytes) -> ToolResult | None:
        """Return a copy of the result for a key, marked as `cached`, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry.result.model_copy(deep=True)

    def put(self, key: bytes, tool: Tool, result: ToolResult) -> None:
        """Cache a result that may be returned again: done, without streams, and not too large."""
        caching = tool.definition.cache
        if caching is None or result.cached or not _is_repeatable(result):
            return
        try:
            size = len(result.model_dump_json(exclude=set(_OF_THE_CALL))) + _ENTRY_BYTES
            copied = result.model_copy(update=_without_call(), deep=True)
        except (ValueError, RecursionError):  # no JSON
            return
        self._entries.pop(key, None)
        if size <= self._max_bytes // _LARGEST:
            self._entries[key] = _Entry(copied, size, caching.seconds)


def _is_repeatable(result: ToolResult) -> bool:
    return result.status == "done" and result.task_id is None and all(part.type != "stream" for part in result.content)


def _without_call() -> dict[str, object]:
    """Return the fields of a result that belong to its call, with the values of a call that was not made."""
    empty = ToolResult(tool_id="", status="done")
    return {**{name: getattr(empty, name) for name in _OF_THE_CALL}, "cached": True}
