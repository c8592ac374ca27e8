"""The hook by which plugins say which files of other programs they import."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.contracts.hooks import hookspec
from tavern_importers.api.importers import ImporterInfo


@hookspec(
    permission="hook:server:importers:register",
    level="add",
    policy="collect",
    caller="importManager",
    description="Say which files of other programs it recognises, and import those that a person hands over.",
    example="return [ImporterInfo(name='acme', title='Acme board', handler='acme_plugin.boards:take', marks={})]",
)
def tavern_register_importers(context: PluginContext) -> list[ImporterInfo]:
    """Return kinds of files."""
