"""`tavern storage move`: takes what is in the project's files into the database, once one is set up.

Both stores are used through the interface alone. A run that is not finished is claimed first, so that it is not resumed
at both places; in the files it is marked as moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from secrets import token_hex

from pydantic import JsonValue

from tavern_engine.api.executions import RunFilter, RunSummary
from tavern_engine.api.runs import RUN_STORE, RunEnd, RunEntry, RunStore
from tavern_host import CommandOutput, PluginContext
from tavern_host.contracts.errors import Conflict, Interrupted, Misconfigured
from tavern_host.contracts.executions import RunStatus
from tavern_postgres import State
from tavern_postgres.moving_stores import move_stores, stopped

_PAGE = 200
_LEASE = 300.0
_PARTLY = "it was not moved to the database completely: run `tavern storage move` again"


async def move(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Copy every run that the database does not have, and what stores have. Raises `Misconfigured` where none is set
    up, `Conflict` while the project is served and for stores that the database has already."""
    if not context.settings.get("url"):
        raise Misconfigured("no database is set up: name it in extensions.tavern-postgres.url first")
    with stopped(context):
        async for output in _moving(context):
            yield output


async def _moving(context: PluginContext) -> AsyncIterator[CommandOutput]:
    stores = await move_stores(context)
    target = context.services.get(RUN_STORE)
    await target.list_runs(RunFilter(limit=1))  # connects, and opens the store that it replaced
    source = context.own(State).replaced
    listed = await _all(source)
    mover, counts = f"storage-move-{token_hex(8)}", Counter[str]()
    for number, run in enumerate(reversed(listed), 1):
        counts[await _moved(source, target, run, mover)] += 1
        if number % _PAGE == 0:
            yield CommandOutput(kind="progress", text=f"{number} of {len(listed)} runs")
    there = {run.id for run in await _all(target)}
    missing = [run.id for run in listed if run.id not in there]
    text = (
        f"{counts['moved']} runs moved, {counts['there']} were there already, {counts['in use']} are in use by a host"
        f" and were left; of {len(listed)} runs the database has {len(listed) - len(missing)}."
    )
    yield CommandOutput(kind="message", text=text)
    for store, count in stores.items():
        yield CommandOutput(kind="message", text=f"{count} rows of {store} are in the database.")
    yield CommandOutput(kind="result", data={"runs": len(listed), **counts, "missing": [*missing], "rows": {**stores}})


async def _moved(source: RunStore, target: RunStore, run: RunSummary, mover: str) -> str:
    """Copy one run; return what became of it: `moved`, `there` or `in use`."""
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
    await target.update(mover, run.id, _end(entry))
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


def _end(entry: RunEntry) -> RunEnd:
    return RunEnd(**{name: getattr(entry, name) for name in RunEnd.model_fields})


async def _all(store: RunStore) -> list[RunSummary]:
    """Return all runs, newest first."""
    found: list[RunSummary] = []
    while page := await store.list_runs(RunFilter(limit=_PAGE, offset=len(found))):
        found += page
    return found
