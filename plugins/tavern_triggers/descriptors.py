"""What the plugin offers by name: its routes and its commands."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_host.contracts.http import RouteInfo

_HOOK = "Fire the trigger of a webhook, with its secret or a signature in the request."
_ROUTES = (
    ("GET", "/api/triggers", "list_triggers", "All triggers, and how they stand."),
    ("GET", "/api/trigger-kinds", "list_kinds", "The kinds of triggers."),
    ("POST", "/api/trigger-times", "times", "The next times of a schedule that begins now."),
    ("GET", "/api/triggers/{id}", "get_trigger", "A trigger, and how it stands."),
    ("PUT", "/api/triggers/{id}", "save_trigger", "Write a trigger's file; it is off until it is enabled."),
    ("DELETE", "/api/triggers/{id}", "delete_trigger", "Delete a trigger with its history."),
    ("POST", "/api/triggers/{id}/enable", "enable", "Switch a trigger on, on behalf of who asks."),
    ("POST", "/api/triggers/{id}/disable", "disable", "Switch a trigger off."),
    ("POST", "/api/triggers/{id}/fire", "fire", "Fire a trigger now, on behalf of who asks."),
    ("GET", "/api/triggers/{id}/firings", "history", "The firings of a trigger, the newest first."),
    ("POST", "/api/hooks/{id}", "hook", _HOOK),
    ("POST", "/api/hooks/{id}/{secret}", "hook", _HOOK),
)

_STATE = {"answer": "api.triggers:TriggerState"}
_TYPES: dict[str, dict[str, Any]] = {
    "list_triggers": {"answer": "api.triggers:TriggerState[]"},
    "list_kinds": {"answer": "api.triggers:TriggerKind[]"},
    "times": {"body": "api.triggers:Schedule", "answer": "api.answers:Times", "access": "read"},
    "get_trigger": _STATE,
    "save_trigger": {**_STATE, "body": "api.triggers:Trigger"},
    "delete_trigger": {"status": 204},
    "enable": {"body": "EnableBody", "answer": "api.triggers:EnabledTrigger"},
    "disable": _STATE,
    "fire": {"body": "FireBody", "answer": "api.triggers:Firing", "status": 202},
    "history": {"query": "api.answers:FiringQuery", "answer": "api.triggers:Firing[]"},
    "hook": {"answer": "api.answers:HookAnswer", "access": "public", "raw": True},
}
"""What goes in and out of the routes, by function."""

_PARAMETERS: dict[str, tuple[str, str, dict[str, JsonValue]]] = {
    "id": ("trigger", "The trigger's id.", {"required": True}),
    "any": ("trigger", "The trigger's id; without it those of all.", {}),
    "from": ("--from", "A file with the trigger as JSON; the other options are not needed then.", {"type": "path"}),
    "name": ("--name", "Its name; by default its id.", {"default": ""}),
    "kind": ("--kind", "Its kind: webhook, file, event, run, or one of a plugin.", {"default": ""}),
    "config": ("--config", "JSON: what belongs to its kind.", {"default": "{}"}),
    "cron": ("--cron", "When it fires: minute, hour, day, month, day of the week.", {"default": ""}),
    "zone": ("--time-zone", "The time zone of --cron, such as Europe/Berlin.", {"default": "UTC"}),
    "every": ("--every", "It fires every so many seconds.", {"type": "integer"}),
    "at": ("--at", "It fires once, at a moment with its offset, such as 2027-01-31T07:00:00+01:00.", {"default": ""}),
    "workflow": ("--workflow", "The workflow that it starts.", {"default": ""}),
    "agent": ("--agent", "The agent that it starts.", {"default": ""}),
    "message": ("--message", "The message that the agent gets.", {"default": ""}),
    "inputs": ("--inputs", "JSON: inputs of the workflow.", {"default": "{}"}),
    "missed": ("--missed", "What is made up for after a stop: skip, once or all.", {"default": "once"}),
    "overlap": ("--overlap", "While it runs: skip, queue or parallel.", {"default": "skip"}),
    "on": ("--enable", "Switch it on at once.", {"type": "flag"}),
    "secret": (
        "--secret-stdin",
        "A webhook's secret, from standard input, in the place of one that is made.",
        {"type": "flag"},
    ),
    "rotate": ("--rotate", "Give a webhook a new secret.", {"type": "flag"}),
    "payload": ("--payload", "JSON: what is said to have happened.", {"default": "{}"}),
    "limit": ("--limit", "How many firings are shown.", {"type": "integer", "default": 20}),
}
_NEW = "id from name kind config cron zone every at workflow agent message inputs missed overlap on"
_COMMANDS = (
    ("list", "list_triggers", "", "List the triggers of the project, and when they fire next."),
    ("show", "show", "id", "Show a trigger, its next times and its last firings."),
    ("new", "new", _NEW, "Write a trigger; it is off until it is enabled."),
    ("enable", "enable", "id secret rotate", "Switch a trigger on, as its file is now, on your behalf."),
    ("disable", "disable", "id", "Switch a trigger off."),
    ("fire", "fire", "id payload", "Fire a trigger now, and wait for the end of what it starts."),
    ("history", "history", "any limit", "Show firings, the newest first, with their runs and what went wrong."),
    ("delete", "delete", "id", "Delete a trigger with its history."),
)


def routes() -> list[RouteInfo]:
    """Return the routes of triggers."""
    return [RouteInfo.of_module("tavern_triggers.web", *route, _TYPES[route[2]]) for route in _ROUTES]


_EXAMPLES = """
tavern triggers new every-morning --cron "0 7 * * *" --workflow greeting --enable
tavern triggers fire every-morning
tavern triggers show every-morning
tavern triggers history every-morning
tavern triggers disable every-morning
tavern triggers enable every-morning
tavern triggers delete every-morning
"""


def commands() -> list[CommandInfo]:
    """Return the commands `tavern triggers …`."""
    return [
        CommandInfo(
            name=f"triggers {name}",
            help=help,
            examples=examples_of(f"triggers {name}", _EXAMPLES),
            handler=f"tavern_triggers.commands:{handler}",
            at_server=name == "fire",
            group=CommandGroup(help="Start workflows and agents at times, or when something happens.", section="run"),
            parameters=[_parameter(*_PARAMETERS[key]) for key in parameters.split()],
        )
        for name, handler, parameters, help in _COMMANDS
    ]


def _parameter(name: str, help: str, more: dict[str, JsonValue]) -> CommandParameter:
    return CommandParameter.model_validate({"name": name, "help": help, **more})
