"""What is known of one run while it goes on and after it: statuses, outputs, errors, times. Tells the
event bus of each change, under the platform's message names; decides nothing."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from tavern_engine.plan import Plan
from tavern_engine.wireform import INTERFACE_OUTPUTS, json_form
from tavern_host.context import Events
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import NodeState, Run, RunStatus


class RunRecord:
    """The account of one run. Nodes are known by their index in the plan."""

    def __init__(self, run_id: str, plan: Plan, events: Events, *, workflow_id: str | None, name: str | None) -> None:
        self.id = run_id
        self.status = RunStatus.QUEUED
        self.error: ErrorInfo | None = None
        self._plan = plan
        self._events = events
        self._workflow_id = workflow_id
        self._name = name
        self._submitted_at = datetime.now(UTC)
        self._began = time.monotonic()
        count = len(plan.nodes)
        self._statuses = [RunStatus.QUEUED] * count
        self._outputs: list[dict[str, JsonValue] | None] = [None] * count
        self._errors: list[ErrorInfo | None] = [None] * count
        self._started: list[float | None] = [None] * count
        self._finished: list[float | None] = [None] * count

    # --- what happens to nodes --------------------------------------------------------------------

    def executing(self, index: int) -> None:
        """A node begins."""
        self._statuses[index] = RunStatus.RUNNING
        self._started[index] = self._now()
        node = self._plan.nodes[index]
        if not node.is_hidden:
            self._tell("NODE_EXECUTING", nodeId=node.id)

    def completed(self, index: int, outputs: dict[str, Any]) -> None:
        """A node gave its outputs."""
        shown = {str(key): json_form(value) for key, value in outputs.items()}
        self._settle(index, RunStatus.COMPLETE)
        self._outputs[index] = shown
        node = self._plan.nodes[index]
        if not node.is_hidden:
            self._tell("NODE_COMPLETE", nodeId=node.id, output=shown)

    def failed(self, index: int, error: ErrorInfo) -> None:
        """A node failed; the first failure is the run's."""
        node = self._plan.nodes[index]
        self._settle(index, RunStatus.ERROR)
        self._errors[index] = error
        if self.error is None:
            message = f"node {node.id} ({node.label}): {error.message}"
            self.error = error.model_copy(update={"message": message, "details": {**error.details, "node": node.id}})
        self._tell("NODE_ERROR", nodeId=node.id, errorDetails=error.to_json())

    def skipped(self, index: int) -> None:
        """A node will not run, since one before it failed."""
        self._statuses[index] = RunStatus.SKIPPED

    def interrupted(self, index: int) -> None:
        """A node was stopped while it ran."""
        self._settle(index, RunStatus.INTERRUPTED)

    def _settle(self, index: int, status: RunStatus) -> None:
        self._statuses[index] = status
        self._finished[index] = self._now()

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 6)

    # --- what happens to the run ------------------------------------------------------------------

    def started(self) -> None:
        """The run's turn has come; times count from here."""
        self.status = RunStatus.RUNNING
        self._began = time.monotonic()
        self._tell("EXECUTION_STATUS_UPDATE", status=self.status.value)

    def queued(self) -> None:
        """The run waits for its turn."""
        self._tell("EXECUTION_STATUS_UPDATE", status=self.status.value)

    def close_nodes(self) -> None:
        """Nothing more will happen to nodes: those that still run were stopped, the others never began."""
        for index, status in enumerate(self._statuses):
            if status is RunStatus.RUNNING:
                self.interrupted(index)
            elif status is RunStatus.QUEUED:
                self.skipped(index)

    def announce_end(self, run: Run) -> None:
        """Tell of the run's end: its outputs, then its status."""
        self.status = run.status
        if run.outputs or run.status is RunStatus.COMPLETE:
            self._tell("NODE_COMPLETE", nodeId=INTERFACE_OUTPUTS, output=run.outputs)
        more: dict[str, JsonValue] = {}
        if run.error is not None:
            more["errorInfo"] = run.error.to_json()
        skipped = [node_id for node_id, state in run.nodes.items() if state.status is RunStatus.SKIPPED]
        if skipped:
            more["skippedNodes"] = list(skipped)
        self._tell("EXECUTION_STATUS_UPDATE", status=run.status.value, **more)

    def snapshot(self, status: RunStatus | None = None, outputs: dict[str, JsonValue] | None = None) -> Run:
        """Return the run as it stands, or as it ended with `status` and `outputs`."""
        status = status or self.status
        return Run(
            id=self.id,
            status=status,
            workflow_id=self._workflow_id,
            workflow_name=self._name,
            submitted_at=self._submitted_at,
            finished_at=datetime.now(UTC) if status.is_final else None,
            outputs=outputs or {},
            nodes={n.id: self._node_state(i) for i, n in enumerate(self._plan.nodes) if not n.is_hidden},
            error=self.error,
        )

    def summary(self) -> dict[str, JsonValue]:
        """Return what a list of runs shows of this one, cheaply."""
        form: dict[str, JsonValue] = {
            "promptId": self.id,
            "status": self.status.value,
            "submittedAt": self._submitted_at.isoformat(),
        }
        return form | ({"workflowName": self._name} if self._name else {})

    def _node_state(self, index: int) -> NodeState:
        return NodeState(
            status=self._statuses[index],
            output=self._outputs[index],
            error=self._errors[index],
            started=self._started[index],
            finished=self._finished[index],
        )

    def _tell(self, type: str, **payload: JsonValue) -> None:
        self._events.publish(type, {"promptId": self.id, **payload})
