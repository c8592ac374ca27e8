"""Outputs of nodes by signature, in memory and bounded by bytes: the ones used longest ago make room first.

The cache keeps lists and objects of its own, so that a node that changes what it was given spoils one run at most.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, KeysView
from typing import Any

DEFAULT_LIMIT = 256 * 2**20
"""How many bytes, roughly, cached outputs may take."""

_ENTRY = 250
"""What an entry takes beside its values, roughly: its signature, its dict, the cache's own book-keeping."""
_SCALARS = (int, float, bool, type(None))
_MAX_ITEMS = 100_000
"""Outputs with more items than this are not measured to the end, and not kept."""


class OutputCache:
    """A bounded map from signatures to outputs."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._entries: dict[bytes, tuple[dict[str, Any], int, bool]] = {}
        self._bytes = 0

    @property
    def size(self) -> int:
        """What the entries take, roughly."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)

    def has_none(self, signatures: Iterable[Any]) -> bool:
        """Return whether none of the signatures is known; quick for many of them."""
        keys: KeysView[Any] = self._entries.keys()
        return not keys or keys.isdisjoint(signatures)

    def __contains__(self, signature: bytes) -> bool:
        return signature in self._entries

    def get(self, signature: bytes) -> dict[str, Any] | None:
        """Return outputs, and count them as used just now; lists and objects in them are copies."""
        entry = self._entries.pop(signature, None)
        if entry is None:
            return None
        self._entries[signature] = entry
        outputs, _, has_containers = entry
        return copy.deepcopy(outputs) if has_containers else outputs

    def put(self, signature: bytes, outputs: dict[str, Any]) -> None:
        """Keep outputs; those that are too large for the cache, or cannot be measured or copied, are not kept."""
        size, has_containers = _ENTRY, False
        for value in outputs.values():
            kind = type(value)
            if kind in _SCALARS:
                size += 32
            elif kind is str or kind is bytes:
                size += len(value) + 60
            else:
                measured = size_of(value)
                if measured is None:
                    return
                size += measured
                has_containers = True
        if size > self._limit:
            return
        if has_containers:
            try:
                outputs = copy.deepcopy(outputs)
            except Exception:  # a foreign object's own copying may fail in any way
                return
        entries = self._entries
        old = entries.pop(signature, None)
        if old is not None:
            self._bytes -= old[1]
        entries[signature] = (outputs, size, has_containers)
        self._bytes += size
        while self._bytes > self._limit:
            oldest = next(iter(entries))
            self._bytes -= entries.pop(oldest)[1]

    def resize(self, limit: int) -> None:
        """Set how many bytes the cache may take; what is too much leaves at once."""
        self._limit = limit
        while self._bytes > limit:
            self._bytes -= self._entries.pop(next(iter(self._entries)))[1]

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._bytes = 0


def size_of(value: Any) -> int | None:
    """Return roughly how many bytes a value takes, or None where it holds what cannot be known: other objects."""
    size, waiting, items = 0, [value], 0
    while waiting:
        part = waiting.pop()
        kind = type(part)
        if kind in _SCALARS:
            size += 32
        elif kind is str or kind is bytes:
            size += len(part) + 60
        elif kind is list or kind is tuple:
            size += 60 + 8 * len(part)
            items += len(part)
            waiting.extend(part)
        elif kind is dict:
            size += 70 + 100 * len(part)
            items += len(part)
            waiting.extend(part.values())
        else:
            return None
        if items > _MAX_ITEMS:
            return None
    return size
