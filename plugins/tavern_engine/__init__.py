"""The workflow engine: the services `nodeManager` and `executionEngine`, the routes and messages of the
platform that go with them, and the commands `tavern workflow run`, `tavern runs …`, `tavern cache …` and
`tavern nodes …`."""

from __future__ import annotations

import asyncio
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tavern_host import CommandInfo, MessageInfo, PluginContext, RouteInfo, ServiceInfo, hookimpl
from tavern_host.contracts.accounts import SettledWork, WorkFilter
from tavern_host.contracts.http import EncodedOnce
from tavern_host.contracts.metrics import Figure, Tally
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.plugins import all_started

if TYPE_CHECKING:
    from tavern_devtools.api.findings import CheckedPlugin, Finding
    from tavern_engine.engine import Engine
    from tavern_engine.journal.run_store.store import ProjectRuns

_LATER = 0.2
"""Seconds after the start, in which the host can serve its first request: the engine is imported and created then."""


class EngineState:
    """What the parts of this plugin share. `engine` and `store` are None until this plugin's own are used."""

    def __init__(self, context: PluginContext) -> None:
        from tavern_engine.registry import NodeRegistry

        self.engine: Engine | None = None
        self.store: ProjectRuns | None = None
        self.types = NodeRegistry(context)
        self.runs = Tally("runs", "Runs that ended.", "status")
        self.nodes = Tally("nodes", "Nodes of runs that ended.", "plugin", "type", "status")
        self.encoded = EncodedOnce(NodeDefinition.to_wire)


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Offer `nodeManager`, `executionEngine` and `runStore`."""
    return [
        ServiceInfo(service="nodeManager", handler="tavern_engine.registry:Nodes"),
        ServiceInfo(service="executionEngine", handler="tavern_engine.engine:Engine"),
        ServiceInfo(service="runStore", handler="tavern_engine.journal.run_store.store:ProjectRuns"),
    ]


@hookimpl
async def tavern_check_plugin(plugin: CheckedPlugin, context: PluginContext) -> list[Finding]:
    """Say what is wrong with a plugin's node types."""
    from tavern_engine.plugin_check import check_plugin

    return await check_plugin(plugin, context)


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Start the recovery of abandoned runs, where the host serves."""
    if context.serving:
        context.tasks.spawn(_recover_runs(context), name="start recovering runs")


@hookimpl
async def tavern_shutdown(context: PluginContext) -> None:
    """Leave the runs to the next host, while the service is there that they may be kept by."""
    state = context.own(EngineState)
    for left in (state.engine, state.store):
        if left is not None:
            await left.close()


@hookimpl
async def tavern_settle_work(which: WorkFilter, context: PluginContext) -> list[SettledWork]:
    """End runs."""
    from tavern_engine.ending_work import end_work

    return await end_work(which, context)


@hookimpl
async def tavern_collect_figures(context: PluginContext) -> list[Figure]:
    """Return how often runs and nodes ended, how many runs there are now, and how far their journal is behind."""
    state = context.own(EngineState)
    engine = state.engine
    now = Counter(one.record.status.value for one in engine.active.values()) if engine else Counter()
    about: dict[str, Any] = {"name": "active_runs", "kind": "gauge", "help": "Runs that run or wait now."}
    gauges = [Figure(**about, value=now[status], labels={"status": status}) for status in ("running", "queued")]
    behind = Figure(
        name="journal_lag_seconds",
        kind="gauge",
        help="For how long a write to the run store is not done.",
        value=engine.recorder.behind() if engine else 0.0,
    )
    return [*state.runs.figures(), *state.nodes.figures(), *gauges, behind]


async def _recover_runs(context: PluginContext) -> None:
    await asyncio.sleep(_LATER)
    await asyncio.to_thread(import_module, "tavern_engine.engine")  # the event loop does not wait for it
    await all_started(context.services)
    from tavern_engine.api.executions import EXECUTION_ENGINE

    await context.services.get(EXECUTION_ENGINE).queue()  # creates it, unless another plugin overrides it
    if (engine := context.own(EngineState).engine) is not None:
        engine.recover_runs()


@hookimpl
def tavern_register_routes() -> list[RouteInfo | MessageInfo]:
    """Offer the platform's routes and messages for nodes and runs."""
    from tavern_engine.descriptors import routes

    return routes()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Offer the commands for workflows, runs, the cache and node types."""
    from tavern_engine.descriptors import commands

    return commands()
