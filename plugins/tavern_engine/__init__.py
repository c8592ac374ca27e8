"""The workflow engine: the services `nodeManager` and `executionEngine`, the routes and messages of the
platform that go with them, and the commands `tavern workflow run`, `tavern runs …`, `tavern cache …` and
`tavern nodes list`."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tavern_host import (
    CommandInfo,
    CommandParameter,
    MessageInfo,
    PluginContext,
    RouteInfo,
    ServiceInfo,
    hookimpl,
    service_info,
)
from tavern_host.contracts.executions import EXECUTION_ENGINE
from tavern_host.contracts.metrics import Figure, tallied
from tavern_host.contracts.nodes import NODE_MANAGER
from tavern_host.contracts.runs import RUN_STORE

_LATER = 0.2
"""Seconds after the start, in which the host can serve its first request: the engine is imported and created then."""


_Row = tuple[str, str, str, str, dict[str, Any]]

_PLATFORM_ROUTES: tuple[_Row, ...] = (
    ("GET", "/api/nodes", "list_nodes", "All node types.", {"answer": "nodes:NodeDefinition[]"}),
    (
        "POST",
        "/api/nodes/reload",
        "reload_nodes",
        "Load what is new or changed of plugins.",
        {"answer": "host_api:NodesReloaded", "access": "operate"},
    ),
    (
        "POST",
        "/api/nodes/{type}/actions/{action}",
        "press",
        "Press a button of a node.",
        {"body": "Values", "answer": "host_api:InputValues"},
    ),
    ("GET", "/api/prompt/{promptId}", "show", "A run as it stands.", {"answer": "host_api:PromptState"}),
    ("DELETE", "/api/interrupt/{promptId}", "interrupt", "Stop a run.", {"answer": "host_api:Done"}),
    ("GET", "/api/executions", "queue", "What runs and what waits.", {"answer": "host_api:Executions"}),
)
_RUN_ROUTES: tuple[_Row, ...] = (
    (
        "GET",
        "/api/runs",
        "list_runs",
        "Runs, newest first.",
        {"query": "host_api:RunQuery", "answer": "host_api:RunPage"},
    ),
    ("GET", "/api/runs/{runId}", "show", "A run with its nodes.", {"answer": "executions:Run"}),
    (
        "GET",
        "/api/runs/{runId}/workflow",
        "workflow",
        "The workflow of a run, as it was when the run was accepted.",
        {"answer": "workflows:Workflow"},
    ),
    (
        "GET",
        "/api/runs/{runId}/outputs/{key}",
        "output",
        "An output as a stream.",
        {"query": "host_api:OutputQuery", "content_type": "*/*"},
    ),
    (
        "POST",
        "/api/runs/{runId}/resume",
        "resume",
        "Resume a run that failed or was interrupted.",
        {"answer": "host_api:RunStarted"},
    ),
    (
        "POST",
        "/api/runs/{runId}/rerun",
        "rerun",
        "Run a run's workflow once more with the same inputs.",
        {"answer": "host_api:RunStarted"},
    ),
    ("GET", "/api/system_stats", "system_stats", "How busy it is.", {"answer": "host_api:SystemStats"}),
)


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Offer `nodeManager`, `executionEngine` and `runStore`."""
    return [
        service_info(NODE_MANAGER, "tavern_engine.registry:Nodes"),
        service_info(EXECUTION_ENGINE, "tavern_engine.engine:Engine"),
        service_info(RUN_STORE, "tavern_engine.journal.run_store.store:SqliteRuns"),
    ]


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Start the recovery of abandoned runs, where the host serves."""
    if context.serving:
        context.tasks.spawn(_recover_runs(context), name="start recovering runs")


@hookimpl
async def tavern_collect_figures(context: PluginContext) -> list[Figure]:
    """Return how often runs and nodes ended, how many runs there are now, and how far their journal is behind."""
    engine = context.state.get("engine")
    now = Counter(one.record.status.value for one in engine.active.values()) if engine else Counter()
    about: dict[str, Any] = {"name": "active_runs", "kind": "gauge", "help": "Runs that run or wait now."}
    gauges = [Figure(**about, value=now[status], labels={"status": status}) for status in ("running", "queued")]
    behind = Figure(
        name="journal_lag_seconds",
        kind="gauge",
        help="For how long a write to the run store is not done.",
        value=engine.recorder.behind() if engine else 0.0,
    )
    return [*tallied(context.state), *gauges, behind]


async def _recover_runs(context: PluginContext) -> None:
    await asyncio.sleep(_LATER)
    await context.services.get(EXECUTION_ENGINE).queue()  # creates it, unless another plugin overrides it
    engine = context.state.get("engine")
    if engine is not None:
        engine.recover_runs()


@hookimpl
def tavern_register_routes() -> list[RouteInfo | MessageInfo]:
    """Offer the platform's routes and messages for nodes and runs."""
    web = "tavern_engine.web.platform_routes"
    return [
        *(RouteInfo.of_module(web, *row) for row in _PLATFORM_ROUTES),
        RouteInfo(
            method="POST",
            path="/api/prompt",
            handler=f"{web}:submit",
            summary="Run a workflow.",
            body="tavern_engine.web.prompts:Prompt",
            answer="tavern_host.contracts.host_api:PromptAccepted",
        ),
        *(RouteInfo.of_module("tavern_engine.web.run_routes", *row) for row in _RUN_ROUTES),
        MessageInfo(type="PROMPT_REQUEST", handler=f"{web}:on_prompt_request", summary="Run a workflow."),
        MessageInfo(type="INTERRUPT_REQUEST", handler=f"{web}:on_interrupt_request", summary="Stop a run."),
        MessageInfo(type="button_click", handler=f"{web}:on_button_click", summary="Press a button of a node."),
    ]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Offer the commands that run workflows and show what they are made of."""
    return [
        CommandInfo(
            name="workflow run",
            help="Run a workflow and show its outputs.",
            handler="tavern_engine.cli.commands:run",
            at_server=True,
            parameters=[
                CommandParameter(
                    name="workflow", type="path", required=True, help="A workflow file, or the id of a stored one."
                ),
                CommandParameter(
                    name="--input", multiple=True, help="A value for an interface input, KEY=VALUE; JSON or text."
                ),
                CommandParameter(
                    name="--inputs",
                    type="path",
                    help="A file with the values of interface inputs, a JSON object; - for stdin.",
                ),
                CommandParameter(
                    name="--override",
                    multiple=True,
                    help="An output of a node, NODE.OUTPUT=VALUE, instead of running it; JSON or text.",
                ),
                CommandParameter(
                    name="--overrides", type="path", help="A file with outputs of nodes, a JSON object; - for stdin."
                ),
                CommandParameter(name="--target", multiple=True, help="Run this node and what it needs, no others."),
                CommandParameter(
                    name="--priority",
                    type="integer",
                    default=0,
                    help="Of waiting runs, the one with the higher priority is started first.",
                ),
                CommandParameter(name="--no-cache", type="flag", help="Run every node, whatever ran before."),
            ],
        ),
        *_run_commands(),
        CommandInfo(
            name="cache show",
            help="Show how many outputs of nodes are cached for later runs, and where.",
            handler="tavern_engine.cli.cache_commands:show",
        ),
        CommandInfo(
            name="cache clear",
            help="Delete the cached outputs of nodes, so that every node runs again.",
            handler="tavern_engine.cli.cache_commands:clear",
        ),
        CommandInfo(name="nodes list", help="List all node types.", handler="tavern_engine.cli.commands:list_nodes"),
    ]


def _run_commands() -> list[CommandInfo]:
    """Return the commands of the run history."""
    handlers = "tavern_engine.cli.run_commands"
    run = CommandParameter(name="run", required=True, help="The id of a run, or the beginning of it.")
    return [
        CommandInfo(
            name="runs list",
            help="List runs, newest first.",
            handler=f"{handlers}:list_runs",
            parameters=[
                CommandParameter(
                    name="--status",
                    multiple=True,
                    help="Those of this status: queued, running, complete, error, interrupted.",
                ),
                CommandParameter(name="--workflow", help="Those of the workflow with this id."),
                CommandParameter(name="--since", help="Those since then: 2d, 3h, 30m, or a date such as 2026-01-31."),
                CommandParameter(name="--limit", type="integer", default=20, help="At most so many."),
            ],
        ),
        CommandInfo(
            name="runs show",
            help="Show a run: what was asked, what its nodes did when, and what it gave.",
            handler=f"{handlers}:show",
            parameters=[run, CommandParameter(name="--node", help="This node alone, with its whole output.")],
        ),
        CommandInfo(
            name="runs interrupt",
            help="Interrupt a run, wherever it runs.",
            handler=f"{handlers}:interrupt",
            at_server=True,
            parameters=[run],
        ),
        CommandInfo(
            name="runs resume",
            help="Resume a run that failed or was interrupted, from where it ended.",
            handler=f"{handlers}:resume",
            at_server=True,
            parameters=[run],
        ),
        CommandInfo(
            name="runs retry",
            help="Run a run's workflow, as it was then, once more with the same inputs.",
            handler=f"{handlers}:retry",
            at_server=True,
            parameters=[run],
        ),
    ]
