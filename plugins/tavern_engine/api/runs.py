"""Where runs are kept so that none is lost: the `runStore` service.

A worker is one running engine, under a name that no other has. It claims a run for a time, its lease, and renews it
while it works on the run; a run whose lease is over belongs to nobody, and another worker may claim it. So several
workers can share one store. Who may write to a run is decided by who claimed it last, not by the clock: a worker
whose run was claimed by another is refused with `Conflict` from then on.

For stores that several machines share: times of leases are the store's own (one clock), claiming is one atomic step,
and contents may be in a store of objects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from pydantic import Field, JsonValue

from tavern_engine.api.executions import RunFilter, RunSummary
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads, reads_content
from tavern_host.contracts.wire import Model


class RunEntry(Model):
    """A run as it is kept. `request` holds the inputs as they were given, and no document.

    `workflow` and, by the id that refers to it, `groups` name the documents as they were when the run was accepted,
    so that it can resume although they changed: each by the hash of its content, which `RunStore.put` keeps once for
    all runs. `owner` is the worker that claimed it last, until `lease_until`. `cancel_requested` after somebody asked
    that it ends. `batches` of node results are kept apart.
    """

    id: str
    status: RunStatus = RunStatus.QUEUED
    request: RunRequest
    workflow: str
    groups: dict[str, str] = Field(default_factory=dict)
    call: CallContext
    workflow_id: str | None = None
    workflow_name: str | None = None
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    outputs: dict[str, JsonValue] = Field(default_factory=dict)
    missing_outputs: list[str] = Field(default_factory=list)
    error: ErrorInfo | None = None
    attempt: int = 1
    not_resumable: str | None = None
    owner: str | None = None
    lease_until: datetime | None = None
    cancel_requested: bool = False

    def end(self, status: RunStatus, error: ErrorInfo | None) -> RunEnd:
        """Return how the run stands, with another status and error."""
        kept = {name: getattr(self, name) for name in RunEnd.model_fields if name != "started_at"}
        return RunEnd.construct(**{**kept, "status": status, "error": error})


class RunEnd(Model):
    """How a run ended, or how it stands: what `update` writes in the place of what was there.

    Without a `started_at` the one that is kept stays; a run that ended without a `finished_at` ended now.
    """

    status: RunStatus
    started_at: datetime | None = None
    finished_at: datetime | None = None
    outputs: dict[str, JsonValue] = Field(default_factory=dict)
    missing_outputs: list[str] = Field(default_factory=list)
    error: ErrorInfo | None = None
    attempt: int = 1
    not_resumable: str | None = None


_READ = "Read the record of everybody's runs."


class RunStore(ServiceInterface, name="runStore", version=5):
    """Keeps runs and what their nodes gave. What a call wrote has survived the end of the process when it returns."""

    @acts("runStore:write", "Write and delete the record of runs.")
    async def accept(
        self,
        entry: RunEntry,
        *,
        worker: str,
        lease: float,
        documents: tuple[bytes, ...] = (),
        call: CallContext | None = None,
    ) -> None:
        """Keep a new run, claimed by `worker` for `lease` seconds, and `documents` of it as `put` does.

        Raises `Conflict` for an id that is taken, `NotFound` where another document of it is not there (give it then:
        those that no run needs are forgotten), `InvalidInput` for inputs that cannot be kept.
        """

    @acts("runStore:write", "Write and delete the record of runs.")
    async def claim(
        self, worker: str, lease: float, *, run_id: str | None = None, call: CallContext | None = None
    ) -> RunEntry | None:
        """Claim a run that is neither finished nor anybody's, of several the one with the highest priority, then
        the oldest; or `run_id` (finished or not, the worker's own too), which is wanted then. None where there is none
        such, or another worker has it.

        A store may know that a worker has ended before its lease is over.
        """

    @acts("runStore:write", "Write and delete the record of runs.", since=4)
    async def set_stealable(self, worker: str, run_id: str, *, waits: bool, call: CallContext | None = None) -> bool:
        """Keep that a run of a worker waits there, so that any other may `steal` it, or does not wait any more; False
        where another has it by now, or where no worker could take it."""

    @acts("runStore:write", "Write and delete the record of runs.", since=4)
    async def steal(self, worker: str, lease: float, *, call: CallContext | None = None) -> RunEntry | None:
        """Claim a run that waits at another worker, of several the one that `claim` would; None where there is none."""

    @acts("runStore:write", "Write and delete the record of runs.")
    async def renew(
        self, worker: str, run_ids: list[str], lease: float, *, call: CallContext | None = None
    ) -> list[str]:
        """Prolong the claims of a worker; return those of the runs that are still its own."""

    @acts("runStore:write", "Write and delete the record of runs.", since=3)
    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Keep that a run is to end, wherever it runs; False for one that is finished. Raises `NotFound`."""

    @reads(since=3)
    async def cancel_requested(self, worker: str) -> list[str]:
        """Return the runs of a worker that are to end. It is asked about once a second."""

    @acts("runStore:write", "Write and delete the record of runs.")
    async def append(
        self,
        worker: str,
        run_id: str,
        batch: bytes,
        *,
        contents: tuple[str, ...] = (),
        call: CallContext | None = None,
    ) -> None:
        """Add a batch of node results, as its worker encoded it. `contents` are the hashes of the large values that
        it refers to, which are kept as long as the run is.

        Raises `Conflict` where the run is another's or gone, `NotFound` where such a value is not there.
        """

    @acts("runStore:write", "Write and delete the record of runs.")
    async def update(
        self,
        worker: str,
        run_id: str,
        end: RunEnd,
        *,
        batch: bytes = b"",
        contents: tuple[str, ...] = (),
        call: CallContext | None = None,
    ) -> None:
        """Write how a run stands, and with it a last `batch`, if there is one, as `append` does; a final status gives
        the run back. Raises as `append`."""

    @reads_content("runStore:read", _READ)
    async def get(self, run_id: str) -> RunEntry:
        """Return a run. Raises `NotFound`."""

    @reads_content("runStore:read", _READ)
    async def batches(self, run_id: str) -> list[bytes]:
        """Return the batches of a run, oldest first. Raises `NotFound`."""

    @reads_content("runStore:read", _READ, since=2)
    async def contents(self, run_id: str) -> list[str]:
        """Return the hashes of the documents and large values that a run needs, in order. Raises `NotFound`."""

    @reads_content("runStore:read", _READ)
    async def list_runs(self, filter: RunFilter) -> list[RunSummary]:
        """Return runs, newest first. `text` is looked for in the id, the workflow's name and the error, whatever
        the case; `since` and `until` are about when a run was submitted, both included."""

    @acts("runStore:write", "Write and delete the record of runs.")
    async def put(self, content: bytes, *, call: CallContext | None = None) -> str:
        """Keep a large value or a document apart, once however often it is put; return the SHA-256 of its content
        in hex, by which it is found. It stays while a run refers to it, and for an hour at least."""

    @reads_content("runStore:read", _READ)
    async def content(self, hash: str) -> bytes:
        """Return the bytes that were `put`. Raises `NotFound` where they are not there, or damaged."""

    @acts("runStore:write", "Write and delete the record of runs.")
    async def delete(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Forget a finished run; False where there is none. Raises `Conflict` for one that is not finished, or that
        a worker has claimed."""

    @acts("runStore:write", "Write and delete the record of runs.")
    async def prune(self, *, max_age: float, max_bytes: int, call: CallContext | None = None) -> int:
        """Forget finished runs that ended more than `max_age` seconds ago, then the oldest until what is kept takes
        at most `max_bytes`, and large values that no run needs; return how many runs were forgotten.

        Runs that are not finished, or that a worker has claimed, stay.
        """

    @acts("runStore:write", "Write and delete the record of runs.", since=5)
    def adopt(self, *, call: CallContext | None = None) -> AsyncIterator[dict[str, JsonValue]]:
        """Copy the runs that the project's files have and a database that hosts share has not, oldest first; yield of
        each its `id`, what `became` of it (`moved`, `there` before, or `in use` and left), and `of` how many it is
        one."""


RUN_STORE = ServiceKey(RunStore)

RUNS_CHANGED = "RUNS_CHANGED"
"""The event at each host that shares a store: the run `promptId` of `worker` waits, was taken or given back, or is to
end."""
