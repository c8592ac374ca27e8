"""Completion of commands, options and names in bash, zsh and fish, through click's protocol with the shell.

The argument of a command of a group, such as the tool of `tavern tools show`, is completed from the first column of the
group's `list`; the run of `tavern agent trace`, from that of its `runs`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from tavern_host.cli.arguments import global_options, group
from tavern_host.cli.descriptors import host_commands
from tavern_host.cli.host_commands import run_host_command
from tavern_host.cli.terminal import STREAMS, host_maker
from tavern_host.contracts.commands import CommandInfo, CommandParameter
from tavern_host.contracts.errors import TavernError

VARIABLE = "_TAVERN_COMPLETE"
"""The environment variable in which a shell asks for completions, and in which of its forms."""


def complete() -> int:
    """Print what may follow the words before the cursor, which the shell put into the environment."""
    kind = get_completion_class(os.environ[VARIABLE].partition("_")[0])
    if kind is None:
        return 1
    logging.getLogger("tavern").setLevel(logging.CRITICAL)
    with STREAMS.kept(), contextlib.suppress(TavernError, click.ClickException), asyncio.Runner() as runner:
        click.echo(_completed(kind, runner), file=STREAMS.out)
    return 0


def _completed(kind: type[ShellComplete], runner: asyncio.Runner) -> str:
    words, _ = kind(click.Group("tavern"), {}, "tavern", VARIABLE).get_completion_args()
    own = host_commands()
    make_host = host_maker(global_options(words)[0], [])
    host = make_host()

    def completing(
        info: CommandInfo, parameter: CommandParameter, context: object, known: object, incomplete: str
    ) -> list[CompletionItem]:
        group_name = info.name.split()[0]
        files = [CompletionItem(incomplete, type="file")] if parameter.type == "path" else []
        if files and parameter.name != group_name:
            return files
        listing = infos.get(f"{group_name} {parameter.name}s") or infos.get(f"{group_name} list")
        if parameter.name.startswith("--") or info.parameters[0] != parameter or listing in (info, None):
            return files
        return [*files, *(CompletionItem(n) for n in runner.run(names(listing)) if n.startswith(incomplete))]

    async def names(listing: CommandInfo) -> list[str]:
        """Return the first column of what a command lists."""
        arguments = listing.arguments({})
        if listing.name in own:
            outputs = run_host_command(listing, make_host, {**arguments, "strict": False})
        else:
            await host.start()
            outputs = host.registrations.commands[listing.name].call(arguments)
        async with contextlib.aclosing(outputs) as stream:  # type: ignore[type-var]
            return [
                row[0] for output in [o async for o in stream] if output.kind == "table" for row in output.rows if row
            ]

    try:
        runner.run(host.load())
        registered = {name: command.info for name, command in host.registrations.commands.items()}
        infos = own | registered
        return kind(group(list(infos.values()), completing), {}, "tavern", VARIABLE).complete()
    finally:
        runner.run(host.stop())
