"""Runs of workflows: what is asked, and what happened; what the hooks before and after a run see."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, JsonValue

from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.wire import ImmutableJson, Model, SharingModel
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


class RunActions(Model):
    """That the calls which action text in a run's outputs asks for are made: on whose behalf (by default of who
    submitted the run), and in which protocols (by default all that are for text). In JSON `true` stands for both
    defaults, `false` for no actions."""

    principal: Principal | None = None
    protocols: list[str] | None = None


def _actions(value: object) -> object:
    if isinstance(value, bool):
        return RunActions() if value else None
    return value


Actions = Annotated[RunActions | None, BeforeValidator(_actions)]


class RunRequest(SharingModel):
    """A run that is asked for: a stored workflow by id, or a document; values by interface input.

    What a filter on `tavern_before_execute` sees and may change. `targets` names nodes: only they and what they
    need are run. Of waiting runs those with the higher `priority` come first. With `actions`, the calls
    that the outputs ask for are made; other runs are left alone. With `use_cache` off, every node runs. With `recover`
    off, the next host does not resume the run where this one dies in the middle of it: what waited for it is gone.
    With `keep` off nothing of the run is written or cached, and neither its result nor messages about it have inputs or
    the outputs of its nodes: for runs whose values somebody else keeps.
    With `inline`, the method `run` carries the run out as a part of its caller's work, in its task: it waits for no
    slot, stands in no queue, and its messages are made only where somebody subscribes to them. Completed, it leaves
    nothing behind, and its `Run` has no nodes; one that did not complete, or gave Blobs, is recorded as others are.
    Other methods take no notice of it.

    `overrides` are outputs of nodes, by node and slot, such as pinned or edited ones: these nodes count as done, and
    what leads to them alone is not run. A node in a group is `instance/node`.

    `continues`: the run whose results it has, as far as they are valid; set by `resume` alone.
    """

    workflow_id: str | None = None
    workflow: Workflow | None = None
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    overrides: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    targets: list[str] = Field(default_factory=list)
    priority: int = Field(default=0, ge=-1000, le=1000)
    actions: Actions = None
    use_cache: bool = True
    recover: bool = True
    keep: bool = True
    inline: bool = False
    continues: str | None = None

    def owned(self) -> Self:
        """Return the request with plain inputs."""
        inputs: dict[str, Any] = self.inputs
        plain = {key: value.plain() for key, value in inputs.items() if isinstance(value, ImmutableJson)}
        return self.model_copy(update={"inputs": {**inputs, **plain}}) if plain else self


class RemoteWork(Model):
    """Where a node was run, how many bytes of values it took and gave, and how many seconds it ran."""

    worker: str
    received: int
    given: int
    seconds: float


class NodeState(Model):
    """One node of a run. Times are seconds since the run began. `output` is JSON: bytes, which have none, are shown as
    `{"type": "opaque", "python": "builtins.bytes"}`, a stream as all its text or the list of its items; of a
    very long one the first are kept (100,000, or about 8 MiB).

    `cached`: the outputs are those of an earlier run; `given`: they came with the run. `attempts`: how often it was
    tried, where more than once. `iterations`: how often it ran, in a loop. `remote`: what a cluster did for it last.
    """

    status: RunStatus
    output: dict[str, JsonValue] | None = None
    error: ErrorInfo | None = None
    started: float | None = None
    finished: float | None = None
    cached: bool = False
    given: bool = False
    bypassed: bool = False
    attempts: int = 1
    iterations: int | None = None
    remote: RemoteWork | None = None


class Run(Model):
    """A run as it stands. `outputs` are the values of the workflow's interface outputs.

    Nodes inside a group have the id `instance/node`. `not_resumable` says why the run cannot resume after the host
    ended in the middle of it, where that is so. `attempt` counts how often it was begun: more than once where it
    was resumed. `principal` is who asked for it. `missing_outputs` are the interface outputs of a complete run that got
    no value: nothing feeds them, or what does was skipped or gave none. `continues` is the failed run that it has
    results of.
    """

    id: str
    status: RunStatus
    workflow_id: str | None = None
    workflow_name: str | None = None
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    outputs: dict[str, JsonValue] = Field(default_factory=dict)
    missing_outputs: list[str] = Field(default_factory=list)
    nodes: dict[str, NodeState] = Field(default_factory=dict)
    error: ErrorInfo | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    targets: list[str] = Field(default_factory=list)
    priority: int = 0
    actions: Actions = None
    principal: Principal | None = None
    attempt: int = 1
    not_resumable: str | None = None
    continues: str | None = None
