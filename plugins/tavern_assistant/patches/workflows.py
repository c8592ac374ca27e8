"""Patches of the project's workflows: checked by the service that keeps them, laid out, saved as drafts, taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from tavern_assistant.api.assistant import (
    PatchChange,
    PatchConflict,
    PatchKind,
    PatchProblem,
    PatchProposal,
    PatchResult,
)
from tavern_assistant.patches.differences import changes, in_both, places
from tavern_assistant.patches.findings import Findings
from tavern_assistant.patches.operations import MAX_PROBLEMS, Parts, pointer
from tavern_assistant.patches.placing import place
from tavern_assistant.patches.workflow import UNNAMED, Patched, apply_to_workflow
from tavern_assistant.patches.working_copy import Item
from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host import WORKFLOW_MANAGER, CallContext, PluginContext
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import WorkflowManager

_TRIES = 5
"""How often a patch is retried because somebody saved the workflow meanwhile."""


class WorkflowPatches:
    """Patches of workflows. A workflow is its draft, where it has one, else its file."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._lock = asyncio.Lock()  # a patch does not lose against others, only against people who save meanwhile
        self._definitions: tuple[int, dict[str, NodeDefinition]] | None = None

    async def propose(self, asked: PatchProposal, call: CallContext | None = None) -> PatchResult:
        """Return the result of a patch to a stored workflow, or to `asked.document`."""
        if asked.document is not None:
            return (await self._evaluated(asked.document, asked.operations))[0]
        return await self._result(asked, *await present(self._manager, str(asked.id)))

    async def apply(self, asked: PatchProposal, call: CallContext | None) -> PatchResult:
        """Apply a patch to a workflow, and save it as its draft."""
        id = str(asked.id)
        async with self._lock:
            for _ in range(_TRIES):
                document, now = await present(self._manager, id, to_change=True)
                result = await self._result(asked, document, now)
                if not result.applied or not result.changes or result.document is None:
                    return result
                try:
                    saved = await self._save(id, result.document, now, asked.reason, call)
                except Conflict as conflict:
                    if "revision" not in conflict.info.details:
                        raise
                    asked = asked.model_copy(update={"revision": asked.revision or now})
                    continue
                return result.model_copy(update={"revision": saved})
        raise Conflict(f"the workflow {id!r} is changed all the time; try again later")

    async def undo(self, kind: PatchKind, id: str, revision: str, to: str, call: CallContext | None) -> PatchResult:
        """Make a workflow what it was at the revision `to`."""
        before, now = await present(self._manager, id, to_change=True)
        if now != revision:
            raise Conflict(f"the workflow {id!r} was changed: it is at revision {now}", revision=now, expected=revision)
        document = await self._at(id, to)
        if document is None:
            raise NotFound(f"the workflow {id!r} has no revision {to!r} in its history")
        saved = await self._save(id, document, revision, f"back to revision {to}", call)
        found = await asyncio.to_thread(changes, before, document)
        return PatchResult.construct(applied=True, revision=saved, former=revision, document=document, changes=found)

    # --- what a patch does ----------------------------------------------------------------------------

    async def _result(self, asked: PatchProposal, document: Item, now: str) -> PatchResult:
        """Return the result of a patch to a workflow, whose document is at the revision `now`."""
        items, is_now = asked.operations, asked.revision in (None, now)
        result = (await self._evaluated(document, items))[0] if is_now else await self._rebased(asked, document, now)
        return result.model_copy(update={"revision": now, "former": now})

    async def _rebased(self, asked: PatchProposal, document: Item, now: str) -> PatchResult:
        """Return the result of a patch made for another revision; a conflict where what it touches has changed."""
        base = await self._at(str(asked.id), str(asked.revision))
        if base is None:
            return await self._conflict(asked, now)
        theirs = await asyncio.to_thread(places, base, document)
        patched = await self._patched(base, asked.operations)
        if patched.problems:
            return (await self._evaluated(base, asked.operations))[0].model_copy(update={"document": None})
        result, rebased = await self._evaluated(document, patched.by_id)
        touched = await asyncio.to_thread(_touched, base, patched, document, rebased, theirs)
        if result.applied and not touched:
            return result.model_copy(update={"rebased": True})
        refused = await self._conflict(asked, now, await asyncio.to_thread(changes, base, document), touched)
        return refused.model_copy(update={"problems": result.problems})

    async def _conflict(
        self, asked: PatchProposal, now: str, since: Sequence[PatchChange] = (), touched: Sequence[Parts] = ()
    ) -> PatchResult:
        newest = await self._manager.history(str(asked.id), limit=1)
        by, at = (newest[0].by, newest[0].at) if newest else (None, None)
        both = [pointer(place) for place in touched[:MAX_PROBLEMS]]
        known: dict[str, Any] = {"expected": str(asked.revision), "revision": now, "by": by, "at": at}
        return PatchResult(applied=False, conflict=PatchConflict(**known, changes=list(since), touched=both))

    async def _evaluated(self, before: Item, operations: Sequence[JsonValue]) -> tuple[PatchResult, Patched]:
        """Return the result of a patch: the checked document with places for new nodes, or problems."""
        patched = await self._patched(before, operations)
        now = await self._manager.check(patched.document)
        was, types = await self._manager.check(before) if now else [], await self._node_types()
        found = await asyncio.to_thread(lambda: Findings(before, patched, types).problems(now, was))
        problems = [*patched.problems, *found]
        if now and not problems:
            try:
                await self._manager.parse(patched.document)
            except InvalidInput as error:  # it was no workflow before the patch either
                hint = "mend these parts as well"
                problems = [PatchProblem(code="broken_document", message=error.message, hint=hint)]
        if problems:
            problems.sort(key=lambda problem: len(operations) if problem.index is None else problem.index)
            return PatchResult(applied=False, problems=problems[:MAX_PROBLEMS]), patched
        named = {key: local for key, local in patched.local_ids.items() if not local.startswith(UNNAMED)}
        after = patched.document
        made = await asyncio.to_thread(changes, before, after, named)
        return PatchResult.construct(applied=True, document=await place(after, self._manager), changes=made), patched

    async def _patched(self, before: Item, operations: Sequence[JsonValue]) -> Patched:
        return await asyncio.to_thread(apply_to_workflow, before, operations, await self._node_types())

    # --- the workflow service -------------------------------------------------------------------------

    @property
    def _manager(self) -> WorkflowManager:
        return self._context.services.get(WORKFLOW_MANAGER)

    async def _at(self, id: str, revision: str) -> Item | None:
        """Return a workflow's document as it was at a revision, or None where that is not known."""
        stored = await self._manager.get(id)
        if stored.revision == revision:
            return await _document(stored.workflow)
        before: int | None = None
        while found := await self._manager.history(id, before=before, limit=500):
            for one in found:
                if one.revision == revision:
                    return await _document((await self._manager.get(f"{stored.id}@r{one.number}")).workflow)
            before = found[-1].number
        return None

    async def _save(self, id: str, document: Item, revision: str, reason: str, call: CallContext | None) -> str:
        workflow = await self._manager.parse(document)
        options: dict[str, Any] = {"expected_revision": revision, "reason": reason or "a patch"}
        return (await self._manager.save_draft(id, workflow, **options, call=call)).revision

    async def _node_types(self) -> dict[str, NodeDefinition]:
        services, revision = self._context.services, self._context.hooks.revision
        if not services.has(NODE_MANAGER):
            return {}
        if self._definitions is None or self._definitions[0] != revision:
            found = await services.get(NODE_MANAGER).list_nodes()
            self._definitions = (revision, {definition.full_type: definition for definition in found})
        return self._definitions[1]


async def present(manager: WorkflowManager, id: str, *, to_change: bool = False) -> tuple[Item, str]:
    """Return a workflow's document as it is being made, and its revision. Raises `NotFound`, and `Conflict` for one
    that is to be changed and cannot be."""
    try:
        draft = await manager.draft(id)
    except (NotFound, Conflict):  # of a plugin, or a revision
        if to_change:
            raise
    else:
        if draft.workflow is not None:
            return await _document(draft.workflow), draft.revision
    stored = await manager.get(id)
    return await _document(stored.workflow), stored.revision


async def _document(workflow: Workflow) -> Item:
    """Return a workflow as its file has it: what was set and nothing else, unknown keys included."""
    return await asyncio.to_thread(workflow.model_dump, mode="json", exclude_unset=True)


def _touched(base: Item, patched: Patched, document: Item, rebased: Patched, theirs: Sequence[Parts]) -> list[Parts]:
    """Return which of their places a patch would change as well, at its own revision or at the present one."""
    # the ids of what is new are other ones
    old = [one for one in places(base, patched.document) if one[:2] not in patched.local_ids]
    return in_both([*old, *places(document, rebased.document)], theirs)
