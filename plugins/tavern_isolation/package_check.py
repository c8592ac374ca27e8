"""Refuses packages with known advisories before they are installed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import Misconfigured
from tavern_operations.api.advisories import Advisory, advisories_about
from tavern_scripts.api.environments import Check, PinnedPackage


def check_against(context: PluginContext, plugin: str, database: object, accepted: Collection[str] = ()) -> Check:
    """Return a check of what is about to be installed for a plugin: it raises `Misconfigured` where a database of
    advisories has one about it, but for those with an `accepted` id or alias. Where the operator named none, nothing is
    known, and all is let through."""

    async def check(packages: Sequence[PinnedPackage]) -> None:
        if not database:
            return
        versions = {each.name: each.version for each in packages}
        found = await advisories_about(context, str(database), versions, f"plugin {plugin}")
        refused = [one for one in found if not {one.id, *one.aliases} & {*accepted}]
        if refused:
            raise Misconfigured(
                f"nothing is installed, since there are advisories about {'; '.join(map(_said, refused))}",
                advisories=[one.to_json() for one in refused],
            )

    return check


def _said(one: Advisory) -> str:
    mend = f"require {one.package}>={one.fixed[-1]}" if one.fixed else "no version is known to mend it"
    return f"{one.package} {one.version} ({one.id}{f', {one.severity}' if one.severity else ''}: {mend})"
