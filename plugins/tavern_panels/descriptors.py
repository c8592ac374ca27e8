"""What the plugin offers by name: its routes and its commands."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_host.contracts.http import RouteInfo

_ROUTES = (
    ("GET", "/api/panels", "list_panels", "The project's panels; those that are published for who may not change any."),
    ("POST", "/api/panels", "create_panel", "Make a panel of workflows and agents."),
    ("GET", "/api/panels/schema", "get_schema", "The JSON Schema of panels."),
    ("GET", "/api/panels-check", "check_panels", "What is wrong with the project's panels."),
    ("POST", "/api/panels-preview", "preview_panel", "A document as people would be shown it; nothing is saved."),
    ("GET", "/api/panels/{id}", "get_panel", "Read a panel's document."),
    ("PUT", "/api/panels/{id}", "save_panel", "Save a panel."),
    ("DELETE", "/api/panels/{id}", "delete_panel", "Delete a panel."),
)
_RUN = "/api/panels/{id}/runs/{run}"
_ELEMENT = "/api/panels/{id}/elements/{element}"
_USE = (
    ("GET", "/api/panels/{id}/shown", "show_panel", "A panel as people are shown it."),
    ("POST", f"{_ELEMENT}/runs", "start_run", "Run a workflow of a panel; answers at once."),
    ("GET", f"{_ELEMENT}/messages", "get_messages", "One's own conversation with an agent of a panel."),
    ("POST", f"{_ELEMENT}/messages", "say", "Say something to an agent of a panel; answers at once."),
    ("GET", _RUN, "get_run", "One's own run in a panel as it stands."),
    ("GET", f"{_RUN}/events", "follow_run", "One's own run in a panel as it happens."),
    ("GET", f"{_RUN}/outputs/{{key}}", "get_output", "An output of one's own run as a stream."),
    ("POST", f"{_RUN}/answers", "answer", "Answer what one's own run asks, or decline."),
    ("POST", f"{_RUN}/stop", "stop_run", "Stop one's own run in a panel."),
)
_PANEL = {"answer": "api.panels:Panel"}
_OF_RUN = {"answer": "api.panels:PanelRun"}
_TYPES: dict[str, dict[str, Any]] = {
    "list_panels": {"answer": "api.panels:PanelSummary[]"},
    "create_panel": {"body": "NewPanel", **_PANEL, "status": 201},
    "check_panels": {"answer": "api.panels:PanelProblem[]"},
    "preview_panel": {"body": "api.panels:Panel", "answer": "api.panels:ShownPanel"},
    "get_panel": _PANEL,
    "save_panel": {"body": "api.panels:Panel", **_PANEL, "creates": True},
    "delete_panel": {"answer": "host_api:Done"},
    "show_panel": {"answer": "api.panels:ShownPanel"},
    "answer": {"body": "PanelAnswer", **_OF_RUN},
    "start_run": {"body": "PanelInputs", **_OF_RUN, "status": 202},
    "get_messages": {"query": "ConversationQuery", "answer": "api.panels:PanelMessage[]"},
    "say": {"body": "PanelSaid", **_OF_RUN, "status": 202},
    "follow_run": {"content_type": "text/event-stream"},
    "get_output": {"content_type": "*/*"},
    **dict.fromkeys(("get_run", "stop_run"), _OF_RUN),
}
"""What goes in and out of the routes, by function."""

_PARAMETERS: dict[str, tuple[str, str, dict[str, JsonValue]]] = {
    "id": ("panel", "The panel's id.", {"required": True}),
    "one": ("--panel", "Only this panel.", {}),
    "name": ("--name", "Its name; that of the first thing on it if left out.", {"default": ""}),
    "workflow": ("--workflow", "A workflow that stands on it.", {"multiple": True}),
    "agent": ("--agent", "An agent that one can talk to on it.", {"multiple": True}),
    "publish": ("--publish", "Let people use it who may not change panels.", {"type": "flag"}),
}
_COMMANDS = (
    ("list", "list_panels", "", "List the project's panels."),
    ("show", "show_panel", "id", "Show a panel: what stands on it, and what people are shown."),
    ("new", "new_panel", "id name workflow agent publish", "Make a panel of workflows and agents."),
    ("publish", "publish_panel", "id", "Let people use a panel who may not change panels."),
    ("withdraw", "withdraw_panel", "id", "Let a panel be for those again who may change panels."),
    ("delete", "delete_panel", "id", "Delete a panel."),
    ("check", "check_panels", "one", "Check the project's panels: files, workflows, agents, inputs."),
    ("schema", "show_schema", "", "Print the JSON Schema of panels."),
)


def routes() -> list[RouteInfo]:
    """Return the routes of panels."""
    rooms = (("tavern_panels.web", _ROUTES), ("tavern_panels.use_web", _USE))
    return [RouteInfo.of_module(module, *route, _TYPES.get(route[2], {})) for module, rows in rooms for route in rows]


_EXAMPLES = """
tavern panels new front-desk --workflow greeting --publish
tavern panels show front-desk
tavern panels publish front-desk
tavern panels withdraw front-desk
tavern panels delete front-desk
"""


def commands() -> list[CommandInfo]:
    """Return the commands `tavern panels …`."""
    return [
        CommandInfo(
            name=f"panels {name}",
            help=help,
            examples=examples_of(f"panels {name}", _EXAMPLES),
            handler=f"tavern_panels.commands:{handler}",
            group=CommandGroup(help="Make pages on which people run workflows and talk to agents.", section="build"),
            parameters=[_parameter(*_PARAMETERS[key]) for key in parameters.split()],
        )
        for name, handler, parameters, help in _COMMANDS
    ]


def _parameter(name: str, help: str, more: dict[str, JsonValue]) -> CommandParameter:
    return CommandParameter.model_validate({"name": name, "help": help, **more})
