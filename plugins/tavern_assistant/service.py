"""The service `assistant`: patches of documents by their kind."""

from __future__ import annotations

from pydantic import JsonValue

from tavern_assistant.patches.workflows import WorkflowPatches
from tavern_host import CallContext, PluginContext
from tavern_host.contracts.assistant import Assistant, PatchKind, PatchResult
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.services import gives_new


class Patches(Assistant):
    """The patches of the project's documents."""

    def __init__(self, context: PluginContext) -> None:
        self._workflows = WorkflowPatches(context)

    @gives_new
    async def propose_patch(
        self,
        operations: list[JsonValue],
        *,
        kind: PatchKind = "workflow",
        id: str | None = None,
        document: dict[str, JsonValue] | None = None,
        revision: str | None = None,
        call: CallContext | None = None,
    ) -> PatchResult:
        """Return what a patch would do; see the interface."""
        if (id is None) == (document is None):
            raise InvalidInput("a patch is of a document that is named by its `id`, or given as `document`")
        if document is not None:
            return await self._workflows.propose_for(document, operations)
        return await self._workflows.propose(id or "", operations, revision)

    @gives_new
    async def apply_patch(
        self,
        operations: list[JsonValue],
        id: str,
        *,
        kind: PatchKind = "workflow",
        revision: str | None = None,
        reason: str = "",
        call: CallContext | None = None,
    ) -> PatchResult:
        """Apply a patch; see the interface."""
        return await self._workflows.apply(id, operations, revision, reason, call)

    @gives_new
    async def undo_patch(
        self, id: str, revision: str, to: str, *, kind: PatchKind = "workflow", call: CallContext | None = None
    ) -> PatchResult:
        """Take a patch back; see the interface."""
        return await self._workflows.undo(id, revision, to, call)
