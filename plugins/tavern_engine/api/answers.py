"""What routes for runs and node types take and answer with, beside the models of the service."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, JsonValue

from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import Run
from tavern_host.contracts.host_api import Done
from tavern_host.contracts.wire import Model


class NodesReloaded(Done):
    """What became of plugins, and how many node types there are now."""

    count: int


class PromptAccepted(Model):
    """A run was accepted under this id."""

    prompt_id: str


class PromptSummary(Model):
    """A run as lists of the platform show it."""

    prompt_id: str
    status: str
    workflow_id: str | None = None
    workflow_name: str | None = None
    submitted_at: datetime


class PromptNodeState(Model):
    """A node of a run."""

    status: str
    output: JsonValue = None
    error: ErrorInfo | None = None


class PromptState(PromptSummary):
    """A run as it stands, in the platform's form."""

    node_status: dict[str, PromptNodeState] = Field(default_factory=dict)
    outputs: dict[str, JsonValue] | None = None
    error_info: ErrorInfo | None = None
    finished_at: datetime | None = None


class Executions(Model):
    """What runs and what waits."""

    running: list[PromptSummary]
    pending: list[PromptSummary]


class RunPage(Model):
    """A page of the run history; the last has fewer runs than its limit."""

    runs: list[Run]
    limit: int
    offset: int


class RunStarted(Model):
    """A run that was run once more has a new id."""

    run_id: str


class InputValues(Model):
    """Input values of a node that change."""

    input_values: dict[str, JsonValue]


class SystemStats(Model):
    """How busy the host is, and what is wrong with the audit log."""

    max_concurrent_workflows: int
    running_executions: int
    pending_executions: int
    audit_log_problem: str | None = None


class RunQuery(Model):
    """Which runs: `status` is one or several with commas between them; `since` and `until` are points in time (ISO
    8601) or ages such as `2h`; `text` is in the id or the workflow's name."""

    status: str | None = None
    workflow_id: str | None = None
    since: str | None = None
    until: str | None = None
    text: str | None = None
    limit: int | None = None
    offset: int | None = None


class OutputQuery(Model):
    """The node whose output is meant; without it, an output of the workflow's interface."""

    node_id: str | None = None
