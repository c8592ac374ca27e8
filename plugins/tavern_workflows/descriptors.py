"""What tavern_workflows offers: its routes and its commands."""

from __future__ import annotations

from typing import Any

from tavern_host import CommandGroup, CommandInfo, CommandParameter, RouteInfo

_ONE = "/api/workflows/{workflowId}"
_ANSWER = {"answer": "workflows:Workflow"}
_SAVED: dict[str, Any] = {**_ANSWER, "body": "workflows:Workflow"}
_CHECKED = {"body": "workflows:Workflow", "answer": "Checked", "access": "read"}
_PLACED = {"body": "Unplaced", "answer": "api.workflows:WorkflowLayout", "access": "read"}
_DRAFT = {"answer": "api.workflows:WorkflowDraft"}
_REVISION = {"answer": "api.workflows:WorkflowRevision"}
_REVISIONS = {"query": "Page", "answer": "api.workflows:WorkflowRevision[]"}
_MATCHES = {"query": "Search", "answer": "api.workflows:WorkflowMatch[]"}
_ROUTES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("GET", "/api/workflows", "list_all", "List the workflows.", {"answer": "api.workflows:WorkflowSummary[]"}),
    ("POST", "/api/workflows", "create", "Save a new workflow.", {**_SAVED, "status": 201}),
    ("POST", "/api/workflows/check", "check", "Say everything that is wrong with a workflow.", _CHECKED),
    ("POST", "/api/layout", "layout", "Place the nodes of a workflow.", _PLACED),
    ("GET", _ONE, "show", "Read a workflow.", _ANSWER),
    ("PUT", _ONE, "replace", "Save a workflow.", {**_SAVED, "creates": True}),
    ("PATCH", _ONE, "change", "Change parts of a workflow, or its id (a JSON merge patch).", _SAVED),
    ("DELETE", _ONE, "delete", "Delete a workflow.", {"answer": "host_api:Done"}),
)
_HISTORY_ROUTES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("GET", f"{_ONE}/draft", "show_draft", "Read what is being made of a workflow.", _DRAFT),
    ("PUT", f"{_ONE}/draft", "save_draft", "Keep a draft of a workflow.", {**_DRAFT, "body": "NewDraft"}),
    ("DELETE", f"{_ONE}/draft", "discard_draft", "Give a draft up.", _DRAFT),
    ("GET", f"{_ONE}/history", "revisions", "List the revisions of a workflow.", _REVISIONS),
    ("GET", f"{_ONE}/history/{{number}}", "revision", "Read a revision.", _ANSWER),
    ("PATCH", f"{_ONE}/history/{{number}}", "name", "Name a revision.", {**_REVISION, "body": "Name"}),
    ("GET", f"{_ONE}/uses", "uses", "List what names a workflow.", {"answer": "api.workflows:WorkflowUse[]"}),
    ("GET", "/api/workflow-history", "newest", "List the newest revision of each workflow.", _REVISIONS),
    ("GET", "/api/workflow-search", "search", "Find words in the workflows.", _MATCHES),
)


def routes() -> list[RouteInfo]:
    """Return the routes of workflows, drafts and histories."""
    found = [RouteInfo.of_module("tavern_workflows.web", *row) for row in _ROUTES]
    return found + [RouteInfo.of_module("tavern_workflows.history_web", *row) for row in _HISTORY_ROUTES]


def commands() -> list[CommandInfo]:
    """Return the commands `tavern workflow …`."""
    return [*_of_files(), *_of_history()]


def _of_files() -> list[CommandInfo]:
    file = CommandParameter(name="file", type="path", required=True, help="A workflow file, anywhere.")
    return [
        CommandInfo(
            name="workflow check",
            help="Say everything that is wrong with a workflow file.",
            examples=("tavern workflow check workflows/greeting.json",),
            handler="tavern_workflows.commands:check",
            group=CommandGroup(help="Check, show, save, run and restore workflows.", section="build"),
            parameters=[file],
        ),
        CommandInfo(
            name="workflow show",
            help="Show a workflow's graph as a tree, also of one that is broken.",
            examples=("tavern workflow show greeting", "tavern workflow show greeting --mermaid"),
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
            examples=("tavern workflow save tale.json --id drafts/tale",),
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
            examples=("tavern workflow move greeting drafts/greeting",),
            handler="tavern_workflows.commands:move",
            parameters=[
                CommandParameter(name="workflow", required=True, help="The id of a workflow of the project."),
                CommandParameter(name="to", required=True, help="The new id, a path such as drafts/greeting."),
            ],
        ),
        CommandInfo(
            name="workflow delete",
            help="Delete a workflow of the project.",
            examples=("tavern workflow delete greeting",),
            handler="tavern_workflows.commands:delete",
            parameters=[CommandParameter(name="workflow", required=True, help="The id of a workflow of the project.")],
        ),
    ]


def _of_history() -> list[CommandInfo]:
    return [
        CommandInfo(
            name="workflow history",
            help="List the revisions of a workflow, drafts too; without one, the newest of each, deleted ones too.",
            examples=("tavern workflow history greeting",),
            handler="tavern_workflows.history_commands:history",
            parameters=[
                CommandParameter(name="workflow", help="The id of a workflow, which may be deleted by now."),
                CommandParameter(name="--limit", type="integer", default=50, help="How many to list."),
            ],
        ),
        CommandInfo(
            name="workflow restore",
            help="Make a revision the file of a workflow again, also of one that was deleted.",
            examples=("tavern workflow restore greeting 3",),
            handler="tavern_workflows.history_commands:restore",
            parameters=[
                CommandParameter(name="workflow", required=True, help="The id of a workflow."),
                CommandParameter(
                    name="number", type="integer", help="Which revision; the last of the file without it."
                ),
            ],
        ),
        CommandInfo(
            name="workflow uses",
            help="List what names a workflow: groups of other workflows, tools, agents.",
            examples=("tavern workflow uses greeting",),
            handler="tavern_workflows.history_commands:uses",
            parameters=[CommandParameter(name="workflow", required=True, help="The id of a workflow.")],
        ),
        CommandInfo(
            name="workflow search",
            help="Find words in all workflows: in names, nodes and their values.",
            examples=('tavern workflow search "good evening"',),
            handler="tavern_workflows.history_commands:search",
            parameters=[CommandParameter(name="text", required=True, help="Words that stand together in one node.")],
        ),
    ]
