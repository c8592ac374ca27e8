"""`tavern top`: what the server of a project does at this moment, and what each plugin costs.

The server carries the command out, so that the figures are its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from tavern_engine.api.executions import RunFilter, RunSummary
from tavern_host import EXECUTION_ENGINE, CommandOutput, InvalidInput, PluginContext, clock
from tavern_host.contracts.executions import RunStatus
from tavern_operations.api.metrics import METRICS

FASTEST, SLOWEST = 0.5, 3600.0
"""How many seconds may lie between two looks."""
MOST_RUNS = 10
"""How many runs are listed."""

_COLUMNS = ["plugin", "hooks", "hook time", "nodes", "node time", "now"]
_RUN_COLUMNS = ["run", "workflow", "status", "for"]
_COSTS = ("hooks_total", "hooks_seconds_total", "nodes_total", "nodes_seconds_total")


@dataclass(frozen=True)
class Look:
    """What there was at a moment: figures by name and status, by plugin what `_COSTS` count, and the active runs."""

    time: datetime
    values: dict[str, float]
    costs: dict[str, list[float]]
    runs: list[RunSummary] = field(default_factory=list)

    def value(self, name: str) -> float:
        """Return a figure; 0 where it is not counted here."""
        return self.values.get(name, 0.0)


async def top(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show what the server does, once or again and again."""
    every = arguments["every"]
    if not isinstance(every, int | float) or not FASTEST <= every <= SLOWEST:
        raise InvalidInput(f"--every {every}: between two looks lie {FASTEST:g} to {SLOWEST:g} seconds")
    if not context.serving:
        text = "no server runs for this project, so there is nothing to show; `tavern serve` starts one"
        yield CommandOutput(kind="failure", text=text)
        return
    stopped = asyncio.create_task(_stopped(context), name="wait for the server to stop")
    try:
        before = None
        while not stopped.done():
            now = await _look(context)
            for output in _shown(context.project.name, now, before, is_live=not arguments["once"]):
                yield output
            if arguments["once"]:
                return
            before = now
            await asyncio.wait([stopped], timeout=every)
    finally:
        stopped.cancel()
        await asyncio.wait([stopped])


async def _stopped(context: PluginContext) -> None:
    """Return when the server stops: then all subscriptions end."""
    subscription = context.events.subscribe(f"{context.plugin}.none")
    try:
        async for _ in subscription:
            pass
    finally:
        await subscription.close()


def _shown(project: str, now: Look, before: Look | None, *, is_live: bool) -> Iterator[CommandOutput]:
    summary = f"{project}: {_summary(now, before)}"
    plugins, runs = _plugins(now, before), _runs(now)
    if is_live:
        rows = [_COLUMNS, *plugins, *([_RUN_COLUMNS] if runs else []), *runs]
        tones: list[Any] = ["quiet" if row in (_COLUMNS, _RUN_COLUMNS) else "plain" for row in rows]
        yield CommandOutput(kind="live", title=summary, rows=rows, tones=tones)
        yield CommandOutput(kind="progress", text=summary)
    else:
        yield CommandOutput(kind="message", text=summary)
        yield CommandOutput(kind="table", columns=_COLUMNS[:-1], rows=[row[:-1] for row in plugins])
        if runs:
            yield CommandOutput(kind="table", columns=_RUN_COLUMNS, rows=runs)
    yield CommandOutput(kind="result", data=_json(now))


async def _look(context: PluginContext) -> Look:
    values: dict[str, float] = {}
    costs: dict[str, list[float]] = {}
    for figure in await context.services.get(METRICS).figures():
        name = figure.name.removeprefix("tavern_")
        if name in _COSTS and "plugin" in figure.labels:
            costs.setdefault(figure.labels["plugin"], [0.0] * len(_COSTS))[_COSTS.index(name)] += figure.value
        elif not figure.labels or name == "active_runs":
            values[figure.labels.get("status", name)] = figure.value
    runs: list[RunSummary] = []
    if context.services.has(EXECUTION_ENGINE):
        active = RunFilter(statuses=[RunStatus.RUNNING, RunStatus.QUEUED], limit=MOST_RUNS)
        runs = await context.services.get(EXECUTION_ENGINE).history(active)
    return Look(clock.now(), values, costs, runs)


def _summary(now: Look, before: Look | None) -> str:
    """Return the state of the server in a line, what matters most first."""
    parts = [
        f"{now.value('running'):.0f} running, {now.value('queued'):.0f} waiting",
        f"event loop {_time(now.value('event_loop_lag_seconds'))} late",
        f"journal {_time(now.value('journal_lag_seconds'))} behind",
        f"memory {now.value('process_resident_memory_bytes') / 2**20:.0f} MiB",
    ]
    if before is not None:
        spent = now.value("process_cpu_seconds_total") - before.value("process_cpu_seconds_total")
        parts.append(f"processor {spent / (now.time - before.time).total_seconds():.0%}")
    counts = {"sockets": "sockets", "process_threads": "threads", "process_open_fds": "open files"}
    return " · ".join(parts + [f"{what} {now.value(name):.0f}" for name, what in counts.items()])


def _plugins(now: Look, before: Look | None) -> list[list[str]]:
    """Return a row for each plugin that was called, the dearest first; the last cell is for the time since `before`."""
    rows = []
    for name, (hooks, hook_time, nodes, node_time) in sorted(now.costs.items(), key=lambda one: -_spent(one[1])):
        recent = ""
        if before is not None:
            spent = hook_time + node_time - _spent(before.costs.get(name, [0.0] * len(_COSTS)))
            recent = f"{spent / (now.time - before.time).total_seconds():.0%}"
        rows.append([name, f"{hooks:,.0f}", _time(hook_time), f"{nodes:,.0f}", _time(node_time), recent])
    return rows


def _spent(costs: list[float]) -> float:
    return costs[1] + costs[3]


def _runs(now: Look) -> list[list[str]]:
    rows = []
    for run in now.runs:
        seconds = (now.time - (run.started_at or run.submitted_at)).total_seconds()
        rows.append([run.id, run.workflow_name or run.workflow_id or "", run.status.value, _time(max(seconds, 0.0))])
    return rows


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"


def _json(now: Look) -> dict[str, JsonValue]:
    plugins: dict[str, JsonValue] = {name: dict(zip(_COSTS, costs, strict=True)) for name, costs in now.costs.items()}
    runs: list[JsonValue] = [run.to_json() for run in now.runs]
    return {"time": now.time.isoformat(), "figures": {**now.values}, "plugins": plugins, "runs": runs}
