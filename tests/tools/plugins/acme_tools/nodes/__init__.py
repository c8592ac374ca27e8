"""Nodes to make tools of."""

from __future__ import annotations

import asyncio
from typing import Annotated, TypedDict

from tavern_host.sdk.decorator import Slot, node


@node(category="test")
async def repeat(
    text: Annotated[str, Slot("The text to repeat.")],
    times: Annotated[int, Slot("How often.", min=1, max=9)] = 2,
) -> Annotated[str, Slot("The repeated text.")]:
    """Repeats text."""
    return text * times


class Counted(TypedDict):
    text: str
    length: int


@node(category="test")
async def measure(text: str) -> Counted:
    """Measures text."""
    return {"text": text, "length": len(text)}


@node(category="test")
async def wait(seconds: float) -> str:
    """Waits."""
    await asyncio.sleep(seconds)
    return "waited"


@node(category="test")
async def fail(reason: str) -> str:
    """Fails."""
    raise ValueError(reason)
