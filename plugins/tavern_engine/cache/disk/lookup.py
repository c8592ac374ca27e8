"""Looks up the outputs of one plan in the disk cache, for one run: reads those that are needed into memory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any

from tavern_engine.cache.cache import OutputCache
from tavern_engine.cache.disk.store import DiskCache
from tavern_engine.cache.disk.tables import Found

UNREAD: dict[str, Any] = {}
"""Placeholder for outputs that are on disk and not read yet."""

SLICE = 2000
"""How many entries are put into memory before control returns to the event loop."""


class CacheLookup:
    """The outputs of one plan that are on disk and not in memory. What was read serves the run also where memory has
    no room for it."""

    def __init__(self, disk: DiskCache, cache: OutputCache) -> None:
        self._disk = disk
        self._cache = cache
        self._outputs: dict[bytes, dict[str, Any]] = {}
        self._unread: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._outputs) + len(self._unread)

    async def query(self, signatures: Iterable[bytes]) -> None:
        """Query the disk for those that memory does not have. Never raises."""
        unknown = {s for s in signatures if s not in self._cache}
        if unknown:
            found = await self._disk.find(unknown)
            self._unread = found.unread
            await self._take(found)

    async def read(self, signatures: Iterable[bytes]) -> None:
        """Read outputs that are needed; those that cannot be read count as absent. Never raises."""
        wanted = list(dict.fromkeys(signatures))
        await self._take(await self._disk.load(wanted))
        self._unread.difference_update(wanted)

    def get(self, signature: bytes) -> dict[str, Any] | None:
        """Return outputs, or `UNREAD`; None where they are not known."""
        outputs = self._outputs.get(signature)
        return UNREAD if outputs is None and signature in self._unread else outputs

    def touch(self, signatures: Collection[bytes]) -> None:
        """Mark entries that the run uses as used now."""
        self._disk.touch(signatures)

    async def _take(self, found: Found) -> None:
        entries = iter(found.entries.items())
        while some := list(islice(entries, SLICE)):
            plain: dict[bytes, dict[str, Any]] = {}
            characters = 0
            for signature, entry in some:
                self._outputs[signature] = entry.outputs
                if entry.characters is None:
                    self._cache.put(signature, entry.outputs, is_new=False)
                else:
                    plain[signature] = entry.outputs
                    characters += entry.characters
            if plain:
                self._cache.put_plain(plain, characters, is_new=False)
            if len(some) == SLICE:
                await asyncio.sleep(0)
