"""A run that has not ended, with what the engine needs to drive and to stop it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field

from tavern_engine import EngineState
from tavern_engine.run.event_batch import EventBatch
from tavern_engine.run.node_table import State
from tavern_engine.run.priority_semaphore import Ticket
from tavern_engine.run.record import RunRecord
from tavern_engine.run.run_blobs import RunBlobs
from tavern_engine.run.run_execution import RunExecution
from tavern_host import clock
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.executions import Run, RunStatus

INTERRUPTED = "the run was interrupted"


@dataclass(eq=False)
class ActiveRun:
    """An unfinished run. `ticket` is None for an inline run, and for one within a run that `has_slot`, which it shares.
    `cancel_requested` after somebody asked to interrupt it, `is_offered` while it waits and another host may steal it;
    `callers` is how many wait for its end; `kept` are the nodes that have their results from before. `unrecorded` is
    what an inline run is recorded from, if it is to be."""

    record: RunRecord
    execution: RunExecution
    call: CallContext
    ticket: Ticket | None
    has_slot: bool
    blobs: RunBlobs
    unrecorded: EventBatch | None
    interrupted: str | None = None
    cancel_requested: bool = False
    is_offered: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    task: asyncio.Task[None] | None = None
    result: Run | None = None
    callers: int = 0
    kept: list[str] = field(default_factory=list)

    async def outcome(self) -> Run:
        """Return the run when it has ended, here or at another host."""
        self.callers += 1
        try:
            await self.ended.wait()
        finally:
            self.callers -= 1
        assert self.result is not None
        return self.result

    def count(self, state: EngineState, status: RunStatus) -> None:
        """Count the run and its nodes for the figures of the host. The nodes of a large run are counted as one kind; of
        one in a loop its last iteration counts."""
        record, nodes = self.record, self.record.nodes
        began = record.started_at
        seconds = (clock.now() - began).total_seconds() if began is not None else 0.0
        state.runs.add(status.value, seconds=seconds)
        if not (types := self.execution.types):
            for code, count in Counter(nodes.states).items():
                state.nodes.add("*", "*", State(code).name.lower(), count=count)
            return
        alike: dict[tuple[tuple[str, str], int], list[float]] = {}
        for kind, code, start, end in zip(types, nodes.states, nodes.started, nodes.finished, strict=True):
            alike.setdefault((kind, code), []).append(end - start if end > start else 0.0)
        for (kind, code), spent in alike.items():
            state.nodes.add(*kind, State(code).name.lower(), count=len(spent), seconds=sum(spent))

    def stop(self) -> None:
        """Interrupt the run because somebody asked for it."""
        self.cancel_requested = True
        self.interrupt()

    def leave_to_claimant(self) -> None:
        """Leave the queue, or stop the execution, since another worker has claimed the run."""
        if self.is_offered and self.ticket is not None and not self.ticket.done():
            self.ticket.set_result(False)
        else:
            self.interrupt("the run was interrupted: another worker has claimed it")

    def interrupt(self, why: str = INTERRUPTED) -> None:
        """Leave the queue, or stop the execution."""
        self.interrupted = self.interrupted or why
        if self.ticket is not None and not self.ticket.done():
            self.ticket.set_result(False)
        if not self.ended.is_set():
            self.execution.stop()
