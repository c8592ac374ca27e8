"""Takes messages of Telegram chats to an agent: `bridge.py` does it, `telegram.py` speaks to the Bot API."""

from __future__ import annotations

from tavern_host import PluginContext, hookimpl

from .bridge import Bridge


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Begin to listen, where the host serves; a command answers nobody."""
    if context.serving:
        context.tasks.spawn(Bridge(context).run(), name="listen to Telegram")
