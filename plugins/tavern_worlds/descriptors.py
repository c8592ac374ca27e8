"""What the plugin offers by name: its routes and its commands."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_host.contracts.http import RouteInfo

_ROUTES = (
    ("GET", "/api/scenes", "list_scenes", "The project's scenes, and what is wrong with them."),
    ("POST", "/api/scenes", "create", "Make a scene of agents."),
    ("POST", "/api/scenes/{id}/runs", "start", "Start a scene."),
    ("GET", "/api/scene-runs", "list_runs", "Runs of scenes, the latest first."),
    ("GET", "/api/scene-runs/{run}", "get_run", "A run of a scene as it stands, its world included."),
    ("POST", "/api/scene-runs/{run}/messages", "say", "Say something to all agents of a scene."),
    ("POST", "/api/scene-runs/{run}/events", "publish", "Publish an event in a scene."),
    ("POST", "/api/scene-runs/{run}/world", "change_world", "Merge keys into the world of a scene."),
    ("POST", "/api/scene-runs/{run}/stop", "stop", "End a run of a scene."),
)

_PARAMETERS: dict[str, tuple[str, str, dict[str, JsonValue]]] = {
    "id": ("scene", "The scene's id.", {"required": True}),
    "called": ("name", "What the scene is called.", {"required": True}),
    "agents": ("--agent", "An agent that speaks in it.", {"multiple": True}),
    "about": ("--description", "What all agents learn of it.", {"default": ""}),
    "scene": ("scene", "The id of a run, or of a scene: its latest run.", {"required": True}),
    "message": ("--message", "What is said; without it the agents continue, with --turns.", {"default": ""}),
    "name": ("--name", "Who says it.", {"default": "User"}),
    "turns": ("--turns", "How many turns the agents have then.", {"type": "integer"}),
    "event": ("event", "The type of the event.", {"required": True}),
    "payload": ("--payload", "JSON: what it says.", {"default": "{}"}),
    "set": ("--set", "JSON: the keys that change; null removes one.", {}),
    "revision": ("--revision", "Change it only if it has this revision.", {"type": "integer"}),
}

_COMMANDS = (
    ("list", "list_scenes", "", "List the project's scenes and their latest runs."),
    ("new", "new_scene", "called agents about", "Make a scene of agents, such as the characters of cards."),
    ("show", "show", "scene", "Show a run of a scene: its agents, and what they said."),
    ("start", "start", "id", "Start a scene, and show what its agents say."),
    ("say", "say", "scene message name turns", "Say something in a scene, and show the answers."),
    ("publish", "publish", "scene event payload", "Publish an event in a scene, and show what the woken agents say."),
    ("state", "state", "scene set revision", "Show the world of a scene, or change it."),
    ("stop", "stop", "scene", "End a run of a scene."),
)


_RUN = {"answer": "api.scenes:SceneRun"}
_TYPES: dict[str, dict[str, Any]] = {
    "list_scenes": {"answer": "api.scenes:SceneSummary[]"},
    "create": {"body": "NewScene", "answer": "api.scenes:Scene", "status": 201},
    "start": {**_RUN, "status": 201},
    "list_runs": {"answer": "api.scenes:SceneRun[]"},
    "get_run": _RUN,
    "say": {**_RUN, "body": "SayBody", "status": 202},
    "publish": {"body": "EventBody", "answer": "api.answers:Woken", "status": 202},
    "change_world": {"body": "WorldBody", "answer": "api.scenes:WorldState"},
    "stop": _RUN,
}
"""What goes in and out of the routes, by function."""


def routes() -> list[RouteInfo]:
    """Return the routes of scenes."""
    return [RouteInfo.of_module("tavern_worlds.web", *route, _TYPES[route[2]]) for route in _ROUTES]


_EXAMPLES = """
tavern scene new inn --agent host --agent guest
tavern scene publish inn rain --payload '{"hours": 2}'
tavern scene say inn --message "Good evening."
tavern scene show inn
tavern scene start inn
tavern scene state inn --set '{"door": "open"}'
tavern scene stop inn
"""


def commands() -> list[CommandInfo]:
    """Return the commands `tavern scene …`."""
    return [
        CommandInfo(
            name=f"scene {name}",
            help=help,
            examples=examples_of(f"scene {name}", _EXAMPLES),
            handler=f"tavern_worlds.commands:{handler}",
            group=CommandGroup(help="Let several agents act in a scene.", section="run"),
            parameters=[_parameter(*_PARAMETERS[key]) for key in parameters.split()],
        )
        for name, handler, parameters, help in _COMMANDS
    ]


def _parameter(name: str, help: str, more: dict[str, JsonValue]) -> CommandParameter:
    return CommandParameter.model_validate({"name": name, "help": help, **more})
