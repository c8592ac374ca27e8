"""Completion of commands, options and names in bash, zsh and fish, through click's protocol with the shell.

What a command of a group is given, such as the tool of `tavern tools show`, is what the group's `list` shows first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from tavern_host.cli.arguments import global_options, group
from tavern_host.cli.host_commands import HOST_COMMANDS
from tavern_host.cli.terminal import STREAMS, host_maker
from tavern_host.contracts.commands import CommandInfo, CommandOutput, CommandParameter
from tavern_host.contracts.errors import TavernError

VARIABLE = "_TAVERN_COMPLETE"
"""The variable in which a shell says that it wants completions, and in which of its forms."""


def complete() -> int:
    """Print what the words before the cursor, which the shell put into the environment, may go on with."""
    kind = get_completion_class(os.environ[VARIABLE].partition("_")[0])
    if kind is None:
        return 1
    logging.getLogger("tavern").setLevel(logging.CRITICAL)
    with STREAMS.kept(), contextlib.suppress(TavernError, click.ClickException):
        text = asyncio.run(_completed(kind))
        click.echo(text, file=STREAMS.out)
    return 0


async def _completed(kind: type[ShellComplete]) -> str:
    words, _ = kind(click.Group("tavern"), {}, "tavern", VARIABLE).get_completion_args()
    options, _ = global_options(words)
    make_host = host_maker(options, [])
    host = make_host()
    try:
        await host.load()
        registered = host.registrations.commands
        infos = {info.name: info for info, _ in HOST_COMMANDS.values()} | {n: r.info for n, r in registered.items()}
        lists: dict[str, list[str]] = {}
        wanted: list[str] = []

        def completing(info: CommandInfo, parameter: CommandParameter, incomplete: str) -> list[Any]:
            kind = info.name.split()[0]
            listing, files = f"{kind} list", [CompletionItem(incomplete, type="file")]
            if parameter.type == "path" and parameter.name != kind:
                return files
            if parameter.name.startswith("--") or info.name == listing or info.parameters[0] != parameter:
                return []
            wanted.append(listing)
            names = [CompletionItem(name) for name in lists.get(listing, ()) if name.startswith(incomplete)]
            return [*(files if parameter.type == "path" else []), *names]

        shell = kind(group(list(infos.values()), completing), {}, "tavern", VARIABLE)
        text = shell.complete()
        for listing in [name for name in wanted if name in infos]:
            arguments = {p.name.lstrip("-"): p.default for p in infos[listing].parameters} | {"strict": False}
            if listing in HOST_COMMANDS:
                outputs = HOST_COMMANDS[listing][1](make_host, {**arguments, "check": False})
            else:
                await host.start()
                outputs = registered[listing].call(arguments)
            lists[listing] = await _first_column(outputs)
            text = shell.complete()
        return text
    finally:
        await host.stop()


async def _first_column(outputs: AsyncIterator[CommandOutput]) -> list[str]:
    async with contextlib.aclosing(outputs) as stream:  # type: ignore[type-var]
        return [row[0] for output in [o async for o in stream] if output.kind == "table" for row in output.rows if row]
