"""Work that would hold up the event loop where there is much of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE_TEXT = 2**18
"""From how many bytes on JSON is read or written in a thread."""


async def off_loop(is_large: bool, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` gives; where it is large it is done in a thread, so that nobody waits for it."""
    return await asyncio.to_thread(work, *args, **kwargs) if is_large else work(*args, **kwargs)
