"""What tests of the page use: a server with its page, and a browser, as plugins' authors have them too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tavern_studio.testing import WAIT, Studio, browsing, not_new, show

__all__ = ["WAIT", "Studio", "browsing", "not_new", "read_until", "show"]

T = TypeVar("T")


async def read_until(holds: Callable[[T], bool], read: Callable[[], Awaitable[T]]) -> T:
    """Read what a page shows, which may not be complete yet, until it holds; return what was read last."""
    for _ in range(WAIT // 50):
        if holds(found := await read()):
            break
        await asyncio.sleep(0.05)
    return found
