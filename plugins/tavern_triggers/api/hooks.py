"""The hook by which plugins add kinds of triggers."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.contracts.hooks import hookspec
from tavern_triggers.api.kinds import TriggerKindInfo


@hookspec(
    permission="hook:server:triggers:register-kinds",
    level="intercept",
    policy="collect",
    caller="triggerManager",
    description="Add kinds of triggers: what they find starts workflows and agents, on behalf of who enabled them.",
    example="return [TriggerKindInfo(name='acme:mail', handler='acme_plugin.mail:poll')]",
)
def tavern_register_trigger_kinds(context: PluginContext) -> list[TriggerKindInfo]:
    """Return kinds of triggers."""
