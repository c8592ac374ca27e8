"""A run that has not ended, with what the engine needs to drive and to stop it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from tavern_engine.run.priority_semaphore import Ticket
from tavern_engine.run.record import RunRecord
from tavern_engine.run.run_execution import RunExecution
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.executions import Run


@dataclass(eq=False)
class ActiveRun:
    """An unfinished run. `ticket` is None for a run within a run: it shares the slot of its parent. `is_unwanted` after
    somebody asked to interrupt it."""

    record: RunRecord
    execution: RunExecution
    call: CallContext
    ticket: Ticket | None
    interrupted: str | None = None
    is_unwanted: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    task: asyncio.Task[None] | None = None
    result: Run | None = None

    def interrupt(self, why: str = "the run was interrupted") -> None:
        """Leave the queue, or stop the execution."""
        self.interrupted = self.interrupted or why
        if self.ticket is not None and not self.ticket.done():
            self.ticket.set_result(False)
        if not self.ended.is_set():
            self.execution.stop()
