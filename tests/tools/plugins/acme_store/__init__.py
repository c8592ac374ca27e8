"""A plugin for tests: a workflow manager whose workflows are not files; it checks them as the one that it overrides."""

from __future__ import annotations

from typing import Any

from helpers.forwarding import forwarding

from tavern_host import hookimpl
from tavern_host.contracts.services import ServiceInfo, service_info
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import WORKFLOW_MANAGER, StoredWorkflow, WorkflowSummary

STORED: dict[str, StoredWorkflow] = {}


@hookimpl
def tavern_override_services() -> list[ServiceInfo]:
    return [service_info(WORKFLOW_MANAGER, Memory)]


class Memory(forwarding(WORKFLOW_MANAGER)):  # type: ignore[misc]
    async def list_workflows(self) -> list[WorkflowSummary]:
        kept = STORED.values()
        return [WorkflowSummary(id=s.id, name=s.workflow.name, revision=s.revision, source=s.source) for s in kept]

    async def get(self, workflow_id: str) -> StoredWorkflow:
        return STORED[workflow_id]

    async def save(self, workflow_id: str, workflow: Workflow, **_: Any) -> StoredWorkflow:
        revision = str(len(STORED) + 1) + (workflow.description or "")
        STORED[workflow_id] = StoredWorkflow(workflow=workflow, id=workflow_id, revision=revision)
        return STORED[workflow_id]
