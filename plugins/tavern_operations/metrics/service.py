"""Collects the figures of the process, of the host, and of all plugins."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from tavern_host import PluginContext, clock
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.metrics import Figure
from tavern_host.contracts.plugins import PLUGINS
from tavern_operations.api.metrics import LONGEST, METRICS, FigureHistory, Metrics
from tavern_operations.metrics.history import EVERY, Recorder

MAX_FIGURES = 5000
"""How many figures of one plugin are given."""
MOST = 240
"""How many numbers of a figure are given at once."""
LOOK = 0.5
"""Seconds between two looks at the event loop."""

_PREFIX = "tavern_"


class HostMetrics(Metrics):
    """The figures of one host. The event loop is watched once somebody has asked for figures."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._watch: asyncio.Task[None] | None = None
        self._lag = 0.0
        self._recorder = Recorder()

    async def close(self) -> None:
        """Watch no more."""
        if self._watch is not None:
            self._watch.cancel()

    async def figures(self) -> list[Figure]:
        """Return all figures under their full names."""
        if self._watch is None:
            self._watch = self._context.tasks.spawn(self._watched(), name="watch the event loop")
        plugins = await self._context.services.get(PLUGINS).list_plugins()
        first_party = {plugin.name for plugin in plugins if plugin.first_party}
        states = Counter(plugin.state.value for plugin in plugins)
        found = [_gauge("plugins", "Plugins by state.", count, state=state) for state, count in sorted(states.items())]
        found += await self._context.services.get(PLUGINS).figures()
        lag, self._lag = self._lag, 0.0
        found.append(_gauge("event_loop_lag_seconds", "How late the event loop was at most since the last look.", lag))
        found.append(_gauge("tasks", "Tasks of the event loop.", len(asyncio.all_tasks())))
        is_written = self._context.audit.problem is None
        found.append(_gauge("audit_log_writable", "1 where the audit log can be written.", is_written))
        found = [_named(figure, "") for figure in found]
        for answer in await self._context.hooks.collect("tavern_collect_figures"):
            owner = "" if answer.plugin in first_party else f"x_{answer.plugin.replace('-', '_')}_"
            found += [_named(figure, owner) for figure in answer.value[:MAX_FIGURES]]
        found += await asyncio.to_thread(_of_process)
        if self._context.serving and self._recorder.is_due(now := clock.now()):
            self._recorder.add(now, found)
        return found

    async def history(self, seconds: int) -> FigureHistory:
        """Return the history of figures. Raises `InvalidInput` for no time, or more than is kept."""
        if not 0 < seconds <= LONGEST:
            raise InvalidInput(f"{seconds} seconds: figures of 1 to {LONGEST:,} seconds can be asked for")
        return self._recorder.since(clock.now() - timedelta(seconds=seconds), MOST)

    async def _watched(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + LOOK
            await asyncio.sleep(LOOK)
            self._lag = max(self._lag, clock() - due)


async def look_regularly(context: PluginContext) -> None:
    """Look at the figures each minute until the plugin is unloaded, so that they are kept."""
    while True:
        try:
            await context.services.get(METRICS).figures()
        except TavernError as error:
            context.log.warning("the figures of this minute are not kept: %s", error.message)
        await asyncio.sleep(EVERY)


def _named(figure: Figure, owner: str) -> Figure:
    return figure.model_copy(update={"name": f"{_PREFIX}{owner}{figure.name}"})


def _gauge(name: str, help: str, value: float, **labels: str) -> Figure:
    return Figure(name=name, kind="gauge", help=help, value=value, labels=labels)


def _of_process() -> list[Figure]:
    """Return the resources of the process, under the names that Prometheus' own clients use. Blocking."""
    found = [
        Figure(name="process_cpu_seconds_total", help="Processor time.", value=time.process_time()),
        _gauge("process_threads", "Threads of Python.", threading.active_count()),
    ]
    statm, descriptors = Path("/proc/self/statm"), Path("/proc/self/fd")
    if statm.exists():
        pages = int(statm.read_text().split()[1])
        found.append(_gauge("process_resident_memory_bytes", "Memory.", pages * os.sysconf("SC_PAGE_SIZE")))
        found.append(_gauge("process_open_fds", "Open descriptors.", len([*descriptors.iterdir()])))
    return found
