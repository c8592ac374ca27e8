"""Writes that are tried again until the store takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tavern_host.contracts.errors import Conflict, InvalidInput, TavernError

T = TypeVar("T")

_FIRST, _MOST = 0.2, 30.0
"""Seconds before the second attempt, and between late ones."""


async def until_written(
    write: Callable[[], Awaitable[T]], tell: Callable[[TavernError], object], gives_up: Callable[[], bool]
) -> T:
    """Return what `write` gives, tried again, ever more rarely, while the store cannot be written, as on a full disk.

    `tell` hears why. Raises `InvalidInput` for what cannot be kept at all, `Conflict` for what is another's by now,
    and, once it `gives_up`, the last error, after a second.
    """
    pause = _FIRST
    while True:
        try:
            return await write()
        except (InvalidInput, Conflict):
            raise
        except TavernError as error:
            if gives_up() and pause > 1:
                raise
            tell(error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MOST)
