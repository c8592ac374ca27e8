"""Alarms: unusual patterns in the audit log are published as the event `ALARM`, and sent to a webhook."""

from __future__ import annotations

from tavern_host import PluginContext, hookimpl


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Follow the audit log while the project is served."""
    if context.serving:
        from tavern_alarms.following import follow

        context.tasks.spawn(follow(context), name="look for alarms in the audit log")
