"""Outputs of nodes by signature, in memory and bounded by bytes: the least recently used are evicted first.

The cache keeps lists and objects of its own, so that a node that changes its inputs spoils one run at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from datetime import datetime
from typing import Any

from tavern_host import Blob

DEFAULT_LIMIT = 256 * 2**20
"""How many bytes, roughly, cached outputs may take."""

_ENTRY = 300
"""What an entry takes beside its texts, roughly: its signature, its dict, the cache's own book-keeping."""
_SCALARS = frozenset((int, float, bool, type(None), datetime, Blob))
_FLAT = frozenset((int, float, bool, type(None), str, bytes))
_TEXTS = frozenset((str, bytes))
_MAX_ITEMS = 100_000
"""Outputs with more items than this are not measured to the end, and not kept."""


Kept = Callable[[Sequence[bytes], Sequence[dict[str, Any]], int], object]
"""Called with newly cached outputs, by signature, and roughly how many bytes they take. It must not change them."""


class OutputCache:
    """A bounded map from signatures to outputs."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._entries: dict[bytes, dict[str, Any]] = {}
        self._held: dict[bytes, int] = {}
        """The sizes of those entries that hold lists and objects."""
        self.size = 0
        """About how many bytes the entries take."""
        self.on_kept: Kept | None = None

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
        outputs = self._entries.pop(signature, None)
        if outputs is None:
            return None
        self._entries[signature] = outputs
        return copied(outputs) if signature in self._held else outputs

    def put(self, signature: bytes, outputs: dict[str, Any], *, is_new: bool = True, is_owned: bool = False) -> None:
        """Cache outputs; those that are too large for the cache, or cannot be measured, are not kept.

        Without `is_new`, `on_kept` is not called. Outputs that are `owned` have no other reference, so they are not
        copied.
        """
        size = size_of(outputs)
        if size is None or size > self.limit:
            return
        try:
            outputs = outputs if is_owned else copied(outputs)
        except RecursionError:  # nested too deeply
            return
        self._drop(signature)
        self._entries[signature] = outputs
        self._held[signature] = size
        self.size += size
        if is_new and self.on_kept is not None:
            self.on_kept((signature,), (outputs,), size)
        self._shrink()

    def put_plain(self, outputs: Mapping[bytes, dict[str, Any]], characters: int, *, is_new: bool = True) -> None:
        """Cache outputs by signature that hold nothing but numbers and short texts, `characters` in all."""
        entries = self._entries
        for signature in entries.keys() & outputs.keys():
            self._drop(signature)
        entries.update(outputs)
        size = len(outputs) * _ENTRY + characters
        self.size += size
        if is_new and self.on_kept is not None:
            self.on_kept([*outputs], [*outputs.values()], size)
        self._shrink()

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._held.clear()
        self.size = 0

    def _drop(self, signature: bytes) -> None:
        outputs = self._entries.pop(signature, None)
        if outputs is not None:
            held = self._held.pop(signature, None)
            self.size -= held if held is not None else _plain_size(outputs)

    def _shrink(self) -> None:
        while self.size > self.limit and self._entries:
            self._drop(next(iter(self._entries)))


def owned(outputs: dict[str, Any]) -> dict[str, Any]:
    """Return outputs that nothing else can change: a copy, or they themselves where they cannot be copied."""
    if _FLAT.issuperset(map(type, outputs.values())):
        return outputs
    if size_of(outputs) is None:
        return outputs
    try:
        return copied(outputs)  # type: ignore[no-any-return]
    except RecursionError:  # nested too deeply
        return outputs


def _plain_size(outputs: dict[str, Any]) -> int:
    return _ENTRY + sum(len(value) for value in outputs.values() if isinstance(value, str))


def copied(value: Any) -> Any:
    """Return a copy of a value: of its lists and dicts. What else is in it is shared."""
    kind = type(value)
    if kind is list:
        return value.copy() if _FLAT.issuperset(map(type, value)) else [copied(part) for part in value]
    if kind is dict:
        return {key: copied(part) for key, part in value.items()}
    return tuple(copied(part) for part in value) if kind is tuple else value


def size_of(value: Any, items: int = _MAX_ITEMS) -> int | None:
    """Return roughly how many bytes an entry with a value takes, or None where that cannot be known, also for more than
    so many items."""
    size, waiting, left = _ENTRY, [value], items
    while waiting:
        part = waiting.pop()
        kind = type(part)
        if kind in _SCALARS:
            size += 32
        elif kind is str or kind is bytes:
            size += len(part) + 60
        elif kind is list or kind is tuple:
            if (left := left - len(part)) < 0:
                return None
            size += 60 + 8 * len(part)
            kinds = set(map(type, part))
            if kinds <= _SCALARS:
                size += 32 * len(part)
            elif kinds <= _TEXTS:
                size += sum(map(len, part)) + 60 * len(part)
            else:
                waiting.extend(part)
        elif kind is dict:
            if (left := left - len(part)) < 0:
                return None
            size += 70 + 100 * len(part)
            waiting.extend(part.values())
        else:
            return None
    return size
