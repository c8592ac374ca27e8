"""The project's workflow files: the service `workflowManager` and the `tavern workflow check`, `show` and
`list` commands. Running them is the engine's business."""

from __future__ import annotations

from tavern_host import CommandInfo, CommandParameter, ServiceInfo, hookimpl, service_info
from tavern_host.contracts.workflows import WORKFLOW_MANAGER


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Offer `workflowManager`."""
    return [service_info(WORKFLOW_MANAGER, "tavern_workflows.manager:Workflows")]


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
            name="workflow show",
            help="Show a workflow's graph as a tree, also of one that is broken.",
            handler="tavern_workflows.show:show",
            parameters=[
                CommandParameter(
                    name="workflow", type="path", required=True, help="A workflow file, or the id of a stored one."
                ),
                CommandParameter(name="--expand", type="flag", help="Show the workflows of groups too."),
                CommandParameter(name="--values", type="flag", help="Show the written values of nodes."),
                CommandParameter(name="--mermaid", type="flag", help="Print a Mermaid flowchart instead."),
                CommandParameter(name="--width", type="integer", default=80, help="How many columns to use."),
            ],
        ),
        CommandInfo(
            name="workflow list",
            help="List the project's workflows and those of plugins.",
            handler="tavern_workflows.commands:list_all",
        ),
    ]
