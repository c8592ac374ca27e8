"""Resumes the runs that a crashed host left behind, or marks them as interrupted, and deletes old ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tavern_engine.engine_settings import EngineSettings
from tavern_engine.journal.recorder import RunRecorder, StoredRun
from tavern_engine.run.active_run import INTERRUPTED
from tavern_engine.run.json_values import error_form
from tavern_host import CallContext, PluginContext
from tavern_host.contracts.errors import DeadlineExceeded, TavernError
from tavern_host.contracts.executions import RunStatus
from tavern_host.contracts.runs import RunEntry

_RECOVER_EVERY, _PRUNE_EVERY = 10.0, 3600.0
"""Seconds between two searches for abandoned runs, and for old ones."""

_ATTEMPTS = 5
"""How often a run is started that crashes the host each time."""


class Recovery:
    """The recovery of one host. `is_active` tells whether a run runs here, `resume` starts a claimed one."""

    def __init__(
        self,
        context: PluginContext,
        settings: EngineSettings,
        recorder: RunRecorder,
        is_active: Callable[[str], bool],
        resume: Callable[[StoredRun, CallContext | None], Awaitable[None]],
    ) -> None:
        self._log = context.log
        self._settings = settings
        self._recorder = recorder
        self._is_active = is_active
        self._resume = resume

    async def run(self) -> None:
        """Search for abandoned runs and old ones until cancelled."""
        next_pruning = 0.0
        while True:
            try:
                await self._claim_abandoned()
                if (now := asyncio.get_running_loop().time()) >= next_pruning:
                    next_pruning = now + _PRUNE_EVERY
                    settings = self._settings
                    await self._recorder.prune(
                        max_age=settings.kept_runs_seconds(), max_bytes=settings.kept_runs_bytes()
                    )
            except TavernError as error:
                if error.info.code != DeadlineExceeded.code:  # a busy store, or a host that stops
                    self._log.error("recovering runs from the run store failed: %s", error.message)
            await asyncio.sleep(_RECOVER_EVERY)

    async def _claim_abandoned(self) -> None:
        """Resume the runs that have lost their worker, or mark them as interrupted."""
        while (entry := await self._recorder.claim()) is not None:
            if self._is_active(entry.id):
                continue
            why = self._why_not(entry)
            if why is None:
                try:
                    await self._resume(await self._recorder.load(entry), entry.call)
                    continue
                except Exception as error:  # such as a plugin that is not loaded any more
                    info = error_form(error)
                    why = f"the host ended in the middle of it, and it cannot be resumed: {info.message}"
            self._log.warning("run %s: %s", entry.id, why)
            await self._recorder.release(entry, RunStatus.INTERRUPTED, why)

    def _why_not(self, entry: RunEntry) -> str | None:
        """Return why an abandoned run is not resumed."""
        ended = "the host ended in the middle of it"
        if entry.is_unwanted:
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
