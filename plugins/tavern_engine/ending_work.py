"""Ends runs whose person is gone, or that somebody stops, wherever they run."""

from __future__ import annotations

from collections import Counter

from tavern_engine import EngineState
from tavern_engine.api.executions import EXECUTION_ENGINE, RunFilter
from tavern_engine.api.runs import RUN_STORE
from tavern_host import CallContext, PluginContext
from tavern_host.contracts.accounts import SettledWork, WorkFilter, is_to_settle
from tavern_host.contracts.executions import RunRequest, RunStatus

_PAGE = 1000

OpenRun = tuple[RunStatus, CallContext, bool, set[str]]
"""How a run stands, with what call it was begun, whether it is part of something else, and its plugins."""


async def end_work(which: WorkFilter, context: PluginContext) -> list[SettledWork]:
    """Interrupt the runs that a filter means; return how many waited, and how many had begun."""
    ended = Counter[RunStatus]()
    engine, services = context.services.get(EXECUTION_ENGINE), context.services
    for run_id, (status, call, is_part, plugins) in (await _open_runs(context)).items():
        plugin = which.name if which.name in plugins else None
        if is_part and which.kind != "plugin":
            continue  # it ends with what it is part of
        if await is_to_settle(services, which, call, plugin=plugin) and await engine.interrupt(run_id):
            ended[status] += 1
    return [SettledWork(kind="runs", cancelled=ended[RunStatus.QUEUED], stopped=ended[RunStatus.RUNNING])]


async def _open_runs(context: PluginContext) -> dict[str, OpenRun]:
    """Return the runs that have not ended, here and, as far as they are recorded, at other hosts, those that wait
    first: none of them takes the place of another that was stopped."""
    engine, found = context.own(EngineState).engine, dict[str, OpenRun]()
    for status in (RunStatus.QUEUED, RunStatus.RUNNING):
        for run_id, active in engine.active.items() if engine is not None else ():
            if active.record.status is status:
                is_part = _is_part(active.call, active.record.request)
                found[run_id] = status, active.call, is_part, active.execution.plugins
    if context.services.has(RUN_STORE):
        store = context.services.get(RUN_STORE)
        for status in (RunStatus.QUEUED, RunStatus.RUNNING):
            for run in await store.list_runs(RunFilter(statuses=[status], limit=_PAGE)):
                if run.id not in found:
                    entry = await store.get(run.id)
                    found[run.id] = status, entry.call, _is_part(entry.call, entry.request), set()
    return found


def _is_part(call: CallContext, request: RunRequest) -> bool:
    return call.parent_id is not None and not request.recover
