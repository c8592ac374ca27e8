"""Resumes the runs that a crashed host left behind, or marks them as interrupted, takes those that wait at a busy host
while this one has room, and deletes old ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from tavern_engine.api.runs import RunEntry
from tavern_engine.engine_settings import EngineSettings
from tavern_engine.journal.recorder import RunRecorder
from tavern_engine.journal.stored_run import StoredRun
from tavern_engine.run.active_run import INTERRUPTED
from tavern_engine.run.json_values import error_form
from tavern_engine.run.priority_semaphore import PrioritySemaphore
from tavern_host import CallContext, PluginContext
from tavern_host.contracts.errors import DeadlineExceeded, InvalidInput, TavernError
from tavern_host.contracts.executions import RunStatus

_RECOVER_EVERY, _PRUNE_EVERY = 10.0, 3600.0
"""Seconds between two searches for abandoned runs, and for old ones."""

_ATTEMPTS = 5
"""How often a run is started that crashes the host each time."""


class Recovery:
    """The recovery of one host. `resume` starts a claimed run."""

    def __init__(
        self,
        context: PluginContext,
        settings: EngineSettings,
        recorder: RunRecorder,
        slots: PrioritySemaphore,
        resume: Callable[[StoredRun, CallContext | None], Awaitable[object]],
    ) -> None:
        self._log = context.log
        self._is_draining = context.is_draining
        self._settings = settings
        self._recorder = recorder
        self._resume = resume
        self._slots = slots
        self._wake = asyncio.Event()
        self._may_wait = True
        self._takes_from = 0.0
        self._handed_on: dict[str, bool] = {}
        """Runs that this host could not run, and whether they still have to be tried again here."""

    def look(self) -> None:
        """Search at once: another host has left a run, or lets one wait."""
        self._may_wait = True
        self._wake.set()

    def has_room(self) -> None:
        """Search at once if runs may wait at other hosts: a slot is free here."""
        if self._may_wait and self._slots.free:
            self._wake.set()

    async def run(self) -> None:
        """Search for abandoned runs and old ones until cancelled."""
        next_pruning, told = 0.0, ""
        while True:
            try:
                await self._claim_abandoned()
                await self._take_waiting()
                if (now := asyncio.get_running_loop().time()) >= next_pruning:
                    next_pruning = now + _PRUNE_EVERY
                    settings = self._settings
                    await self._recorder.prune(
                        max_age=settings.kept_runs_seconds(), max_bytes=settings.kept_runs_bytes()
                    )
                told = ""
            except TavernError as error:
                # not of a busy store, or a host that stops; and once of a database that is away
                if error.info.code != DeadlineExceeded.code and error.message != told:
                    self._log.error("recovering runs from the run store failed: %s", error.message)
                    told = error.message
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RECOVER_EVERY):
                    await self._wake.wait()
            self._wake.clear()

    async def _claim_abandoned(self) -> None:
        """Resume the runs that have lost their worker, or mark them as interrupted."""
        while not self._is_draining() and (entry := await self._recorder.claims.claim_abandoned()) is not None:
            await self._take_up(entry)

    async def _take_waiting(self) -> None:
        """Start runs that wait at other hosts, as many as there are free slots here. No slot is held while the store is
        asked: a run of this host that comes then starts, and the one that was taken waits here, for any host."""
        now = asyncio.get_running_loop().time
        while self._slots.free and self._settings.resumes_abandoned() and now() >= self._takes_from:
            if self._is_draining():
                return
            self._may_wait = False  # unless one is found, or heard of meanwhile
            if (entry := await self._recorder.claims.steal() or await self._not_taken()) is None:
                return
            self._may_wait = True
            await self._take_up(entry, is_taken=True)

    async def _take_up(self, entry: RunEntry, *, is_taken: bool = False) -> None:
        """Resume a claimed run, or mark it as interrupted; hand one on that was taken and cannot run here."""
        why = self._why_not(entry)
        if why is None:
            before = "it waited at another host" if is_taken else "the host ended in the middle of it"
            try:
                stored = await self._recorder.load(entry)
                try:
                    await self._resume(stored, entry.call)
                    self._handed_on.pop(entry.id, None)
                except InvalidInput as error:  # this host does not have what the run needs, such as a plugin
                    if not is_taken:
                        raise
                    await self._requeue(entry, error.message)
                return
            except Exception as error:  # such as a plugin that is not loaded any more
                why = f"{before}, and it cannot be resumed: {error_form(error).message}"
        self._log.warning("run %s: %s", entry.id, why)
        await self._recorder.claims.release(entry, RunStatus.INTERRUPTED, why)

    async def _requeue(self, entry: RunEntry, why: str) -> None:
        """Let a run that was taken wait for a host that can run it; take no other for a while, which may be like it."""
        self._takes_from = asyncio.get_running_loop().time() + _RECOVER_EVERY
        if entry.id not in self._handed_on:
            self._log.warning("run %s waits for another host, since this one cannot run it: %s", entry.id, why)
        self._handed_on[entry.id] = True
        await self._recorder.claims.requeue(entry)

    async def _not_taken(self) -> RunEntry | None:
        """Return a run that was handed on, and that no host has taken or may take now: this one may have what it needs
        by now."""
        for run_id in [run_id for run_id, is_left in self._handed_on.items() if is_left]:
            self._handed_on[run_id] = False
            if (entry := await self._recorder.claims.take_back(run_id)) is not None:
                return entry
            del self._handed_on[run_id]
        return None

    def _why_not(self, entry: RunEntry) -> str | None:
        """Return why an abandoned run is not resumed."""
        ended = "the host ended in the middle of it"
        if entry.cancel_requested:
            return INTERRUPTED
        if entry.not_resumable is not None:
            return f"{ended}, and it cannot be resumed: {entry.not_resumable}"
        if not entry.request.recover:
            return f"{ended}, and so did the call that it was begun by"
        if entry.attempt >= _ATTEMPTS:
            return f"{ended} {entry.attempt} times; it is not tried again"
        if not self._settings.resumes_abandoned():
            return ended
        return None
