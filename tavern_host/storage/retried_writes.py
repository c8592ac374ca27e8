"""Writes that are tried again until the store takes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tavern_host.contracts.errors import Conflict, InvalidInput, Misconfigured, NotFound, TavernError

T = TypeVar("T")

_FIRST, _MOST = 0.2, 30.0
"""Seconds before the second attempt, and between late ones."""


async def until_written(
    write: Callable[[], Awaitable[T]], tell: Callable[[TavernError], object], gives_up: Callable[[], bool]
) -> T:
    """Return the result of `write`, tried again, ever more rarely, while the store cannot be written (a full disk).

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


class Withdrawals:
    """What was refused although the store may have it, since writing it failed or its caller left meanwhile: undone
    there as soon as that can be, one after the other. `spawn` starts a task of a plugin."""

    def __init__(self, spawn: Callable[..., object], gives_up: Callable[[], bool]) -> None:
        self._spawn = spawn
        self._gives_up = gives_up
        self._undone_by: dict[str, Callable[[], Awaitable[object]]] = {}

    def __contains__(self, id: object) -> bool:
        """Return whether something is still to be undone, so that nobody here may work on it."""
        return id in self._undone_by

    def add(self, id: str, failure: BaseException, undo: Callable[[], Awaitable[object]]) -> None:
        """Undo what failed so, unless the failure says that the store does not have it."""
        if isinstance(failure, Conflict | InvalidInput | Misconfigured | NotFound):
            return
        self._undone_by[id] = undo
        if len(self._undone_by) == 1:
            self._spawn(self._work(), name="withdraw what was refused", finish=True)

    async def _work(self) -> None:
        while self._undone_by:
            id, undo = next(iter(self._undone_by.items()))
            try:
                with contextlib.suppress(TavernError):  # the store does not have it, or the host stops
                    await until_written(undo, lambda _: None, self._gives_up)
            finally:
                del self._undone_by[id]
