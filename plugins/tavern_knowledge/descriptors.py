"""What the plugin offers by name: its routes and its commands."""

from __future__ import annotations

from tavern_host.contracts.commands import CommandInfo, CommandParameter
from tavern_host.contracts.http import RouteInfo

_ROUTES = (
    ("GET", "/api/knowledge", "list_bases", "The knowledge bases."),
    ("POST", "/api/knowledge-search", "search", "The entries that fit a query best."),
    ("POST", "/api/knowledge-activate", "activate", "The entries that a conversation brings into a prompt."),
    ("GET", "/api/knowledge/{base}", "get_base", "A base without its entries."),
    ("PUT", "/api/knowledge/{base}", "save_base", "Make a base, or change what is said of it."),
    ("DELETE", "/api/knowledge/{base}", "delete_base", "Remove a base with its file."),
    ("GET", "/api/knowledge/{base}/entries", "list_entries", "Entries of a base, in its order."),
    ("POST", "/api/knowledge/{base}/entries", "put_entries", "Write entries, all or none."),
    ("GET", "/api/knowledge/{base}/entries/{entry}", "get_entry", "An entry with its revision."),
    ("PUT", "/api/knowledge/{base}/entries/{entry}", "put_entry", "Write an entry; `?revision=` is what it must have."),
    ("DELETE", "/api/knowledge/{base}/entries/{entry}", "delete_entry", "Remove an entry."),
)


def routes() -> list[RouteInfo]:
    """Return the routes of knowledge bases."""
    return [
        RouteInfo(method=method, path=path, handler=f"tavern_knowledge.web:{handler}", summary=summary)
        for method, path, handler, summary in _ROUTES
    ]


def commands() -> list[CommandInfo]:
    """Return the commands `tavern kb …`."""
    base = CommandParameter(name="base", help="The base's id.", required=True)
    entry = CommandParameter(name="entry", help="The entry's id.")
    handlers = "tavern_knowledge.commands"
    return [
        CommandInfo(name="kb list", help="List knowledge bases.", handler=f"{handlers}:list_bases"),
        CommandInfo(
            name="kb search",
            help="Find entries of knowledge bases.",
            handler=f"{handlers}:search",
            parameters=[
                CommandParameter(name="query", help="What is looked for.", required=True),
                CommandParameter(
                    name="--base", help="Only this base, or those of a pattern such as host:*.", multiple=True
                ),
                CommandParameter(name="--tag", help="Only entries with this tag.", multiple=True),
                CommandParameter(name="--limit", type="integer", default=5, help="At most so many."),
            ],
        ),
        CommandInfo(
            name="kb show",
            help="Show the entries of a base, or one of them.",
            handler=f"{handlers}:show",
            parameters=[
                base,
                entry,
                CommandParameter(name="--limit", type="integer", default=100, help="At most so many entries."),
            ],
        ),
        CommandInfo(
            name="kb add",
            help="Write an entry; a base that is missing is made.",
            handler=f"{handlers}:add",
            parameters=[
                base,
                CommandParameter(name="text", help="What the entry says.", required=True),
                CommandParameter(name="--id", help="The entry's id; one that is there is changed."),
                CommandParameter(name="--name", help="What people call it."),
                CommandParameter(name="--type", help="What kind of entry it is."),
                CommandParameter(name="--keyword", help="A word that brings it into a prompt.", multiple=True),
                CommandParameter(name="--tag", help="A tag.", multiple=True),
            ],
        ),
        CommandInfo(
            name="kb remove",
            help="Remove an entry, or with --all a base with its file.",
            handler=f"{handlers}:remove",
            parameters=[base, entry, CommandParameter(name="--all", type="flag", help="The whole base.")],
        ),
    ]
