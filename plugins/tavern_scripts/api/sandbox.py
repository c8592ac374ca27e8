"""The sandbox of this machine, for first-party plugins that keep a program of their own in it for long.

No policy of scripts is asked: the caller decides what its program is granted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from tavern_host.context import PluginContext
from tavern_scripts.api.scripts import SandboxLaunch, ScriptBackend

_MACHINE = "tavern_scripts.sandbox.machine"


@dataclass(frozen=True)
class MachineSandbox:
    """A sandbox of which all that isolation rests on was tried out on this machine."""

    name: str
    backend: ScriptBackend


async def machine_sandbox() -> MachineSandbox:
    """Return the best sandbox of the host's own. Raises `ServiceUnavailable` with the reasons where none holds."""
    found: MachineSandbox = await resolve_name(f"{_MACHINE}:proven")()
    return found


def reaching(
    launch: SandboxLaunch, hosts: Sequence[str], context: PluginContext
) -> AbstractAsyncContextManager[SandboxLaunch]:
    """Yield a launch of a Python program that reaches these hosts, and no others, until the block ends; `context` knows
    the proxies, and records the connections. Without hosts it has no network.

    Raises `InvalidInput` for a pattern that is none.
    """
    block: Any = resolve_name(f"{_MACHINE}:reaching")(launch, hosts, context)
    return block  # type: ignore[no-any-return]


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process and all that come from it use, 0 where they have ended. Blocking."""
    used: int = resolve_name(f"{_MACHINE}:memory_of")(pid)
    return used
