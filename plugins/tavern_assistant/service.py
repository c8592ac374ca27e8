"""The service `assistant`: patches of documents by their kind."""

from __future__ import annotations

from pydantic import JsonValue

from tavern_assistant.api.assistant import UPDATE_WORKFLOW, Assistant, PatchKind, PatchProposal, PatchResult
from tavern_assistant.deliberation.outcome import update_event
from tavern_assistant.patches.documents import DocumentPatches
from tavern_assistant.patches.workflows import WorkflowPatches
from tavern_assistant.state import State
from tavern_host import CallContext, PluginContext
from tavern_host.contracts.errors import InvalidInput, PermissionDenied
from tavern_host.contracts.services import gives_new


class Patches(Assistant):
    """The patches of the project's documents."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._workflows = WorkflowPatches(context)
        self._others = context.own(State).documents

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
        """Return the result of a patch without saving it; see the interface."""
        if (id is None) == (document is None):
            raise InvalidInput("a patch is of a document that is named by its `id`, or given as `document`")
        asked = PatchProposal.construct(kind=kind, id=id, document=document, operations=operations, revision=revision)
        return _shown(await self._of(kind).propose(asked, call), whole)

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
        asked = PatchProposal.construct(kind=kind, id=id, operations=operations, revision=revision, reason=reason)
        result = await self._of(kind).apply(asked, call)
        if kind == "workflow" and result.applied and call is not None and call.principal.kind == "agent":
            self._context.events.publish(UPDATE_WORKFLOW, update_event(id, result, operations, reason))
        return _shown(result, whole)

    @gives_new
    async def undo_patch(
        self, id: str, revision: str, to: str, *, kind: PatchKind = "workflow", call: CallContext | None = None
    ) -> PatchResult:
        """Take a patch back; see the interface."""
        _refuse_settings(kind)
        return await self._of(kind).undo(kind, id, revision, to, call)

    def _of(self, kind: PatchKind) -> WorkflowPatches | DocumentPatches:
        return self._workflows if kind == "workflow" else self._others


def _shown(result: PatchResult, whole: bool) -> PatchResult:
    return result if whole else result.model_copy(update={"document": None})


def _refuse_settings(kind: PatchKind) -> None:
    """Raise `PermissionDenied` for settings: who may apply patches may not change what everybody may do."""
    if kind == "settings":
        raise PermissionDenied("patches of settings are proposed here; somebody who operates the host applies them")
