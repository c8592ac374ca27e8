"""The project's workflow files: the service `workflowManager` and the `tavern workflow check` and `list`
commands. Running them is the engine's business."""

from __future__ import annotations

from tavern_host import CommandInfo, CommandParameter, ServiceInfo, hookimpl, service_info
from tavern_host.contracts.workflows import WORKFLOW_MANAGER


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Offer `workflowManager`."""
    from tavern_workflows.manager import Workflows

    return [service_info(WORKFLOW_MANAGER, Workflows)]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Offer the commands that look at workflows."""
    file = CommandParameter(name="file", type="path", required=True, help="A workflow file, anywhere.")
    return [
        CommandInfo(
            name="workflow check",
            help="Say everything that is wrong with a workflow file.",
            handler="tavern_workflows.commands:check",
            parameters=[file],
        ),
        CommandInfo(
            name="workflow list",
            help="List the project's workflows and those of plugins.",
            handler="tavern_workflows.commands:list_all",
        ),
    ]
