"""How a program in a sandbox gets to its proxy: what is put before it, and what is mounted and set for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tavern_scripts.api.scripts import PROXY_SOCKET, SandboxMount
from tavern_scripts.network.relay import PORT, environment

RELAY = "/tavern/relay.py"
"""Where the relay is seen inside."""

NODE_PROXY = "/tavern/nodeproxy.cjs"
"""Where what older versions of Node.js need is seen inside."""


@dataclass(frozen=True)
class ProxyAccess:
    """What a launch needs so that its program reaches a proxy: `prefix` goes before its own words."""

    proxy: str
    prefix: tuple[str, ...]
    mounts: tuple[SandboxMount, ...]
    environment: dict[str, str]


def proxy_access(proxy: Path, python: str) -> ProxyAccess:
    """Return the way to the proxy whose socket is `proxy`; `python` is an interpreter as it is seen inside, which the
    launch has to mount where it is not its first word."""
    here = Path(__file__).parent
    return ProxyAccess(
        proxy=str(proxy),
        prefix=(python, "-I", "-S", RELAY, PROXY_SOCKET, str(PORT)),
        mounts=(
            SandboxMount(target=RELAY, source=str(here / "relay.py")),
            SandboxMount(target=NODE_PROXY, source=str(here / "nodeproxy.cjs")),
        ),
        environment={**environment(PORT), "NODE_OPTIONS": f"--require={NODE_PROXY}"},
    )
