"""The limits of a run's proxy, and what is recorded of each of its connections."""

from __future__ import annotations

from dataclasses import dataclass

from tavern_scripts.api.allowlist import Scheme


@dataclass(frozen=True)
class ProxyLimits:
    """The limits of one run: times in seconds, sizes in bytes. `in_all` counts every connection of the run, `at_once`
    those that are open; as many again wait for their turn, more are turned away."""

    at_once: int = 48
    in_all: int = 4096
    head_seconds: float = 10.0
    connect_seconds: float = 15.0
    idle_seconds: float = 60.0
    connection_seconds: float = 600.0
    connection_bytes: int = 256 << 20
    run_bytes: int = 1 << 30


LASTING = ProxyLimits(in_all=1 << 62, run_bytes=1 << 62)
"""The limits of a program that runs as long as a host: those of each connection alone."""


@dataclass(frozen=True)
class Connection:
    """What became of one connection, for the audit log. `host` is empty where none could be read; `reason` says why it
    was refused or cut short; `address` is the one connected to; `seconds` is how long it took."""

    host: str
    port: int | None
    scheme: Scheme
    allowed: bool
    reason: str = ""
    address: str = ""
    sent: int = 0
    received: int = 0
    seconds: float = 0.0


class ConnectionBudget:
    """How many connections all proxies of a host may have open, so that scripts cannot use up its descriptors."""

    def __init__(self, limit: int = 256) -> None:
        """Take the limit."""
        self._left = limit

    def take(self) -> bool:
        """Take one; return whether there was one left."""
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def give(self) -> None:
        """Give one back."""
        self._left += 1
