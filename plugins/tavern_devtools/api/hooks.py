"""The hook by which a plugin checks what others contribute to it."""

from __future__ import annotations

from tavern_devtools.api.findings import CheckedPlugin, Finding
from tavern_host.context import PluginContext
from tavern_host.contracts.hooks import hookspec


@hookspec(
    permission="hook:server:plugins:check",
    level="intercept",
    policy="collect",
    caller="pluginChecks",
    description="Say what is wrong with what other plugins contribute.",
    example="return [Finding(rule='recipes', message='it has no title', file=plugin.folders['acme'])]",
)
def tavern_check_plugin(plugin: CheckedPlugin, context: PluginContext) -> list[Finding]:
    """Return the faults of a plugin's files, or of its registrations: who refuses something when it
    runs says here that it will."""
