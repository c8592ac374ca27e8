"""`tavern completion SHELL`: prints the script with which a shell asks `tavern` what may follow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click
from click.shell_completion import get_completion_class

from tavern_host import CommandOutput, InvalidInput

_VARIABLE = "_TAVERN_COMPLETE"
"""The environment variable in which the shell says what it wants; it is asked for by that name."""


async def script(make_host: object, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    kind = get_completion_class(arguments["shell"])
    if kind is None:
        raise InvalidInput(f"{arguments['shell']!r}: expected bash, zsh or fish")
    shell = kind(click.Group("tavern"), {}, "tavern", _VARIABLE)
    script = shell.source_template % shell.source_vars()
    if arguments["shell"] == "bash":
        script += "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n"  # names such as text:shout are one word
    yield CommandOutput(kind="text", text=script)
    yield CommandOutput(kind="result", data={"script": script})
