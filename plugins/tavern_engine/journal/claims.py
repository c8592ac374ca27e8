"""Which runs of the store are this host's: from their acceptance or claim to their end, release or handing on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from tavern_engine.api.runs import RUN_STORE, RunEnd, RunEntry, RunStore
from tavern_engine.journal.leases import LEASE, LOOK, Leases
from tavern_engine.run.active_run import INTERRUPTED
from tavern_host import PluginContext
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import Conflict, Interrupted, NotFound, TavernError
from tavern_host.contracts.executions import RunStatus
from tavern_host.storage.retried_writes import Withdrawals

NOT_ACCEPTED = "it was not accepted, since the store failed while it was recorded"


class Claims:
    """The claims of one host's worker. Its owner closes it.

    To the store all claims of a worker are alike: that recovery and a person do not take up the same run at once is
    decided here. Whoever gets a run of `claim`, `take_back`, `claim_abandoned` or `take` begins it, releases it or
    hands it on.
    """

    def __init__(self, context: PluginContext) -> None:
        self.worker = new_id("worker")
        self._context = context
        self._leases: Leases | None = None
        self.owned: set[str] = set()
        """The runs that are being taken up here, or run here and are recorded."""
        self._refused = Withdrawals(context.tasks.spawn, context.is_stopping)

    @property
    def store(self) -> RunStore | None:
        services = self._context.services
        return services.get(RUN_STORE) if services.has(RUN_STORE) else None

    def required_store(self) -> RunStore:
        """Return the store. Raises `NotFound` where there is none."""
        store = self.store
        if store is None:
            raise NotFound("runs are not recorded here: no plugin provides runStore")
        return store

    def add(self, run_id: str) -> None:
        """Take note of a run that was accepted for this worker."""
        self.owned.add(run_id)

    def withdraw(self, run_id: str, failure: BaseException) -> None:
        """End a run whose acceptance failed, where the store has it all the same."""
        if (store := self.store) is not None:
            end = RunEnd.construct(status=RunStatus.INTERRUPTED, error=Interrupted(NOT_ACCEPTED).info)
            self.hold(run_id, None, lambda: None)  # another host would carry it out
            self._refused.add(run_id, failure, lambda: store.update(self.worker, run_id, end))

    def discard(self, run_id: str) -> None:
        """Have nothing to do with a run any more."""
        self.unhold(run_id)
        self.owned.discard(run_id)

    # --- leases -----------------------------------------------------------------------------------

    def hold(self, run_id: str, lost: Callable[[], object] | None, unwanted: Callable[[], object]) -> None:
        """Prolong the claim of a run from now on; see `Leases.hold`."""
        self._leases = self._leases or Leases(self.required_store(), self.worker, self._context.log)
        self._leases.hold(run_id, lost, unwanted)

    def unhold(self, run_id: str) -> None:
        """Do not prolong the claim of a run any more."""
        if self._leases is not None:
            self._leases.release(run_id)

    def look(self) -> None:
        """See at once which runs are to end."""
        if self._leases is not None:
            self._leases.look()

    async def close(self) -> None:
        """Prolong nothing any more."""
        if self._leases is not None:
            await self._leases.close()

    # --- taking up --------------------------------------------------------------------------------

    async def claim(self, run_id: str) -> RunEntry | None:
        """Claim a run; None where it is taken up or runs already, here or elsewhere."""
        return await self._named(run_id, lambda store: store.claim(self.worker, LEASE, run_id=run_id))

    async def take_back(self, run_id: str) -> RunEntry | None:
        """Claim a run that was handed on, and that no other worker has taken."""

        async def keep(store: RunStore) -> RunEntry | None:
            return await store.get(run_id) if await self.retain(run_id) else None

        return await self._named(run_id, keep)

    async def claim_abandoned(self) -> RunEntry | None:
        """Claim a run without an owner; None where there is none."""
        return await self._any(lambda store: store.claim(self.worker, LEASE))

    async def steal(self) -> RunEntry | None:
        """Claim a run that waits at another worker; None where there is none."""
        return await self._any(lambda store: store.steal(self.worker, LEASE))

    async def _named(self, run_id: str, claim: Callable[[RunStore], Awaitable[RunEntry | None]]) -> RunEntry | None:
        store = self.store
        if store is None or run_id in self.owned or run_id in self._refused:
            return None
        self.owned.add(run_id)  # before the store is asked: who asks meanwhile is too late
        entry = None
        try:
            entry = await claim(store)
        finally:
            if entry is None:
                self.owned.discard(run_id)
        return entry

    async def _any(self, claim: Callable[[RunStore], Awaitable[RunEntry | None]]) -> RunEntry | None:
        store = self.store
        while store is not None and (entry := await claim(store)) is not None:
            if entry.id not in self.owned:  # else somebody here asked for it by name meanwhile
                self.owned.add(entry.id)
                return entry
        return None

    async def reopen(self, entry: RunEntry) -> None:
        """Let a claimed run be one that has not ended: other hosts would read the end that it had before."""
        end = RunEnd.construct(status=RunStatus.QUEUED, attempt=entry.attempt)
        await self.required_store().update(self.worker, entry.id, end)

    # --- giving away ------------------------------------------------------------------------------

    async def release(self, entry: RunEntry, status: RunStatus, reason: str | None = None) -> None:
        """Release a claimed run as it is, or as interrupted for a reason."""
        store = self.store
        if store is None:
            return
        error = TavernError(reason).info.model_copy(update={"code": "interrupted"}) if reason else entry.error
        try:
            with contextlib.suppress(Conflict):  # it is released already: two ways learn that a run handed on is to end
                await store.update(self.worker, entry.id, entry.end(status, error))
        finally:
            self.owned.discard(entry.id)

    async def interrupt(self, run_id: str) -> bool:
        """Let a run end that does not run here; False if it had finished. Raises `NotFound`."""
        if not await self.required_store().interrupt(run_id):
            return False
        if (entry := await self.claim(run_id)) is not None:  # nobody works on it
            is_over = entry.status.is_final
            await self.release(entry, *((entry.status,) if is_over else (RunStatus.INTERRUPTED, INTERRUPTED)))
        return True

    async def set_stealable(self, run_id: str) -> bool:
        """Let other workers take a run that waits; False where none can, so that it need not be kept from them."""
        store = self.store
        if run_id not in self.owned or store is None:
            return False
        try:
            return await store.set_stealable(self.worker, run_id, waits=True)
        except TavernError:  # the store may have done it all the same
            return True

    async def retain(self, run_id: str) -> bool:
        """Let no other worker take a run that was offered; False where one has. Only the store can tell: it is asked
        until it answers."""
        is_told = False
        while True:
            try:
                return await self.required_store().set_stealable(self.worker, run_id, waits=False)
            except TavernError as error:
                if not is_told:
                    self._context.log.warning("run %s waits, as it may be another host's: %s", run_id, error.message)
                is_told = True
            await asyncio.sleep(LOOK)

    async def requeue(self, entry: RunEntry) -> None:
        """Let a run that this worker has taken wait for another one."""

        def end() -> None:
            self.unhold(entry.id)
            ended = self.release(entry, RunStatus.INTERRUPTED, INTERRUPTED)
            self._context.tasks.spawn(ended, name=f"end of {entry.id}", finish=True)

        self.hold(entry.id, None, end)
        try:
            await self.required_store().set_stealable(self.worker, entry.id, waits=True)
        finally:
            self.owned.discard(entry.id)
