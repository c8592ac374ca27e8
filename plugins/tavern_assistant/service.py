"""The service `assistant`: patches of documents by their kind."""

from __future__ import annotations

from pydantic import JsonValue

from tavern_assistant.deliberation.push import update_event
from tavern_assistant.patches.documents import documents_of
from tavern_assistant.patches.workflows import WorkflowPatches
from tavern_host import CallContext, PluginContext
from tavern_host.contracts.assistant import UPDATE_WORKFLOW, Assistant, PatchKind, PatchResult
from tavern_host.contracts.errors import InvalidInput, PermissionDenied
from tavern_host.contracts.services import gives_new


class Patches(Assistant):
    """The patches of the project's documents."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._workflows = WorkflowPatches(context)
        self._documents = documents_of(context)

    @gives_new
    async def propose_patch(
        self,
        operations: list[JsonValue],
        *,
        kind: PatchKind = "workflow",
        id: str | None = None,
        document: dict[str, JsonValue] | None = None,
        revision: str | None = None,
        whole: bool = True,
        call: CallContext | None = None,
    ) -> PatchResult:
        """Return what a patch would do; see the interface."""
        if (id is None) == (document is None):
            raise InvalidInput("a patch is of a document that is named by its `id`, or given as `document`")
        if kind != "workflow":
            result = await self._documents.propose(kind, id or "", document, operations, revision, call)
        elif document is not None:
            result = await self._workflows.propose_for(document, operations)
        else:
            result = await self._workflows.propose(id or "", operations, revision)
        return result if whole else result.model_copy(update={"document": None})

    @gives_new
    async def apply_patch(
        self,
        operations: list[JsonValue],
        id: str,
        *,
        kind: PatchKind = "workflow",
        revision: str | None = None,
        reason: str = "",
        whole: bool = True,
        call: CallContext | None = None,
    ) -> PatchResult:
        """Apply a patch; see the interface."""
        _refuse_settings(kind)
        if kind != "workflow":
            result = await self._documents.apply(kind, id, operations, revision, call)
        else:
            result = await self._workflows.apply(id, operations, revision, reason, call)
            if result.applied and call is not None and call.principal.kind == "agent":
                self._context.events.publish(UPDATE_WORKFLOW, update_event(id, result, operations, reason))
        return result if whole else result.model_copy(update={"document": None})

    @gives_new
    async def undo_patch(
        self, id: str, revision: str, to: str, *, kind: PatchKind = "workflow", call: CallContext | None = None
    ) -> PatchResult:
        """Take a patch back; see the interface."""
        _refuse_settings(kind)
        if kind != "workflow":
            return await self._documents.undo(kind, id, revision, to, call)
        return await self._workflows.undo(id, revision, to, call)


def _refuse_settings(kind: PatchKind) -> None:
    """Raise `PermissionDenied` for settings: who may apply patches may not change what everybody may do."""
    if kind == "settings":
        raise PermissionDenied("patches of settings are proposed here; somebody who operates the host applies them")
