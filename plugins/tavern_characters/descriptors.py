"""What the plugin offers by name: its routes and its commands."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_host.contracts.http import RouteInfo

_ROUTES = (
    ("GET", "/api/characters", "list_characters", "The project's characters."),
    ("POST", "/api/characters", "import_card", "Make an agent of the character card that is the body."),
    ("GET", "/api/characters/{id}", "get_card", "What a character's card says."),
    ("PATCH", "/api/characters/{id}", "save_card", "Change fields of a character's card."),
    ("PUT", "/api/characters/{id}/picture", "save_picture", "Give a character the picture that is the body."),
    ("DELETE", "/api/characters/{id}/picture", "remove_picture", "Take the picture from a character."),
    ("GET", "/api/characters/{id}/picture", "get_picture", "A character's picture."),
    ("GET", "/api/characters/{id}/export", "export_card", "A character as a card."),
    ("POST", "/api/characters/{id}/conversations", "begin", "Begin a conversation with a character's greeting."),
    ("POST", "/api/character-presets", "import_preset", "Make a workflow of the SillyTavern preset that is the body."),
    ("POST", "/api/character-chats", "import_chat", "Make a conversation of the SillyTavern chat that is the body."),
    ("GET", "/api/character-chats/{id}", "export_chat", "A conversation as a chat of SillyTavern."),
    ("GET", "/api/persona", "get_persona", "Who one is in conversations with characters."),
    ("PUT", "/api/persona", "save_persona", "Say who one is in conversations with characters."),
)
_TYPES: dict[str, dict[str, Any]] = {
    "list_characters": {"answer": "api.characters:CharacterSummary[]"},
    "import_card": {"query": "ImportQuery", "answer": "api.characters:CharacterImport", "status": 201},
    "get_card": {"answer": "api.characters:CharacterFields"},
    "save_card": {"body": "api.characters:CharacterFields", "answer": "api.characters:CharacterFields"},
    "save_picture": {"answer": "api.characters:CharacterFields"},
    "remove_picture": {"answer": "api.characters:CharacterFields"},
    "get_picture": {"content_type": "image/*"},
    "export_card": {"query": "ExportQuery", "content_type": "*/*"},
    "begin": {"answer": "api.characters:BegunConversation", "status": 201},
    "import_preset": {"query": "PresetQuery", "answer": "api.characters:ImportedPreset", "status": 201},
    "import_chat": {"query": "ChatQuery", "answer": "api.characters:ImportedChat", "status": 201},
    "export_chat": {"query": "BranchQuery", "content_type": "application/jsonl"},
    "get_persona": {"answer": "api.characters:Persona"},
    "save_persona": {"body": "api.characters:Persona", "answer": "api.characters:Persona"},
}
"""What goes in and out of the routes, by function."""

_FORMATS = "card (JSON of the version in which it came), card_v1, card_v2, card_v3, png or charx."
_PARAMETERS: dict[str, tuple[str, str, dict[str, JsonValue]]] = {
    "character": ("character", "The character's id.", {"required": True}),
    "card": ("file", "The card: JSON, PNG, WebP, JPEG or CHARX.", {"required": True, "type": "path"}),
    "id": ("--id", "The agent's id; made of the character's name if left out.", {}),
    "replace": ("--replace", "Replace a character that is there.", {"type": "flag"}),
    "format": ("--format", _FORMATS, {"default": "card"}),
    "output": ("--output", "The file; by default one of the character's name here.", {"type": "path"}),
    "chat": ("file", "The chat (JSON Lines).", {"required": True, "type": "path"}),
    "with": ("--character", "The character that it is with; the one of its name if left out.", {}),
    "conversation": ("conversation", "The conversation's id.", {"required": True}),
    "--branch": ("--branch", "A branch; the active one if left out.", {}),
    "to": ("--output", "The file; by default one of the conversation's name here.", {"type": "path"}),
    "preset": ("file", "The preset for chat completion (JSON).", {"required": True, "type": "path"}),
    "for": ("--character", "Let this character think with it.", {}),
    "name": ("--name", "What characters call you: {{user}}.", {}),
    "description": ("--description", "What characters know of you: {{persona}}.", {}),
}
_COMMANDS = (
    ("list", "list_characters", "", "List the project's characters."),
    (
        "import",
        "import_card",
        "card id replace",
        "Make an agent of a character card, and begin to talk.",
    ),
    ("export", "export_card", "character format output", "Write a character as a card."),
    ("begin", "begin", "character", "Begin a conversation with a character's greeting."),
    ("import-chat", "import_chat", "chat with", "Make a conversation of a chat of SillyTavern."),
    ("export-chat", "export_chat", "conversation --branch to", "Write a conversation as a chat of SillyTavern."),
    ("preset", "import_preset", "preset for", "Make a workflow of a preset of SillyTavern, for characters."),
    ("persona", "persona", "name description", "Show or say who you are in conversations with characters."),
)


def routes() -> list[RouteInfo]:
    """Return the routes of characters and personas."""
    return [RouteInfo.of_module("tavern_characters.web", *route, _TYPES[route[2]]) for route in _ROUTES]


_EXAMPLES = """
tavern character begin seraphina
tavern character export seraphina --output seraphina.png
tavern character export-chat history_4f1c
tavern character import seraphina.png
tavern character import-chat chat.jsonl --character seraphina
tavern character preset preset.json
tavern character persona --name Ada --description "A traveller who asks much"
"""


def commands() -> list[CommandInfo]:
    """Return the commands `tavern character …`."""
    return [
        CommandInfo(
            name=f"character {name}",
            help=help,
            examples=examples_of(f"character {name}", _EXAMPLES),
            handler=f"tavern_characters.commands:{handler}",
            group=CommandGroup(help="Talk to the characters of cards; say who you are for them.", section="run"),
            parameters=[_parameter(*_PARAMETERS[key]) for key in parameters.split()],
        )
        for name, handler, parameters, help in _COMMANDS
    ]


def _parameter(name: str, help: str, more: dict[str, JsonValue]) -> CommandParameter:
    return CommandParameter.model_validate({"name": name, "help": help, **more})
