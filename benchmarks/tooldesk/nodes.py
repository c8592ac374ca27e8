"""A node that streams numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from tavern_host import Slot, node


@node(cached=False)
async def count(items: int) -> Annotated[AsyncIterator[int], Slot(key="items")]:
    """Stream the numbers from 0 on."""
    for number in range(items):
        yield number
