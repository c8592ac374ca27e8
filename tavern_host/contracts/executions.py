"""Runs of workflows: what is asked, what happened, and the `executionEngine` service."""

from __future__ import annotations

import enum
from datetime import datetime

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model
from tavern_host.contracts.workflows import Workflow


class RunStatus(enum.StrEnum):
    """The status of a run or of one of its nodes."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETE = "complete"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (RunStatus.QUEUED, RunStatus.RUNNING)


class RunRequest(Model):
    """A run that is asked for: a stored workflow by id, or a document; values by interface input.

    What a filter on `tavern_before_execute` sees and may change.
    """

    workflow_id: str | None = None
    workflow: Workflow | None = None
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class NodeState(Model):
    """One node of a run. Times are seconds since the run began. `output` is JSON: a value that has none
    is shown as `{"type": "opaque", "python": "module.Class"}`."""

    status: RunStatus
    output: dict[str, JsonValue] | None = None
    error: ErrorInfo | None = None
    started: float | None = None
    finished: float | None = None


class Run(Model):
    """A run as it stands. `outputs` are the values of the workflow's interface outputs."""

    id: str
    status: RunStatus
    workflow_id: str | None = None
    workflow_name: str | None = None
    submitted_at: datetime
    finished_at: datetime | None = None
    outputs: dict[str, JsonValue] = Field(default_factory=dict)
    nodes: dict[str, NodeState] = Field(default_factory=dict)
    error: ErrorInfo | None = None


class RunQueue(Model):
    """What runs and what waits."""

    running: list[Run] = Field(default_factory=list)
    pending: list[Run] = Field(default_factory=list)


class ExecutionEngine(ServiceInterface, name="executionEngine"):
    """Runs workflows."""

    @acts("executionEngine:execute", "Run workflows.")
    async def submit(self, request: RunRequest, *, call: CallContext | None = None) -> str:
        """Check a run, accept it and return its id at once.

        Raises `InvalidInput` with every problem of the workflow or the inputs, `NotFound`, `Vetoed`.
        """

    @acts("executionEngine:execute", "Run workflows.")
    async def run(self, request: RunRequest, *, call: CallContext | None = None) -> Run:
        """Submit a run and return it when it is finished, whatever its end; cancelling interrupts it."""

    @reads
    async def get(self, run_id: str) -> Run:
        """Return a run as it stands. Raises `NotFound`."""

    @reads
    async def wait(self, run_id: str) -> Run:
        """Return a run when it is finished. Raises `NotFound`."""

    @reads
    async def queue(self) -> RunQueue:
        """Return the runs that are running and waiting."""

    @acts("executionEngine:interrupt", "Interrupt runs of workflows.")
    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Interrupt a run, in the middle of a node if need be; False if it had finished. Raises `NotFound`."""


EXECUTION_ENGINE = ServiceKey(ExecutionEngine)
