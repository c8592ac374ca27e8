"""The type of the host's own commands: they are given a factory of hosts, since some run without a project."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from tavern_host.contracts.commands import CommandOutput
from tavern_host.host import Host

MakeHost = Callable[..., Host]
"""Makes the host that the command's options ask for; `serving=True`, for one that runs until it is stopped,
`third_party=False`, for one that loads first-party plugins alone."""
Command = Callable[[MakeHost, dict[str, Any]], AsyncIterator[CommandOutput]]
