"""Prolongs the claims of one worker as long as it works on its runs.

Reports those that it lost, and those that somebody elsewhere wants to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable

from tavern_engine.api.runs import RunStore
from tavern_host.contracts.errors import TavernError, describe

LEASE = 30.0
"""How long a claim holds, in seconds; it is prolonged three times in that time."""

LOOK = 1.0
"""Seconds until a worker sees that somebody elsewhere asked that a run of its ends."""


class Leases:
    """The runs that a worker has claimed. Its owner closes it.

    A store that cannot be reached does not stop a run: whether it is another's by now is for the store to say.
    """

    def __init__(self, store: RunStore, worker: str, log: logging.Logger, *, lease: float = LEASE) -> None:
        self.worker = worker
        self.lease = lease
        self._store = store
        self._log = log
        self._held: dict[str, tuple[Callable[[], object] | None, Callable[[], object]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_told = False
        self._wake = asyncio.Event()

    def look(self) -> None:
        """See at once which runs are to end."""
        self._wake.set()

    def hold(self, run_id: str, lost: Callable[[], object] | None, unwanted: Callable[[], object]) -> None:
        """Prolong the claim of a run from now on. `lost` is called once if it is another's by then, None where that is
        wanted; `unwanted` when somebody elsewhere asked that it ends."""
        self._held[run_id] = lost, unwanted
        if self._task is None or self._task.done():
            own = contextvars.Context()  # what it logs is not about the run that is held first
            name = f"leases of {self.worker}"
            self._task = asyncio.create_task(self._renew_again_and_again(), name=name, context=own)

    def release(self, run_id: str) -> None:
        """Do not prolong the claim of a run any more."""
        self._held.pop(run_id, None)

    async def close(self) -> None:
        """Prolong nothing any more."""
        self._held.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _renew_again_and_again(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self.lease / 3
        while self._held:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK, self.lease / 3)):
                    await self._wake.wait()
            self._wake.clear()
            is_due = loop.time() >= due
            if self._held and await self._look(is_due) and is_due:  # else once more at the next look: leases end
                due = loop.time() + self.lease / 3

    async def _look(self, is_due: bool) -> bool:
        """See which runs are to end, and prolong the claims where it is time; return whether the store answered."""
        held = list(self._held)
        try:
            unwanted = await self._store.cancel_requested(self.worker)
            kept = set(await self._store.renew(self.worker, held, self.lease) if is_due else held)
        except Exception as error:  # whatever the store does, the next time may go well
            if not self._is_told:
                reason = error.message if isinstance(error, TavernError) else describe(error)
                self._log.error("the claims of running workflows could not be prolonged: %s", reason)
            self._is_told = True
            return False
        self._is_told = False
        for run_id in unwanted:
            if run_id in self._held:
                self._held[run_id][1]()
        for run_id in held:
            if run_id not in kept and (lost := self._held.pop(run_id, (None, None))[0]) is not None:
                self._log.error("the run %s was claimed by another worker and is stopped here", run_id)
                lost()
        return True
