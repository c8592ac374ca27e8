"""What the plugin offers by name: its routes, messages and commands."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_host.contracts.http import MessageInfo, RouteInfo

_Row = tuple[str, str, str, str, dict[str, Any]]
_WEB = "tavern_engine.web.platform_routes"
_RELOADED = {"answer": "api.answers:NodesReloaded", "access": "operate"}
_PRESSED = {"body": "Values", "answer": "api.answers:InputValues"}
_PLATFORM_ROUTES: tuple[_Row, ...] = (
    ("GET", "/api/nodes", "list_nodes", "All node types.", {"answer": "nodes:NodeDefinition[]"}),
    ("POST", "/api/nodes/reload", "reload_nodes", "Load what is new or changed of plugins.", _RELOADED),
    ("POST", "/api/nodes/{type}/actions/{action}", "press", "Press a button of a node.", _PRESSED),
    ("GET", "/api/prompt/{promptId}", "show", "A run as it stands.", {"answer": "api.answers:PromptState"}),
    ("DELETE", "/api/interrupt/{promptId}", "interrupt", "Stop a run.", {"answer": "host_api:Done"}),
    ("GET", "/api/executions", "queue", "What runs and what waits.", {"answer": "api.answers:Executions"}),
)
_PAGE = {"query": "api.answers:RunQuery", "answer": "api.answers:RunPage"}
_WORKFLOW = {"answer": "workflows:Workflow"}
_OUTPUT = {"query": "api.answers:OutputQuery", "content_type": "*/*"}
_STARTED = {"answer": "api.answers:RunStarted"}
_RESUMED = {"body": "Prompt", "answer": "api.executions:Resumed"}
_ID = "/api/runs/{runId}"
_RUN_ROUTES: tuple[_Row, ...] = (
    ("GET", "/api/runs", "list_runs", "Runs, newest first.", _PAGE),
    ("GET", _ID, "show", "A run with its nodes.", {"answer": "executions:Run"}),
    ("GET", f"{_ID}/workflow", "workflow", "The workflow of a run, as it was when the run was accepted.", _WORKFLOW),
    ("GET", f"{_ID}/outputs/{{key}}", "output", "An output as a stream.", _OUTPUT),
    ("POST", f"{_ID}/resume", "resume", "Resume a run that failed or was interrupted.", _RESUMED),
    ("POST", f"{_ID}/rerun", "rerun", "Run a run's workflow once more with the same inputs.", _STARTED),
    ("GET", "/api/system_stats", "system_stats", "How busy it is.", {"answer": "api.answers:SystemStats"}),
)

_RUN = CommandParameter(name="run", required=True, help="The id of a run, or the beginning of it.")
_WITH = (
    CommandParameter(name="workflow", type="path", required=True, help="A workflow file, or the id of a stored one."),
    CommandParameter(name="--input", multiple=True, help="A value for an interface input, KEY=VALUE; JSON or text."),
    CommandParameter(
        name="--inputs", type="path", help="A file with the values of interface inputs, a JSON object; - for stdin."
    ),
    CommandParameter(
        name="--override",
        multiple=True,
        help="An output of a node, NODE.OUTPUT=VALUE, instead of running it; JSON or text.",
    ),
    CommandParameter(name="--overrides", type="path", help="A file with outputs of nodes, a JSON object; - for stdin."),
    CommandParameter(name="--target", multiple=True, help="Run this node and what it needs, no others."),
    CommandParameter(
        name="--priority",
        type="integer",
        default=0,
        help="Of waiting runs, the one with the higher priority is started first.",
    ),
    CommandParameter(name="--no-cache", type="flag", help="Run every node, whatever ran before."),
)
_CHANGED = CommandParameter(
    name="--workflow",
    type="path",
    help="Resume with this workflow file, or stored workflow: what is different in it is run again.",
)
_OF = (
    CommandParameter(
        name="--status", multiple=True, help="Those of this status: queued, running, complete, error, interrupted."
    ),
    CommandParameter(name="--workflow", help="Those of the workflow with this id."),
    CommandParameter(name="--since", help="Those since then: 2d, 3h, 30m, or a date such as 2026-01-31."),
    CommandParameter(name="--limit", type="integer", default=20, help="At most so many."),
)
_NODE = CommandParameter(name="--node", help="This node alone, with its whole output.")
_TYPE = CommandParameter(name="type", required=True, help="The node type, such as core:Text.")
_AT_SERVER = {"workflow run", "runs interrupt", "runs resume", "runs retry"}
_SHOW = "Show a run: what was asked, what its nodes did when, and what it gave."
_RESUME = "Resume a run that failed or was interrupted, from where it ended."
_RETRY = "Run a run's workflow, as it was then, once more with the same inputs."
_CACHED = "Show how many outputs of nodes are cached for later runs, and where."
_CLEAR = "Delete the cached outputs of nodes, so that every node runs again."
_COMMANDS: tuple[tuple[str, str, str, tuple[CommandParameter, ...]], ...] = (
    ("workflow run", "commands:run", "Run a workflow and show its outputs.", _WITH),
    ("runs list", "run_commands:list_runs", "List runs, newest first.", _OF),
    ("runs show", "run_commands:show", _SHOW, (_RUN, _NODE)),
    ("runs interrupt", "run_commands:interrupt", "Interrupt a run, wherever it runs.", (_RUN,)),
    ("runs resume", "run_commands:resume", _RESUME, (_RUN, _CHANGED)),
    ("runs retry", "run_commands:retry", _RETRY, (_RUN,)),
    ("cache show", "cache_commands:show", _CACHED, ()),
    ("cache clear", "cache_commands:clear", _CLEAR, ()),
    ("nodes list", "commands:list_nodes", "List all node types.", ()),
    ("nodes show", "commands:show_node", "Show a node type with all its slots.", (_TYPE,)),
)

_GROUPS = {
    "runs": CommandGroup(help="See runs of workflows; interrupt, resume or retry them.", section="run"),
    "cache": CommandGroup(help="See and clear the outputs that nodes do not compute again.", section="operate"),
    "nodes": CommandGroup(help="See which node types there are.", section="build"),
}


def routes() -> list[RouteInfo | MessageInfo]:
    """Return the platform's routes and messages for nodes and runs."""
    return [
        *(RouteInfo.of_module(_WEB, *row) for row in _PLATFORM_ROUTES),
        RouteInfo(
            method="POST",
            path="/api/prompt",
            handler=f"{_WEB}:submit",
            summary="Run a workflow.",
            body="tavern_engine.web.prompts:Prompt",
            answer="tavern_engine.api.answers:PromptAccepted",
        ),
        *(RouteInfo.of_module("tavern_engine.web.run_routes", *row) for row in _RUN_ROUTES),
        MessageInfo(type="PROMPT_REQUEST", handler=f"{_WEB}:on_prompt_request", summary="Run a workflow."),
        MessageInfo(type="INTERRUPT_REQUEST", handler=f"{_WEB}:on_interrupt_request", summary="Stop a run."),
        MessageInfo(type="button_click", handler=f"{_WEB}:on_button_click", summary="Press a button of a node."),
    ]


_EXAMPLES = """
tavern workflow run greeting --input name=Ada
tavern workflow run drafts/tale.json --no-cache
tavern runs list --status error --since 2d
tavern runs interrupt run_4f1c
tavern runs resume run_4f1c
tavern runs retry run_4f1c
tavern runs show run_4f1c --node trim
tavern nodes show core:Text
"""


def commands() -> list[CommandInfo]:
    """Return the commands for workflows, runs, the cache and node types."""
    return [
        CommandInfo(
            name=name,
            help=help,
            examples=examples_of(name, _EXAMPLES),
            handler=f"tavern_engine.cli.{handler}",
            group=_GROUPS.get(name.split()[0]),
            at_server=name in _AT_SERVER,
            parameters=list(parameters),
        )
        for name, handler, help, parameters in _COMMANDS
    ]
