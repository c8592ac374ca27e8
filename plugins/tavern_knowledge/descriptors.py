"""What the plugin offers by name: its routes and its commands."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter, examples_of
from tavern_host.contracts.http import RouteInfo

_ROUTES = (
    ("GET", "/api/knowledge", "list_bases", "The knowledge bases."),
    ("POST", "/api/knowledge-search", "search", "The entries that fit a query best."),
    ("POST", "/api/knowledge-activate", "activate", "The entries that a conversation brings into a prompt."),
    ("GET", "/api/knowledge/{base}", "get_base", "A base without its entries."),
    ("PUT", "/api/knowledge/{base}", "save_base", "Make a base, or change what is said of it."),
    ("DELETE", "/api/knowledge/{base}", "delete_base", "Remove a base with its file."),
    ("POST", "/api/knowledge/{base}/import", "import_base", "Make a base of a lorebook or a character card."),
    ("GET", "/api/knowledge/{base}/export", "export_base", "A base as a lorebook or a character card."),
    ("GET", "/api/knowledge/{base}/entries", "list_entries", "Entries of a base, in its order."),
    ("POST", "/api/knowledge/{base}/entries", "put_entries", "Write entries, all or none."),
    ("GET", "/api/knowledge/{base}/entries/{entry}", "get_entry", "An entry with its revision."),
    ("PUT", "/api/knowledge/{base}/entries/{entry}", "put_entry", "Write an entry; `?revision=` is what it must have."),
    ("DELETE", "/api/knowledge/{base}/entries/{entry}", "delete_entry", "Remove an entry."),
)


_STORED = {"answer": "api.knowledge:StoredEntry"}
_TYPES: dict[str, dict[str, Any]] = {
    "list_bases": {"answer": "api.knowledge:BaseSummary[]"},
    "search": {"body": "SearchBody", "answer": "api.knowledge:KnowledgeHit[]", "access": "read"},
    "activate": {"body": "api.knowledge:ActivationRequest", "answer": "api.knowledge:Activation", "access": "read"},
    "get_base": {"answer": "api.knowledge:BaseHeader"},
    "save_base": {"body": "api.knowledge:BaseHeader", "answer": "api.knowledge:BaseSummary"},
    "import_base": {"query": "api.answers:ReplaceQuery", "answer": "api.knowledge:ImportReport"},
    "export_base": {"query": "ExportQuery", "content_type": "*/*"},
    "list_entries": {"query": "PageQuery", "answer": "api.knowledge:EntryPage"},
    "put_entries": {"body": "EntriesBody", "answer": "api.knowledge:StoredEntry[]"},
    "get_entry": _STORED,
    "put_entry": {**_STORED, "query": "api.answers:RevisionQuery", "body": "api.knowledge:KnowledgeEntry"},
    **{key: {"answer": "host_api:Deleted"} for key in ("delete_base", "delete_entry")},
}
"""What goes in and out of the routes, by function."""

_BASE = CommandParameter(name="base", help="The base's id.", required=True)
_ENTRY = CommandParameter(name="entry", help="The entry's id.")
_TAG = CommandParameter(name="--tag", help="A tag of the entry; may be repeated.", multiple=True)
_FORMATS = "world_info, character_book, lorebook_v3, card_v1, card_v2, card_v3 or png."
_SEARCH = (
    CommandParameter(name="query", help="What is looked for.", required=True),
    CommandParameter(name="--base", help="Only this base, or those of a pattern such as host:*.", multiple=True),
    _TAG,
    CommandParameter(name="--limit", type="integer", default=5, help="At most so many."),
)
_LIMIT = CommandParameter(name="--limit", type="integer", default=100, help="At most so many entries.")
_ADD = (
    _BASE,
    CommandParameter(name="text", help="What the entry says.", required=True),
    CommandParameter(name="--id", help="The entry's id; one that is there is changed."),
    CommandParameter(name="--name", help="What people call it."),
    CommandParameter(name="--type", help="What kind of entry it is."),
    CommandParameter(name="--keyword", help="A word that brings it into a prompt.", multiple=True),
    _TAG,
)
_ALL = CommandParameter(name="--all", type="flag", help="The whole base.")
_IMPORT = (
    CommandParameter(name="file", type="path", help="The document.", required=True),
    CommandParameter(name="--base", help="The base's id; by default that of the file's name."),
    CommandParameter(name="--replace", type="flag", help="Replace a base that is there."),
)
_EXPORT = (
    _BASE,
    CommandParameter(name="--format", default="world_info", help=_FORMATS),
    CommandParameter(name="--output", type="path", help="The file; by default BASE.json or BASE.png here."),
)
_FROM = "Make a base of a text (plain, Markdown, HTML), a lorebook or a character card."
_COMMANDS: tuple[tuple[str, str, str, tuple[CommandParameter, ...]], ...] = (
    ("list", "list_bases", "List knowledge bases.", ()),
    ("search", "search", "Find entries of knowledge bases.", _SEARCH),
    ("show", "show", "Show the entries of a base, or one of them.", (_BASE, _ENTRY, _LIMIT)),
    ("add", "add", "Write an entry; a base that is missing is made.", _ADD),
    ("remove", "remove", "Remove an entry, or with --all a base with its file.", (_BASE, _ENTRY, _ALL)),
    ("import", "import_base", _FROM, _IMPORT),
    ("export", "export_base", "Write a base as a lorebook or a character card.", _EXPORT),
)


def routes() -> list[RouteInfo]:
    """Return the routes of knowledge bases."""
    return [RouteInfo.of_module("tavern_knowledge.web", *route, _TYPES[route[2]]) for route in _ROUTES]


_EXAMPLES = """
tavern kb add inn "The door is closed at night." --keyword door
tavern kb search "when is the door closed" --base inn
tavern kb show inn
tavern kb import lorebook.json --base inn
tavern kb import handbook.md
tavern kb export inn --output inn.json
tavern kb remove inn door-1
"""


def commands() -> list[CommandInfo]:
    """Return the commands `tavern kb …`."""
    handlers = "tavern_knowledge.commands"
    return [
        CommandInfo(
            name=f"kb {name}",
            help=help,
            examples=examples_of(f"kb {name}", _EXAMPLES),
            handler=f"{handlers}:{handler}",
            group=CommandGroup(help="Fill, search, import and export knowledge bases.", section="build"),
            parameters=list(parameters),
        )
        for name, handler, help, parameters in _COMMANDS
    ]
