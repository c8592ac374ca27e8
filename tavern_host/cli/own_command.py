"""What a command of the host's own is: it is given what makes a host, since some are there before any project is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from tavern_host.contracts.commands import CommandOutput
from tavern_host.host import Host

MakeHost = Callable[..., Host]
"""Makes the host that the command's options ask for; `serving=True`, for one that goes on until it is stopped,
`third_party=False`, for one that loads first-party plugins alone."""
Command = Callable[[MakeHost, dict[str, Any]], AsyncIterator[CommandOutput]]
