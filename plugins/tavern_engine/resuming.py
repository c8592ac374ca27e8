"""Takes up a run that is to be resumed, as it was or changed. A changed one is continued by a new run, so that the
record of a run always says what it was carried out with."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from tavern_engine.api.runs import RunEntry
from tavern_engine.journal.documents import document_of
from tavern_engine.journal.recorder import RunRecorder
from tavern_engine.journal.stored_run import StoredRun
from tavern_engine.run.output_calls import check_principal
from tavern_host import WORKFLOW_MANAGER, CallContext, PluginContext
from tavern_host.common.redaction import has_mask
from tavern_host.contracts.documents import to_thread_if_large
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.settings import SETTINGS


@contextlib.asynccontextmanager
async def claimed(recorder: RunRecorder, run_id: str, call: CallContext | None) -> AsyncIterator[StoredRun]:
    """A run that this host has claimed, with its results; it is released where it is not taken up. Raises `NotFound`,
    `Conflict`, `PermissionDenied`."""
    if run_id in recorder.claims.owned:
        raise Conflict(f"the run {run_id} is already running")
    check_resumable(await recorder.entry(run_id), call)  # before it is claimed, which changes it
    entry = await recorder.claims.claim(run_id)
    if entry is None:
        where = "already running" if run_id in recorder.claims.owned else "running in another process"
        raise Conflict(f"the run {run_id} is {where}")
    try:
        check_resumable(entry, call)  # it may have ended meanwhile
        yield await recorder.load(entry)
    except BaseException:
        await recorder.claims.release(entry, entry.status if entry.status.is_final else RunStatus.INTERRUPTED)
        raise


async def changed_request(stored: StoredRun, changed: RunRequest, context: PluginContext) -> RunRequest:
    """Return the request of a run with what is changed of it; without a document it has the same one. Raises
    `InvalidInput` for a mask that stands for no secret of the run's document."""
    request = stored.entry.request.model_copy(
        update={name: getattr(changed, name) for name in changed.model_fields_set}
    )
    if changed.workflow is None:
        has_own = "workflow_id" in changed.model_fields_set
        return request if has_own else request.model_copy(update={"workflow": stored.workflow})
    is_large = len(changed.workflow.nodes) > 50
    edited = await to_thread_if_large(is_large, document_of, changed.workflow)
    if await to_thread_if_large(is_large, has_mask, edited):
        known = await to_thread_if_large(is_large, document_of, stored.workflow)
        edited = await context.services.get(SETTINGS).restored(edited, [known])
        workflow = await context.services.get(WORKFLOW_MANAGER).parse(edited)
        request = request.model_copy(update={"workflow": workflow})
    return request


async def leave_to(recorder: RunRecorder, entry: RunEntry, run_id: str) -> None:
    """Release a claimed run that another one continues: it is not taken up a second time."""
    why = f"it was continued by the run {run_id}"
    is_over = entry.status.is_final
    ended = entry.model_copy(update={"not_resumable": why})
    await recorder.claims.release(ended, *((entry.status,) if is_over else (RunStatus.INTERRUPTED, why)))


def check_resumable(entry: RunEntry, call: CallContext | None) -> None:
    """Raise `Conflict` for a run that cannot be resumed, `PermissionDenied` where the caller may not make its calls."""
    again = f"run it again with `tavern runs retry {entry.id}`"
    if entry.status is RunStatus.COMPLETE:
        raise Conflict(f"the run {entry.id} is complete; {again}")
    if entry.not_resumable is not None:
        raise Conflict(f"the run {entry.id} cannot be resumed: {entry.not_resumable}; {again}")
    if call is not None:
        check_principal(entry.request.actions, call.principal)
