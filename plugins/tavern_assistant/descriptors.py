"""What tavern_assistant offers by name: its routes and its command."""

from __future__ import annotations

from typing import Any

from tavern_host import CommandGroup, CommandInfo, RouteInfo
from tavern_host.contracts.commands import CommandParameter

_PATCH: dict[str, Any] = {"body": "api.assistant:PatchProposal", "answer": "api.assistant:PatchResult"}
_UNDO: dict[str, Any] = {"body": "api.assistant:PatchUndo", "answer": "api.assistant:PatchResult"}
_ASK: dict[str, Any] = {"body": "AssistantRequest", "answer": "tavern_agents.api.agents:AgentRun", "status": 202}
_OPERATE = {"access": "operate"}
_ROUTES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("POST", "/api/patches/check", "propose", "Say what a patch would do.", {**_PATCH, "access": "read"}),
    ("POST", "/api/patches", "apply", "Apply a patch, as a whole or not at all.", _PATCH),
    ("POST", "/api/patches/undo", "undo", "Take a patch back.", _UNDO),
    ("POST", "/api/settings-patches", "apply_settings", "Apply a patch of settings.", {**_PATCH, **_OPERATE}),
    ("POST", "/api/settings-patches/undo", "undo_settings", "Take a patch of settings back.", {**_UNDO, **_OPERATE}),
    ("POST", "/api/assistant/requests", "ask", "Ask the creation assistant about a workflow; answers at once.", _ASK),
)


def routes() -> list[RouteInfo]:
    """Return the routes of patches, and of requests to the assistant."""
    return [RouteInfo.of_module("tavern_assistant.web", *row) for row in _ROUTES]


def commands() -> list[CommandInfo]:
    """Return `tavern assist`."""
    return [
        CommandInfo(
            name="assist",
            help="Ask the creation assistant to change a workflow, or about it: shows what changes, and asks.",
            examples=('tavern assist greeting "Let it say the time as well."',),
            handler="tavern_assistant.deliberation.commands:assist",
            group=CommandGroup(section="build"),
            parameters=[
                CommandParameter(name="file", help="A workflow's file, or the id of one.", required=True),
                CommandParameter(name="request", help="What is to be done, or a question, in words.", required=True),
                CommandParameter(name="--apply", type="flag", help="Make the changes without asking."),
            ],
        )
    ]
