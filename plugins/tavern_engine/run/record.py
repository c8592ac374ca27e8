"""What is known of one run while it goes on and after it, and the messages that tell of the run as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from tavern_engine.compile.plan import Plan
from tavern_engine.run.account import Account
from tavern_engine.run.feed import Publish
from tavern_engine.run.wireform import INTERFACE_OUTPUTS
from tavern_engine.run.yields import placeholder
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import Run, RunFilter, RunRequest, RunStatus, RunSummary
from tavern_host.contracts.workflows import Workflow


class RunRecord:
    """The account of one run. `streams` are the interface outputs that go out as streams."""

    def __init__(
        self,
        run_id: str,
        request: RunRequest,
        workflow: Workflow,
        groups: dict[str, Workflow],
        plan: Plan,
        call: CallContext,
        publish: Publish,
        *,
        submitted_at: datetime | None = None,
        attempt: int = 1,
    ) -> None:
        self.id = run_id
        self.request = request
        self.workflow = workflow
        self.groups = groups
        self.call = call
        self.status = RunStatus.QUEUED
        self.error: ErrorInfo | None = None
        self.account = Account(plan.ids)
        self.attempt = attempt
        self.not_resumable: str | None = None
        self.streams: frozenset[str] = frozenset()
        self.workflow_id = request.workflow_id or workflow.id
        self.name = workflow.name or None
        self.submitted_at = submitted_at or datetime.now(UTC)
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None
        self._publish = publish

    def queued(self) -> None:
        """The run waits for its turn."""
        self._tell("EXECUTION_STATUS_UPDATE", status=self.status.value)

    def started(self) -> None:
        """The run's turn has come."""
        self.status = RunStatus.RUNNING
        self.started_at = datetime.now(UTC)
        self._tell("EXECUTION_STATUS_UPDATE", status=self.status.value)

    def announce_end(self, run: Run) -> None:
        """Tell of the run's end: its outputs, then its status."""
        self.status = run.status
        if run.outputs or run.status is RunStatus.COMPLETE:
            outputs = {key: _placeholder(key) if key in self.streams else v for key, v in run.outputs.items()}
            self._tell("NODE_COMPLETE", nodeId=INTERFACE_OUTPUTS, output=outputs)
        more: dict[str, JsonValue] = {}
        if run.error is not None:
            more["errorInfo"] = run.error.to_json()
        skipped = self.account.skipped()
        if skipped:
            more["skippedNodes"] = list(skipped)
        if run.not_resumable is not None:
            more["notResumable"] = run.not_resumable
        self._tell("EXECUTION_STATUS_UPDATE", status=run.status.value, **more)

    def snapshot(self, status: RunStatus | None = None, outputs: dict[str, JsonValue] | None = None) -> Run:
        """Return the run as it stands, or as it ended with `status` and `outputs`."""
        status = status or self.status
        if status.is_final and self.finished_at is None:
            self.finished_at = datetime.now(UTC)
        return Run(
            id=self.id,
            status=status,
            workflow_id=self.workflow_id,
            workflow_name=self.name,
            submitted_at=self.submitted_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            inputs=self.request.inputs,
            outputs=outputs or {},
            nodes=dict(self.account.node_states()),
            error=self.error,
            metadata=self.request.metadata,
            targets=self.request.targets,
            priority=self.request.priority,
            actions=self.request.actions,
            principal=self.call.principal,
            attempt=self.attempt,
            not_resumable=self.not_resumable,
        )

    def listed(self) -> RunSummary:
        """Return what the history shows of the run."""
        return RunSummary(
            id=self.id,
            status=self.status,
            workflow_id=self.workflow_id,
            workflow_name=self.name,
            submitted_at=self.submitted_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            error=self.error.message if self.error is not None else None,
            attempt=self.attempt,
            resumable=self.not_resumable is None,
        )

    def summary(self) -> dict[str, JsonValue]:
        """Return what a message about the queue shows of the run, cheaply."""
        form: dict[str, JsonValue] = {
            "promptId": self.id,
            "status": self.status.value,
            "submittedAt": self.submitted_at.isoformat(),
        }
        return form | ({"workflowName": self.name} if self.name else {})

    def _tell(self, type: str, **payload: Any) -> None:
        self._publish([(type, {"promptId": self.id, **payload})])


def remembered(finished: Iterable[Run], active: Iterable[RunRecord], filter: RunFilter) -> list[RunSummary]:
    """Return runs that are only remembered, as the history has them."""
    runs = [_listed(run) for run in finished] + [record.listed() for record in active]
    found = [run for run in sorted(runs, key=lambda run: run.submitted_at, reverse=True) if _fits(run, filter)]
    return found[filter.offset : filter.offset + filter.limit]


def _listed(run: Run) -> RunSummary:
    return RunSummary(
        id=run.id,
        status=run.status,
        workflow_id=run.workflow_id,
        workflow_name=run.workflow_name,
        submitted_at=run.submitted_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        error=run.error.message if run.error is not None else None,
        attempt=run.attempt,
        resumable=False,
    )


def _fits(run: RunSummary, filter: RunFilter) -> bool:
    text = f"{run.id} {run.workflow_id} {run.workflow_name} {run.error}".casefold()
    return (
        (not filter.statuses or run.status in filter.statuses)
        and filter.workflow_id in (None, run.workflow_id)
        and (filter.since is None or run.submitted_at >= filter.since)
        and (filter.until is None or run.submitted_at <= filter.until)
        and (filter.text is None or filter.text.casefold() in text)
    )


def _placeholder(key: str) -> JsonValue:
    message = "the output is a stream; its items came as WORKFLOW_INTERFACE_YIELD"
    return placeholder(message, interfaceOutputKey=key)
