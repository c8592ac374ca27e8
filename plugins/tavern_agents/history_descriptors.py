"""What the plugin offers by name for conversations: routes and commands."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_host.contracts.http import RouteInfo

_ROUTES = (
    ("GET", "", "list_histories", "Conversations, the latest changed first."),
    ("POST", "", "import_history", "Keep an exported conversation, under `?id=` if that is given."),
    ("GET", "/{id}", "get_history", "A conversation and its branches."),
    (
        "PATCH",
        "/{id}",
        "rename_history",
        "Give a conversation a title; null takes it away.",
    ),
    ("DELETE", "/{id}", "delete_history", "Forget a conversation."),
    ("GET", "/{id}/messages", "load", "The messages of a branch: `?branch=&leaf=&last=`."),
    ("POST", "/{id}/messages", "add", "Keep messages behind the head of a branch, or behind any message."),
    ("GET", "/{id}/children", "children", "The messages right behind `?of=`, or the first ones."),
    ("GET", "/{id}/tree", "tree", "The messages of all branches, each with its parent."),
    ("POST", "/{id}/messages/{message}/edit", "edit", "Keep a changed copy of a message beside it."),
    ("POST", "/{id}/messages/{message}/swipe", "swipe", "Keep another answer beside one."),
    ("POST", "/{id}/active", "activate", "Make a branch the active one, or let one go to a message."),
    ("POST", "/{id}/branches", "fork", "Make a branch."),
    ("POST", "/{id}/branches/{branch}/rename", "rename_branch", "Give a branch another name."),
    ("DELETE", "/{id}/branches/{branch}", "delete_branch", "Forget the name of a branch."),
    ("POST", "/{id}/fork", "fork_history", "Begin a conversation with copies of another's messages."),
    ("GET", "/{id}/export", "export_history", "A whole conversation."),
)


_DETAILS, _MESSAGES = "api.histories:HistoryDetails", "api.histories:HistoryMessage[]"
_PAGE = {"query": "host_api:PageQuery"}
_TYPES: dict[str, dict[str, Any]] = {
    "list_histories": {**_PAGE, "answer": "api.histories:HistorySummary[]"},
    "import_history": {
        "query": "api.answers:IdQuery",
        "body": "api.histories:HistoryExport",
        "answer": _DETAILS,
        "status": 201,
    },
    "delete_history": {"answer": "host_api:Deleted"},
    "load": {"query": "api.answers:BranchQuery", "answer": _MESSAGES},
    "add": {"body": "AddBody", "answer": _MESSAGES, "status": 201},
    "children": {"query": "api.answers:OfQuery", "answer": _MESSAGES},
    "tree": {**_PAGE, "answer": "api.histories:HistoryNode[]"},
    "edit": {"body": "EditBody", "answer": _MESSAGES, "status": 201},
    "swipe": {"body": "SwipeBody", "answer": _MESSAGES, "status": 201},
    "activate": {"body": "ActiveBody", "answer": _DETAILS},
    "fork": {"body": "BranchBody", "answer": _DETAILS, "status": 201},
    "rename_history": {"body": "TitleBody", "answer": _DETAILS},
    "rename_branch": {"body": "RenameBody", "answer": _DETAILS},
    "fork_history": {"body": "ForkBody", "answer": _DETAILS, "status": 201},
    "export_history": {"answer": "api.histories:HistoryExport"},
    **{key: {"answer": _DETAILS} for key in ("get_history", "delete_branch")},
}
"""What goes in and out of the routes, by function."""


def routes() -> list[RouteInfo]:
    """Return the routes of conversations."""
    module = "tavern_agents.history_web"
    return [
        RouteInfo.of_module(module, method, f"/api/histories{path}", name, summary, _TYPES[name])
        for method, path, name, summary in _ROUTES
    ]


_PARAMETERS: dict[str, tuple[str, str, dict[str, JsonValue]]] = {
    "history": ("history", "The conversation's id.", {"required": True}),
    "limit": ("--limit", "At most so many.", {"type": "integer", "default": 20}),
    "--branch": ("--branch", "A branch; the active one if left out.", {}),
    "leaf": ("--leaf", "The messages that lead to this one.", {}),
    "last": ("--last", "At most so many messages, the latest.", {"type": "integer"}),
    "title": ("title", "Its title; that which follows from what was said if left out.", {}),
    "new": ("name", "The branch; a new one unless an option says otherwise.", {}),
    "at": ("--message", "Where it begins; the head of the active branch if left out.", {}),
    "rename": ("--rename", "Its new name.", {}),
    "delete": ("--delete", "Forget its name; its messages stay.", {"type": "flag"}),
    "copy": ("--copy", "Begin a conversation of this id with its messages.", {}),
    "branch": ("branch", "The branch; the active one if left out.", {}),
    "to": ("--message", "Let the branch go to this message, and on to the last one behind it.", {}),
    "exactly": ("--exactly", "Stop at the message itself.", {"type": "flag"}),
    "message": ("message", "The id of a message.", {"required": True}),
    "text": ("--text", "The new text.", {"required": True}),
    "rest": ("--keep-rest", "Copy what follows it, too.", {"type": "flag"}),
    "answer": ("message", "A message of the answer; the latest one if left out.", {}),
    "profile": ("--profile", "The agent, where no agent gave the old answer.", {}),
    "output": ("--output", "The file; stdout if left out.", {"type": "path"}),
    "file": ("file", "The exported file.", {"type": "path", "required": True}),
    "id": ("--id", "Keep it under this id.", {}),
}

_COMMANDS = (
    ("list", "list_histories", "limit", "List conversations."),
    ("show", "show_history", "history --branch leaf last", "Show the messages of a branch."),
    ("tree", "show_tree", "history", "Show the messages of all branches."),
    (
        "branch",
        "change_branches",
        "history new at rename delete copy",
        "List the branches of a conversation; make, rename, copy or forget one.",
    ),
    ("switch", "switch", "history branch to exactly", "Make a branch the active one, or go back to a message."),
    ("rename", "rename_history", "history title", "Give a conversation a title."),
    ("edit", "edit", "history message text --branch rest", "Keep a changed copy of a message beside it."),
    ("swipe", "swipe", "history answer --branch profile", "Regenerate the answer; the old one stays."),
    ("export", "export_history", "history output", "Write a conversation as JSON."),
    ("import", "import_history", "file id", "Keep an exported conversation."),
    ("delete", "delete_history", "history", "Delete a conversation with its runs."),
)
_EXAMPLES = """
tavern history branch history_4f1c another-end --message msg_2
tavern history delete history_4f1c
tavern history edit history_4f1c msg_2 --text "Say it in one sentence."
tavern history export history_4f1c --output talk.json
tavern history import talk.json
tavern history rename history_4f1c "The tale of the inn"
tavern history show history_4f1c --last 10
tavern history swipe history_4f1c msg_3
tavern history switch history_4f1c another-end
tavern history tree history_4f1c
"""


def commands() -> list[CommandInfo]:
    """Return the commands `tavern history …`."""
    return [
        CommandInfo(
            name=f"history {name}",
            help=help,
            examples=examples_of(f"history {name}", _EXAMPLES),
            handler=f"tavern_agents.{'chat' if name == 'swipe' else 'history_commands'}:{handler}",
            group=CommandGroup(help="Read, edit, branch and carry conversations with agents.", section="run"),
            parameters=[_parameter(*_PARAMETERS[key]) for key in parameters.split()],
        )
        for name, handler, parameters, help in _COMMANDS
    ]


def _parameter(name: str, help: str, more: dict[str, JsonValue]) -> CommandParameter:
    return CommandParameter.model_validate({"name": name, "help": help, **more})
