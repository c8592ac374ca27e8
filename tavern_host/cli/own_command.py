"""The host's own commands: how one is declared, and the factory of hosts that each is given, since some run without a
project."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from tavern_host.contracts.commands import CommandInfo, CommandOutput, CommandParameter
from tavern_host.host import Host

MakeHost = Callable[..., Host]
"""Makes the host that the command's options ask for, or with a folder the host of that project; `serving=True`, for one
that runs until it is stopped, `third_party=False`, for one that loads first-party plugins alone."""
Command = Callable[[MakeHost, dict[str, Any]], AsyncIterator[CommandOutput]]


def own_command(name: str, help: str, run: Command, *parameters: CommandParameter) -> tuple[CommandInfo, Command]:
    """Return one of the host's own commands; no plugin handles it, so it names no handler."""
    return CommandInfo(name=name, help=help, handler="", parameters=[*parameters]), run


def linked(make_host: MakeHost) -> Host:
    """Return a host that knows its plugins and has imported none."""
    host = make_host()
    host.link()
    return host
