"""What plugins contribute: in which order it is taken over, and what to do about what cannot be used."""

from __future__ import annotations

from typing import TypeVar

from tavern_host.context import Contribution, PluginContext
from tavern_host.contracts.plugins import PLUGINS

T = TypeVar("T")


async def in_load_order(context: PluginContext, contributions: list[Contribution[T]]) -> list[Contribution[T]]:
    """Return the contributions in the order in which plugins were loaded; hooks are called the other way round."""
    plugins = await context.services.get(PLUGINS).list_plugins()
    place = {info.name: index for index, info in enumerate(plugins)}
    return sorted(contributions, key=lambda contribution: place.get(contribution.plugin, len(place)))


def mend_hint(plugin: str) -> str:
    """Return what to do about something of a plugin that cannot be used."""
    return f"mend it there, or keep it out with `tavern plugins disable {plugin}`"
