"""Runs plugins in processes of their own, behind the same contracts as in the host's process."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.contracts.reviews import ReviewedPlugin, ReviewNote
from tavern_host.sdk.decorator import hookimpl


@hookimpl
async def tavern_review_plugin(plugin: ReviewedPlugin, context: PluginContext) -> list[ReviewNote]:
    """Say which packages a plugin that is to run in a process of its own requires, and whether there is a sandbox."""
    from tavern_isolation.review import review_notes

    return await review_notes(plugin, context)
