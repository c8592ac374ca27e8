"""Stands in front of `workflowManager` and commits what it saves, moves and deletes; `ID@COMMIT` is read from git."""

from __future__ import annotations

import asyncio
import re

from tavern_host import CallContext, PluginContext, ServiceOverride, TavernError
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.documents import revision_of
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import StoredWorkflow, WorkflowManager

from .repository import WorkflowRepository


class GitWorkflows(ServiceOverride[WorkflowManager]):
    """`workflowManager` with commits. What it does not write here is the original's work."""

    def __init__(self, context: PluginContext, original: WorkflowManager) -> None:
        super().__init__(original)
        self._context = context
        self._repository = context.own(WorkflowRepository)
        self._lock = asyncio.Lock()

    async def get(self, workflow_id: str) -> StoredWorkflow:
        """Return a workflow, or what it was in the commit that `ID@COMMIT` names."""
        try:
            return await self.original.get(workflow_id)
        except TavernError as error:
            named = re.fullmatch("(.+)@([0-9a-f]{7,40})", workflow_id)
            if named is None or error.info.code != "not_found":
                raise
            document = await asyncio.to_thread(self._repository.read, *named.groups())
            if document is None:
                raise
        workflow, source = await self.original.parse(document), f"plugin:{self._context.plugin}"
        return StoredWorkflow(workflow=workflow, id=workflow_id, revision=revision_of(document), source=source)

    async def save(
        self,
        workflow_id: str,
        workflow: Workflow,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> StoredWorkflow:
        """Save a workflow, and commit it once that went well."""
        async with self._lock:
            await self._commit_file(workflow_id)
            saved = await self.original.save(workflow_id, workflow, expected_revision=expected_revision, call=call)
            await self._commit({saved.id: saved}, f"Save {saved.id}", call)
        return saved

    async def move(
        self, workflow_id: str, new_id: str, *, expected_revision: str | None = None, call: CallContext | None = None
    ) -> StoredWorkflow:
        """Move a workflow, as one commit."""
        async with self._lock:
            old = await self._commit_file(workflow_id)
            moved = await self.original.move(workflow_id, new_id, expected_revision=expected_revision, call=call)
            await self._commit({old: None, moved.id: moved}, f"Move {old} to {moved.id}", call)
        return moved

    async def delete(
        self, workflow_id: str, *, expected_revision: str | None = None, call: CallContext | None = None
    ) -> None:
        """Delete a workflow; git keeps it."""
        async with self._lock:
            old = await self._commit_file(workflow_id)
            await self.original.delete(workflow_id, expected_revision=expected_revision, call=call)
            await self._commit({old: None}, f"Delete {old}", call)

    async def _commit_file(self, workflow_id: str) -> str:
        """Commit what is in a workflow's file, which others than the host may have written; return its id."""
        try:
            stored = await self.original.get(workflow_id)
        except TavernError:
            return workflow_id  # new, or damaged: what follows says so
        if stored.source == "project":
            await self._commit({stored.id: stored}, f"Take {stored.id} as it is in its file")
        return stored.id

    async def _commit(
        self, changes: dict[str, StoredWorkflow | None], message: str, call: CallContext | None = None
    ) -> None:
        try:
            by = (call or system_call()).principal
            await asyncio.to_thread(self._repository.commit, changes, message, by)
        except Exception as error:  # what was saved stays saved
            self._context.log.warning("%s: this could not be committed: %s", message, error)
