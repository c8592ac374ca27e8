"""The workflow engine: the services `nodeManager` and `executionEngine`, the routes and messages of the
platform that go with them, and the `tavern workflow run` and `tavern nodes list` commands."""

from __future__ import annotations

from tavern_host import CommandInfo, CommandParameter, MessageInfo, RouteInfo, ServiceInfo, hookimpl, service_info
from tavern_host.contracts.executions import EXECUTION_ENGINE
from tavern_host.contracts.nodes import NODE_MANAGER


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Offer `nodeManager` and `executionEngine`."""
    from tavern_engine.engine import Engine
    from tavern_engine.registry import Nodes

    return [service_info(NODE_MANAGER, Nodes), service_info(EXECUTION_ENGINE, Engine)]


@hookimpl
def tavern_register_routes() -> list[RouteInfo | MessageInfo]:
    """Offer the platform's routes and messages for nodes and runs."""
    web = "tavern_engine.web"
    return [
        RouteInfo(method="GET", path="/api/nodes", handler=f"{web}:list_nodes", summary="All node types."),
        RouteInfo(method="POST", path="/api/prompt", handler=f"{web}:submit", summary="Run a workflow."),
        RouteInfo(method="GET", path="/api/prompt/{promptId}", handler=f"{web}:show", summary="A run as it stands."),
        RouteInfo(method="DELETE", path="/api/interrupt/{promptId}", handler=f"{web}:interrupt", summary="Stop a run."),
        RouteInfo(method="GET", path="/api/executions", handler=f"{web}:queue", summary="What runs and what waits."),
        MessageInfo(type="PROMPT_REQUEST", handler=f"{web}:on_prompt_request", summary="Run a workflow."),
        MessageInfo(type="INTERRUPT_REQUEST", handler=f"{web}:on_interrupt_request", summary="Stop a run."),
    ]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Offer the commands that run workflows and show what they are made of."""
    return [
        CommandInfo(
            name="workflow run",
            help="Run a workflow and show its outputs.",
            handler="tavern_engine.commands:run",
            parameters=[
                CommandParameter(
                    name="workflow", type="path", required=True, help="A workflow file, or the id of a stored one."
                ),
                CommandParameter(
                    name="--input", multiple=True, help="A value for an interface input, KEY=VALUE; JSON or text."
                ),
            ],
        ),
        CommandInfo(name="nodes list", help="List all node types.", handler="tavern_engine.commands:list_nodes"),
    ]
