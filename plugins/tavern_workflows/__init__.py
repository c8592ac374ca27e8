"""The project's workflow files: the service `workflowManager` and the `tavern workflow check`, `show` and
`list` commands. Running them is the engine's business."""

from __future__ import annotations

from typing import Any

from tavern_host import CommandInfo, CommandParameter, RouteInfo, ServiceInfo, hookimpl, service_info
from tavern_host.contracts.workflows import WORKFLOW_MANAGER

_ONE = "/api/workflows/{workflowId}"
_ANSWER = {"answer": "workflows:Workflow"}
_SAVED: dict[str, Any] = {**_ANSWER, "body": "workflows:Workflow"}
_CHECKED = {"body": "workflows:Workflow", "answer": "Checked", "access": "read"}
_ROUTES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("GET", "/api/workflows", "list_all", "List the workflows.", {"answer": "workflows:WorkflowSummary[]"}),
    ("POST", "/api/workflows", "create", "Save a new workflow.", {**_SAVED, "status": 201}),
    ("POST", "/api/workflows/check", "check", "Say everything that is wrong with a workflow.", _CHECKED),
    ("GET", _ONE, "show", "Read a workflow.", _ANSWER),
    ("PUT", _ONE, "replace", "Save a workflow.", _SAVED),
    ("PATCH", _ONE, "change", "Change parts of a workflow, or its id (a JSON merge patch).", _SAVED),
    ("DELETE", _ONE, "delete", "Delete a workflow.", {"answer": "host_api:Done"}),
)


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Offer `workflowManager`."""
    return [service_info(WORKFLOW_MANAGER, "tavern_workflows.manager:Workflows")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Offer the routes of workflows."""
    return [RouteInfo.of_module("tavern_workflows.web", *row) for row in _ROUTES]


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
        CommandInfo(
            name="workflow save",
            help="Save a workflow file as one of the project's.",
            handler="tavern_workflows.commands:save",
            parameters=[
                CommandParameter(name="file", type="path", required=True, help="A workflow file, anywhere."),
                CommandParameter(name="--id", help="Its id; without it, the file's name without the suffix."),
                CommandParameter(name="--replace", type="flag", help="Also where there is a workflow of this id."),
            ],
        ),
        CommandInfo(
            name="workflow move",
            help="Give a workflow of the project another id.",
            handler="tavern_workflows.commands:move",
            parameters=[
                CommandParameter(name="workflow", required=True, help="The id of a workflow of the project."),
                CommandParameter(name="to", required=True, help="The new id, a path such as drafts/greeting."),
            ],
        ),
        CommandInfo(
            name="workflow delete",
            help="Delete a workflow of the project.",
            handler="tavern_workflows.commands:delete",
            parameters=[CommandParameter(name="workflow", required=True, help="The id of a workflow of the project.")],
        ),
    ]
