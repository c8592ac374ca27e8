"""The state of one run, as the engine has it, and the messages about the run as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from tavern_engine.api.executions import RunFilter, RunSummary
from tavern_engine.api.runs import RunEntry
from tavern_engine.compile.plan import Plan
from tavern_engine.run.json_values import INTERFACE_OUTPUTS, MESSAGE, without_large
from tavern_engine.run.node_table import NodeTable
from tavern_engine.run.stream_messages import Message, Publish, placeholder
from tavern_host import clock
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import NodeState, Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow


class RunRecord:
    """One run. `streams` are the interface outputs that are published as streams. One that `is_inline` is carried out
    in the task of its caller."""

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
        is_inline: bool = False,
    ) -> None:
        self.id = run_id
        self.request = request
        self.workflow = workflow
        self.groups = groups
        self.call = call
        self.status = RunStatus.QUEUED
        self.error: ErrorInfo | None = None
        self.nodes = NodeTable(plan.ids, shows_outputs=request.keep)
        self.attempt = attempt
        self.is_inline = is_inline
        self.is_resumed = submitted_at is not None
        self.not_resumable: str | None = None
        self.missing_outputs: list[str] = []
        self.streams: frozenset[str] = frozenset()
        self.workflow_id = request.workflow_id or workflow.id
        self.workflow_name = workflow.name or None
        self.submitted_at = submitted_at or clock.now()
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None
        self.publish = publish

    def queued(self) -> None:
        """Publish that the run waits in the queue."""
        self.publish([self._message("EXECUTION_STATUS_UPDATE", status=self.status.value)])

    def started(self) -> None:
        """Set the run to running, and publish that."""
        self.status = RunStatus.RUNNING
        self.started_at = clock.now()
        self.publish([self._message("EXECUTION_STATUS_UPDATE", status=self.status.value)])

    def announce_end(self, run: Run) -> None:
        """Publish the end of the run: its outputs, then its status."""
        self.status = run.status
        messages: list[Message] = []
        if run.outputs or run.status is RunStatus.COMPLETE:
            outputs = {key: _placeholder(key) if key in self.streams else v for key, v in run.outputs.items()}
            outputs = without_large(outputs, most=MESSAGE)
            messages.append(self._message("NODE_COMPLETE", nodeId=INTERFACE_OUTPUTS, output=outputs))
        about: dict[str, JsonValue] = {
            "errorInfo": None if run.error is None else run.error.to_json(),
            "skippedNodes": [*self.nodes.skipped()],
            "notResumable": run.not_resumable,
            "missingOutputs": [*self.missing_outputs],
        }
        said = {key: value for key, value in about.items() if value}
        self.publish([*messages, self._message("EXECUTION_STATUS_UPDATE", status=run.status.value, **said)])

    async def present(self) -> Run:
        """Return the run in its present state; of a large one, others get their turn meanwhile."""
        return self.snapshot(nodes=await self.nodes.all_states())

    def snapshot(
        self,
        status: RunStatus | None = None,
        outputs: dict[str, JsonValue] | None = None,
        nodes: dict[str, NodeState] | None = None,
    ) -> Run:
        """Return the run in its present state, or ended with `status` and `outputs`; `nodes` where they are known."""
        status = status or self.status
        if status.is_final and self.finished_at is None:
            self.finished_at = clock.now()
        return run_of(self, status, outputs or {}, self.nodes.node_states() if nodes is None else nodes)

    def summary(self) -> dict[str, JsonValue]:
        """Return the fields of the run in a message about the queue, without reading its results."""
        form: dict[str, JsonValue] = {
            "promptId": self.id,
            "status": self.status.value,
            "submittedAt": self.submitted_at.isoformat(),
        }
        return form | ({"workflowName": self.workflow_name} if self.workflow_name else {})

    def _message(self, type: str, **payload: Any) -> Message:
        return type, {"promptId": self.id, **payload}


def run_of(
    facts: RunRecord | RunEntry, status: RunStatus, outputs: dict[str, JsonValue], nodes: dict[str, NodeState]
) -> Run:
    """Return a run as the service `executionEngine` shows it."""
    request = facts.request
    return Run.construct(
        id=facts.id,
        status=status,
        workflow_id=facts.workflow_id,
        workflow_name=facts.workflow_name,
        submitted_at=facts.submitted_at,
        started_at=facts.started_at,
        finished_at=facts.finished_at,
        inputs=request.inputs if request.keep else {},
        outputs=outputs,
        missing_outputs=facts.missing_outputs,
        nodes=nodes,
        error=facts.error,
        metadata=request.metadata,
        targets=request.targets,
        priority=request.priority,
        actions=request.actions,
        principal=facts.call.principal,
        attempt=facts.attempt,
        not_resumable=facts.not_resumable,
        continues=request.continues,
    )


def list_in_memory(finished: Iterable[Run], active: Iterable[RunRecord], filter: RunFilter) -> list[RunSummary]:
    """Return the summaries of runs where no run store is provided, newest first."""
    runs = [_summary_of(run, resumable=False) for run in finished]
    runs += [_summary_of(record, resumable=record.not_resumable is None) for record in active]
    found = [run for run in sorted(runs, key=lambda run: run.submitted_at, reverse=True) if _fits(run, filter)]
    return found[filter.offset : filter.offset + filter.limit]


def _summary_of(run: Run | RunRecord, *, resumable: bool) -> RunSummary:
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
        resumable=resumable,
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


def withheld(run: Run, reason: ErrorInfo) -> Run:
    """Return a run without its results: its effects stand, but its outputs are withheld."""
    nodes = {
        node_id: NodeState(status=state.status, error=state.error, started=state.started, finished=state.finished)
        for node_id, state in run.nodes.items()
    }
    return run.model_copy(update={"status": RunStatus.ERROR, "outputs": {}, "nodes": nodes, "error": reason})
