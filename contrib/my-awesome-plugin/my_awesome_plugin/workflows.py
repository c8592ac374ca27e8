"""Stands in front of `workflowManager` and keeps what a save replaces; all else is the original's work.

A workflow's earlier versions are read as `ID@NUMBER`, and its name in the list says how many there are.
"""

from __future__ import annotations

import asyncio

from tavern_host import CallContext, PluginContext, ServiceOverride, TavernError
from tavern_host.contracts.documents import revision_of
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import StoredWorkflow, WorkflowManager, WorkflowSummary

from .versions import Versions

_NOT_THERE = ("not_found", "invalid_input")


class VersionedWorkflows(ServiceOverride[WorkflowManager]):
    """`workflowManager` with earlier versions. `original` is a view of the manager that it stands on."""

    def __init__(self, context: PluginContext, original: WorkflowManager) -> None:
        super().__init__(original)
        self._context = context
        self._versions = Versions(context.data_dir / "versions")
        self._lock = asyncio.Lock()

    async def list_workflows(self) -> list[WorkflowSummary]:
        """Return the original's list; names say how many earlier versions there are."""
        found = await self.original.list_workflows()
        counts = await asyncio.to_thread(self._versions.counts)
        return [_with_count(summary, counts[summary.id]) for summary in found]

    async def get(self, workflow_id: str) -> StoredWorkflow:
        """Return a workflow, or the earlier version that `ID@NUMBER` names."""
        try:
            return await self.original.get(workflow_id)
        except TavernError as error:
            if error.info.code != "not_found":
                raise
            document = await asyncio.to_thread(self._versions.read, workflow_id)
            if document is None:
                raise
        return StoredWorkflow(
            workflow=await self.original.parse(document),
            id=workflow_id,
            revision=revision_of(document),
            source=f"plugin:{self._context.plugin}",
        )

    async def save(
        self,
        workflow_id: str,
        workflow: Workflow,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> StoredWorkflow:
        """Save a workflow; what it replaces is kept, once the save went well."""
        async with self._lock:
            before = await self._stored(workflow_id)
            saved = await self.original.save(workflow_id, workflow, expected_revision=expected_revision, call=call)
            if before is not None and before.revision != saved.revision:
                await self._keep(before)
        return saved

    async def _stored(self, workflow_id: str) -> StoredWorkflow | None:
        try:
            return await self.original.get(workflow_id)
        except TavernError as error:
            if error.info.code in _NOT_THERE:
                return None
            raise

    async def _keep(self, stored: StoredWorkflow) -> None:
        most = int(self._context.settings.get("keepVersions"))
        try:
            await asyncio.to_thread(self._versions.keep, stored.id, stored.workflow, most=most)
        except OSError as error:
            self._context.log.warning("the earlier version of %s could not be kept: %s", stored.id, error)


def _with_count(summary: WorkflowSummary, count: int) -> WorkflowSummary:
    if not count:
        return summary
    what = "1 earlier version" if count == 1 else f"{count} earlier versions"
    return summary.model_copy(update={"name": f"{summary.name} ({what})"})
