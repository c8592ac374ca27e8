"""Copies runs from one store to another, through the interface alone.

A run that is not finished is claimed first, so that it is not resumed at both places; where it was it is marked as
moved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from secrets import token_hex

from pydantic import JsonValue

from tavern_engine.api.executions import RunFilter, RunSummary
from tavern_engine.api.runs import RunEnd, RunEntry, RunStore
from tavern_host.contracts.errors import Conflict, Interrupted
from tavern_host.contracts.executions import RunStatus

_PAGE = 200
_LEASE = 300.0
_PARTLY = "it was not moved to the database completely: run `tavern storage move` again"


async def move(source: RunStore, target: RunStore) -> AsyncIterator[dict[str, JsonValue]]:
    """Copy every run that the target does not have, oldest first; yield of each its `id`, what `became` of it (`moved`,
    `there` before, or `in use` and left), and of how many it is one."""
    listed: list[RunSummary] = []
    while page := await source.list_runs(RunFilter(limit=_PAGE, offset=len(listed))):
        listed += page
    mover = f"storage-move-{token_hex(8)}"
    for run in reversed(listed):
        yield {"id": run.id, "became": await _moved(source, target, run, mover), "of": len(listed)}


async def _moved(source: RunStore, target: RunStore, run: RunSummary, mover: str) -> str:
    if run.status.is_final:
        entry = await source.get(run.id)
    else:
        claimed = await source.claim(mover, _LEASE, run_id=run.id)
        if claimed is None:
            return "in use"
        entry = claimed
    if not await _begun(source, target, entry, mover):
        return "there"
    batches, contents = await source.batches(run.id), tuple(await source.contents(run.id))
    for batch in batches[len(await target.batches(run.id)) :]:
        await target.append(mover, run.id, batch, contents=contents)
    await target.update(mover, run.id, RunEnd(**{name: getattr(entry, name) for name in RunEnd.model_fields}))
    if not run.status.is_final:
        error = Interrupted("it was moved to the database").info
        await source.update(mover, run.id, RunEnd(status=RunStatus.INTERRUPTED, error=error, attempt=entry.attempt))
    return "moved"


async def _begun(source: RunStore, target: RunStore, entry: RunEntry, mover: str) -> bool:
    """Accept a run at the target as one that nobody resumes before it is there completely; False where it is."""
    for name in await source.contents(entry.id):
        await target.put(await source.content(name))
    marked = entry.model_copy(update={"status": RunStatus.RUNNING, "not_resumable": _PARTLY})
    try:
        await target.accept(marked, worker=mover, lease=_LEASE)
    except Conflict:  # moved before, or partly, by a command that was ended
        if (await target.get(entry.id)).not_resumable != _PARTLY:
            return False
        return await target.claim(mover, _LEASE, run_id=entry.id) is not None
    return True
