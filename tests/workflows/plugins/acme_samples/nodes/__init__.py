"""Nodes with streams, for workflows that are checked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from tavern_host import Slot, node


@node()
async def words(text: str = "a b c") -> Annotated[AsyncIterator[str], Slot(name="words")]:
    """Give one word after the other."""
    for word in text.split():
        yield word


@node()
async def speak(words: AsyncIterator[str]) -> int:
    """Say the words as they come; return how many there were."""
    count = 0
    async for _ in words:
        count += 1
    return count
