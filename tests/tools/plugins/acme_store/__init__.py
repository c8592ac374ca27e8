"""A plugin for tests: a workflow manager whose workflows are not files."""

from __future__ import annotations

from typing import Any

from tavern_host.context import PluginContext
from tavern_host.contracts.services import ServiceInfo, service_info
from tavern_host.contracts.workflows import (
    WORKFLOW_MANAGER,
    StoredWorkflow,
    Workflow,
    WorkflowManager,
    WorkflowProblem,
    WorkflowSummary,
)
from tavern_host.sdk.decorator import hookimpl


@hookimpl
def tavern_override_services() -> list[ServiceInfo]:
    return [service_info(WORKFLOW_MANAGER, Memory)]


class Memory(WorkflowManager):
    """Keeps workflows in memory; checks them as the manager beneath does."""

    def __init__(self, context: PluginContext, original: WorkflowManager) -> None:
        self._original = original
        self._stored: dict[str, StoredWorkflow] = {}

    async def list_workflows(self) -> list[WorkflowSummary]:
        return [
            WorkflowSummary(id=s.id, name=s.workflow.name, revision=s.revision, source=s.source)
            for s in self._stored.values()
        ]

    async def get(self, workflow_id: str) -> StoredWorkflow:
        return self._stored[workflow_id]

    async def parse(self, document: dict[str, Any]) -> Workflow:
        return await self._original.parse(document)

    async def check(self, document: dict[str, Any]) -> list[WorkflowProblem]:
        return await self._original.check(document)

    async def closure(self, workflow: Workflow) -> dict[str, StoredWorkflow]:
        return await self._original.closure(workflow)

    async def save(self, workflow_id: str, workflow: Workflow, **_: Any) -> StoredWorkflow:
        revision = str(len(self._stored) + 1) + (workflow.description or "")
        self._stored[workflow_id] = StoredWorkflow(workflow=workflow, id=workflow_id, revision=revision)
        return self._stored[workflow_id]
