"""Nodes that stream numbers, and give long texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from tavern_host import Slot, node


@node(cached=False)
async def count(items: int) -> Annotated[AsyncIterator[int], Slot(key="items")]:
    """Stream the numbers from 0 on."""
    for number in range(items):
        yield number


@node(cached=False, blocking=True)
def text(characters: int) -> Annotated[str, Slot(key="text")]:
    """Give a text of so many characters."""
    return "x" * characters
