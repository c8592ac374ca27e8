"""Compares what is installed with the advisories in a host that serves, at its start and regularly."""

from __future__ import annotations

import asyncio

from tavern_host import PluginContext
from tavern_host.contracts.errors import TavernError
from tavern_operations.advisories.comparing import compared
from tavern_operations.api.advisories import ADVISORY, Advisory

FIRST = 10.0
"""Seconds before the first comparison."""
EVERY = 2.0
"""Seconds between two looks at the settings."""


async def compare_regularly(context: PluginContext) -> None:
    """Compare until the plugin is unloaded: soon, after the hours of the settings, and for another database."""
    await asyncio.sleep(FIRST)
    clock = asyncio.get_running_loop().time
    done, compared_at, known = "", 0.0, frozenset[tuple[str, ...]]()
    while True:
        named = str(context.settings.get("advisoryDatabase", "") or "").strip()
        hours = float(context.settings.get("advisoryHours", 24))
        if named and (named != done or clock() - compared_at >= hours * 3600):
            done, compared_at = named, clock()
            try:
                known = _published(context, (await compared(context)).found, known)
            except TavernError as error:
                context.log.error("what is installed was not compared with advisories: %s", error.message)
        await asyncio.sleep(EVERY)


def _published(
    context: PluginContext, found: list[Advisory], known: frozenset[tuple[str, ...]]
) -> frozenset[tuple[str, ...]]:
    """Publish the advisories that were not there the last time, and return those that are there now."""
    now = {(one.id, one.package, one.version, one.place): one for one in found}
    for key, one in now.items():
        if key not in known:
            fixed = f"fixed in {', '.join(one.fixed)}" if one.fixed else "not fixed yet"
            context.log.warning(
                "%s: %s %s in the %s has a known weakness, %s", one.id, one.package, one.version, one.place, fixed
            )
            context.events.publish(ADVISORY, one.to_json())
    return frozenset(now)
