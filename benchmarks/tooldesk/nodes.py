"""Nodes that stream numbers, and give long texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

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


@node(blocking=True)
def chinese(characters: int, number: int) -> Annotated[str, Slot(key="result")]:
    """Give a Chinese text of so many characters, which differs by number."""
    return f"{number}" + "字" * characters


@node(blocking=True)
def objects(count: int, number: int) -> Annotated[list[Any], Slot(key="result", type="ARRAY")]:
    """Give a list of so many small objects, which differs by number."""
    return [{"id": each, "name": f"guest {each}", "room": f"{number}-{each}"} for each in range(count)]
