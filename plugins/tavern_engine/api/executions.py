"""The `executionEngine` service, and what it answers with beside runs."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads_content
from tavern_host.contracts.wire import Model


class Resumed(Model):
    """A run that was resumed: its own id, or that of the run that continues it; and the nodes whose results it
    keeps."""

    run_id: str
    kept: list[str] = Field(default_factory=list)


class RunFilter(Model):
    """Which runs of the history are asked for; newest first, `limit` of them after `offset` others."""

    statuses: list[RunStatus] = Field(default_factory=list)
    workflow_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    limit: int = Field(default=50, ge=1, le=1000)
    offset: int = Field(default=0, ge=0)


class RunSummary(Model):
    """What a list of runs shows of one."""

    id: str
    status: RunStatus
    workflow_id: str | None = None
    workflow_name: str | None = None
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    attempt: int = 1
    resumable: bool = True


class RunQueue(Model):
    """What runs and what waits."""

    running: list[Run] = Field(default_factory=list)
    pending: list[Run] = Field(default_factory=list)


_READ = "Read everybody's runs: their workflows, inputs and outputs."


class ExecutionEngine(ServiceInterface, name="executionEngine", version=3):
    """Runs workflows."""

    @acts("executionEngine:execute", "Run workflows.")
    async def submit(self, request: RunRequest, *, call: CallContext | None = None) -> str:
        """Check a run, accept it and return its id at once.

        Raises `InvalidInput` with every problem of the workflow or the inputs, `NotFound`, `Vetoed`.
        """

    @acts("executionEngine:execute", "Run workflows.")
    async def run(self, request: RunRequest, *, call: CallContext | None = None) -> Run:
        """Submit a run and return it when it is finished, whatever its end; cancelling interrupts it."""

    @reads_content("executionEngine:read", _READ)
    async def get(self, run_id: str) -> Run:
        """Return a run as it stands. Raises `NotFound`."""

    @reads_content("executionEngine:read", _READ, since=3)
    async def show(self, run_id: str) -> Run:
        """Return a run as it stands, to be shown: a value above about 256 KiB, and above 1 KiB once 2 MiB are shown,
        is `{"type": "large", "mediaType": "…", "length": 300000}`. Raises `NotFound`."""

    @acts("executionEngine:execute", "Run workflows.", since=3)
    async def output(
        self, run_id: str, key: str, *, node_id: str | None = None, call: CallContext | None = None
    ) -> Blob:
        """Return an output of a run, or of one of its nodes, as a Blob: text as text, other values as JSON, what is a
        Blob as it is. Raises `NotFound`."""

    @reads_content("executionEngine:read", _READ)
    async def wait(self, run_id: str) -> Run:
        """Return a run when it is finished. Raises `NotFound`."""

    @reads_content("executionEngine:read", _READ)
    async def queue(self) -> RunQueue:
        """Return the runs that are running and waiting."""

    @acts("executionEngine:interrupt", "Interrupt runs of workflows.")
    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Interrupt a run, in the middle of a node if need be; False if it had finished. Raises `NotFound`."""

    @reads_content("executionEngine:read", _READ, since=2)
    async def history(self, filter: RunFilter | None = None) -> list[RunSummary]:
        """Return runs, active ones among them, newest first."""

    @acts("executionEngine:execute", "Run workflows.", since=2)
    async def resume(
        self, run_id: str, *, changed: RunRequest | None = None, call: CallContext | None = None
    ) -> Resumed:
        """Resume a run that failed or was interrupted, from where it ended: nodes that finished keep their
        outputs.

        Without changes it keeps its id. With another document, or other inputs or overrides, a new run continues it:
        what is set in `changed` is used in the place of what it had, and what is different by that is run again with
        all that follows from it.

        Raises `NotFound`, `Conflict` for a run that is active, complete or cannot be resumed, and what `submit` raises.
        """

    @acts("executionEngine:execute", "Run workflows.", since=2)
    async def rerun(self, run_id: str, *, call: CallContext | None = None) -> str:
        """Run a run's workflow, as it was then, once more with the same inputs; return the new run's id.

        Raises `NotFound`, else what `submit` raises.
        """


EXECUTION_ENGINE = ServiceKey(ExecutionEngine)
