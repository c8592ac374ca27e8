"""Lets runs that wait at this host be taken by another one that shares the store of runs, and follows those that are.

Who has a run is decided in the store alone: a host asks it before it starts, or ends, a run that it has offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tavern_engine.api.runs import RUNS_CHANGED
from tavern_engine.engine_settings import EngineSettings
from tavern_engine.journal.recorder import RunRecorder
from tavern_engine.recovery import Recovery
from tavern_engine.run.active_run import ActiveRun
from tavern_engine.run.priority_semaphore import PrioritySemaphore
from tavern_engine.run.record import RunRecord
from tavern_engine.run.run_blobs import are_in
from tavern_host import PluginContext
from tavern_host.contracts.errors import ServiceUnavailable, TavernError
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import Run, RunStatus
from tavern_host.contracts.nodes import DataFlowType

POLL = 0.2
"""Seconds between two looks at a run that runs in another process."""

# Handing over. A run that waits for a slot is offered: `is_offered` here, and then `waits` in the store, in this order,
# so that a host which steals it at once is heard as one that may. Stealing changes the owner and ends the offer in one
# transaction. So a host that has a slot for a run which it has offered does not start it before the store says that it
# is still its own (`retain`), however long the store does not answer: else both would run it.
# `slot` returns None for a run that another host has, or is to have since this one stops. Nothing of it is recorded
# here from then on, but its callers still wait: `end` polls the store for them, and passes an interrupt on.
# What another host could not do alike is not offered (`_may_run_elsewhere`). A thief that cannot run what it has taken
# lets it wait again for others (`Claims.requeue`), and takes nothing for a while.


class Handover:
    """The runs of one host that wait for a slot: here, or where there is one."""

    def __init__(
        self, context: PluginContext, settings: EngineSettings, recorder: RunRecorder, slots: PrioritySemaphore
    ) -> None:
        self._context = context
        self._settings = settings
        self._recorder = recorder
        self._slots = slots

    async def hear(self, active: Mapping[str, ActiveRun], recovery: Recovery) -> None:
        """See what other hosts do with the runs of a store that they share."""
        async for event in self._context.events.subscribe(RUNS_CHANGED):
            if not isinstance(event, Event) or (own := active.get(str(event.payload["promptId"]))) is None:
                recovery.look()
            elif event.payload["worker"] == self._recorder.claims.worker:
                self._recorder.claims.look()
            elif own.is_offered:
                own.leave_to_claimant()

    async def slot(self, active: ActiveRun) -> bool | None:
        """Return whether a waiting run has a slot, once it has or has left the queue; None where another host has
        taken it, or is to take it, since this one stops."""
        while (ticket := active.ticket) is not None and not ticket.done():
            active.is_offered = self._may_run_elsewhere(active)  # before it is: others may be quick
            active.is_offered = active.is_offered and await self._recorder.claims.set_stealable(active.record.id)
            is_claimed_elsewhere = not await ticket and active.interrupted is None
            if active.is_offered and self._context.is_draining() and active.interrupted is None:
                return None  # to begin what the end of this host would cut off
            if (active.is_offered or is_claimed_elsewhere) and not await self._recorder.claims.retain(active.record.id):
                return None
            active.is_offered = False
            if is_claimed_elsewhere:  # but given back meanwhile
                active.ticket = self._slots.enter(active.record.request.priority)
        return ticket is None or ticket.result()

    def can_be_left(self, record: RunRecord) -> bool:
        """Return whether another host may take a run up."""
        can_go_on = self._context.serving and record.request.recover and record.not_resumable is None
        return can_go_on and self._settings.resumes_abandoned()

    def _may_run_elsewhere(self, active: ActiveRun) -> bool:
        """Return whether it makes no difference where a run runs: streams are heard, and Blobs are, at one host."""
        record = active.record
        levels = (record.workflow, *record.groups.values())
        return (
            self.can_be_left(record)
            and active.call.deadline is None
            and not active.execution.streams
            and DataFlowType.BINARY not in {s.data_flow_type for s in record.workflow.interface_outputs.values()}
            and not are_in(record.request.inputs, record.request.overrides)
            and not are_in(*(node.input_values for level in levels for node in level.nodes))
        )

    async def end(self, active: ActiveRun) -> Run | None:
        """Return a run that another host has taken when it has ended there; None where this host stops before, or is to
        stop and none has taken it or nobody waits for it here. An interrupt is passed on. Raises `TavernError` where
        the run is gone."""
        run_id = active.record.id
        while not self._context.is_stopping():
            try:
                if active.cancel_requested:
                    await self._recorder.claims.interrupt(run_id)
                if (entry := await self._recorder.entry(run_id)).status.is_final:
                    return await self._recorder.run(run_id)
                is_taken = entry.owner != self._recorder.claims.worker or entry.status is not RunStatus.QUEUED
                if self._context.is_draining() and not (is_taken and active.callers):
                    return None
            except TavernError as error:
                if error.info.code != ServiceUnavailable.code:
                    raise
            await asyncio.sleep(POLL)
        return None
