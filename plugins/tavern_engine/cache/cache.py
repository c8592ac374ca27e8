"""Outputs of nodes by signature, in memory and bounded by bytes: the least recently used are evicted first.

The cache keeps lists and objects of its own, so that a node that changes its inputs spoils one run at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from datetime import datetime
from sys import getsizeof
from typing import Any

from tavern_host import Blob

DEFAULT_LIMIT = 256 * 2**20
"""How many bytes, roughly, cached outputs may take."""

SMALL = 1000
"""Outputs of more characters than this are measured."""

_ENTRY = 300
"""What an entry takes beside its texts, roughly: its signature, its dict, the cache's own book-keeping."""
_NUMBER, _TEXT = 32, getsizeof("")
_LARGE = 64 * 1024
"""A text of more bytes that several entries have is counted once."""
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
        self._held: dict[bytes, tuple[int, dict[int, int]]] = {}
        """The sizes of those entries that were measured, without large texts, and of these by identity."""
        self._texts: dict[int, int] = {}
        """By identity, how many entries have a large text."""
        self.size = 0
        """How many bytes the entries take; of numbers, about."""
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
        texts: dict[int, int] = {}
        size = size_of(outputs, texts=texts)
        if size is None or size > self.limit:
            return
        try:
            outputs = outputs if is_owned else copied(outputs)
        except RecursionError:  # nested too deeply
            return
        self._drop(signature)
        self._entries[signature] = outputs
        self._held[signature] = size - sum(texts.values()), texts
        self.size += self._held[signature][0]
        for text, length in texts.items():
            holders = self._texts[text] = self._texts.get(text, 0) + 1
            self.size += length if holders == 1 else 0
        if is_new and self.on_kept is not None:
            self.on_kept((signature,), (outputs,), size)
        self._shrink()

    def put_plain(self, outputs: Mapping[bytes, dict[str, Any]], characters: int, *, is_new: bool = True) -> None:
        """Cache outputs by signature that hold nothing but numbers and short ASCII texts, `characters` in all."""
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
        self._texts.clear()
        self.size = 0

    def _drop(self, signature: bytes) -> None:
        outputs = self._entries.pop(signature, None)
        if outputs is None:
            return
        held = self._held.pop(signature, None)
        size, texts = held if held is not None else (_plain_size(outputs), {})
        self.size -= size
        for text, length in texts.items():
            self._texts[text] -= 1
            if not self._texts[text]:
                del self._texts[text]
                self.size -= length

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


def size_of(value: Any, items: int = _MAX_ITEMS, texts: dict[int, int] | None = None) -> int | None:
    """Return how many bytes an entry with a value takes, numbers about, or None where that cannot be known, also for
    more than so many items.

    A large text that is in it twice counts once, since copies of lists and objects share it: `texts` gets the sizes of
    these by identity.
    """
    texts = {} if texts is None else texts
    size, waiting, left = _ENTRY, [value], items
    keys: set[Any] = set()
    while waiting:
        part = waiting.pop()
        kind = type(part)
        if kind in _SCALARS:
            size += _NUMBER
        elif kind is str and part.isascii() and len(part) < _LARGE:
            size += len(part) + _TEXT
        elif kind in _TEXTS:
            if (length := getsizeof(part)) <= _LARGE:
                size += length
            else:
                texts[id(part)] = length
        elif kind is list or kind is tuple or kind is dict:
            if (left := left - len(part)) < 0:
                return None
            size += getsizeof(part)
            values = part.values() if kind is dict else part
            kinds = set(map(type, values))
            if kinds <= _SCALARS:
                size += _NUMBER * len(part)
            elif kinds <= _TEXTS and max(map(len, values)) <= SMALL:
                is_ascii = kinds == {str} and all(map(str.isascii, values))
                size += sum(map(len, values)) + _TEXT * len(part) if is_ascii else sum(map(getsizeof, values))
            else:
                waiting.extend(values)
            if kind is dict and not keys.issuperset(part):
                keys.update(part)
        else:
            return None
    return size + sum(map(getsizeof, keys)) + sum(texts.values())
