"""Which types of events a plugin may publish and subscribe to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from tavern_host.contracts.errors import PermissionDenied
from tavern_host.contracts.manifest import EventPermissions


def covers(granted: Iterable[str], wanted: str) -> bool:
    """Return whether one granted type or pattern matches each type that `wanted`, a type or pattern, matches."""
    if not isinstance(wanted, str):
        return False
    plain = str.__str__(wanted)
    start = plain.removesuffix("*")
    return any(g == plain or (g.endswith("*") and start.startswith(g[:-1])) for g in granted)


def check_permitted(
    plugin: str, permissions: EventPermissions, what: Literal["publish", "subscribe"], type: str
) -> None:
    """Raise `PermissionDenied` for a type or pattern that a plugin may not publish or subscribe to."""
    if is_own(plugin, type) or covers(getattr(permissions, what), type):
        return
    own = f"its own types begin with {plugin!r} and a dot"
    message = f"{plugin} may not {what} {type} events: add {type!r} to permissions.events.{what} ({own})"
    raise PermissionDenied(message, plugin=plugin, permission=f"events.{what}:{type}")


def is_own(plugin: str, wanted: str) -> bool:
    """Return whether a type, or each type that a pattern matches, is the plugin's own: its name and a dot first."""
    return isinstance(wanted, str) and str.startswith(wanted, f"{plugin}.")
