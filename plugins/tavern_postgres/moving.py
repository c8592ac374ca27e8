"""`tavern storage move`: takes what is in the project's files into the database, once one is set up.

The store of runs copies its own, run by run; of the others the tables are copied as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from pydantic import JsonValue

from tavern_engine.api.executions import RunFilter
from tavern_engine.api.runs import RUN_STORE
from tavern_host import CommandOutput, PluginContext
from tavern_host.contracts.errors import Misconfigured
from tavern_postgres.moving_stores import move_stores, stopped

_PAGE = 200


async def move(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Copy every run that the database does not have, and what stores have. Raises `Misconfigured` where none is set
    up, `Conflict` while the project is served and for stores that the database has already."""
    if not context.settings.get("url"):
        raise Misconfigured("no database is set up: name it in extensions.tavern-postgres.url first")
    with stopped(context):
        async for output in _moving(context):
            yield output


async def _moving(context: PluginContext) -> AsyncIterator[CommandOutput]:
    stores, runs = await move_stores(context), context.services.get(RUN_STORE)
    became: dict[str, str] = {}
    async for run in runs.adopt():
        became[str(run["id"])] = str(run["became"])
        if len(became) % _PAGE == 0:
            yield CommandOutput(kind="progress", text=f"{len(became)} of {run['of']} runs")
    counts, there = Counter(became.values()), set[str]()
    while page := await runs.list_runs(RunFilter(limit=_PAGE, offset=len(there))):
        there |= {run.id for run in page}
    missing = [run_id for run_id in became if run_id not in there]
    text = (
        f"{counts['moved']} runs moved, {counts['there']} were there already, {counts['in use']} are in use by a host"
        f" and were left; of {len(became)} runs the database has {len(became) - len(missing)}."
    )
    yield CommandOutput(kind="message", text=text)
    for store, count in stores.items():
        yield CommandOutput(kind="message", text=f"{count} rows of {store} are in the database.")
    yield CommandOutput(kind="result", data={"runs": len(became), **counts, "missing": [*missing], "rows": {**stores}})
