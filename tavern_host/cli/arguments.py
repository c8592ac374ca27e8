"""Reads the command line with click: the options of `tavern`, which command is meant, and its arguments."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import click

from tavern_host.cli.help import Command, Group
from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandParameter
from tavern_host.contracts.languages import say
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.plugins import PluginInfo, withheld

_TYPES: dict[str, Any] = {"text": str, "integer": int, "number": float, "path": str}
Completing = Callable[[CommandInfo, CommandParameter, click.Context, click.Parameter, str], list[Any]]
"""Returns what a parameter of a command may be that begins with a text, for completion in a shell; click adds what it
knows of both."""
_GLOBAL = [
    click.Option(["--project"], metavar="DIR", help="The project to work on."),
    click.Option(["--dev"], metavar="DIR", multiple=True, help="Load a plugin folder that is being written."),
    click.Option(["--no-plugins"], is_flag=True, help="Load first-party plugins only."),
    click.Option(["--no-plugin"], metavar="NAME", multiple=True, help="Leave a plugin out."),
    click.Option(["--strict"], is_flag=True, help="Fail where a plugin is not in order."),
    click.Option(["--debug"], is_flag=True, help="Wait for a debugger (debugpy), then begin."),
    click.Option(["--verbose", "-v"], is_flag=True, help="Show the log, with tracebacks."),
    click.Option(["--version", "-V"], is_flag=True, help="Show the version."),
]


@dataclass(frozen=True)
class Invocation:
    """A command that was asked for, with its arguments."""

    command: CommandInfo
    arguments: dict[str, Any]
    as_json: bool
    here: bool = True
    """Whether it is carried out in this process, though a server runs for the project."""


def global_options(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Split off the options that stand before the command; `--project` may stand after it too."""
    parser = click.Command(
        "tavern",
        params=[
            *_GLOBAL,
            click.Option(["--help", "-h"], is_flag=True),
            click.Argument(["rest"], nargs=-1, type=str, metavar="COMMAND [ARGS]..."),
        ],
        add_help_option=False,
        context_settings={"allow_interspersed_args": False},
    )
    context = parser.make_context("tavern", list(arguments))
    rest = list(context.params.pop("rest"))
    context.params["project"] = _project_in(rest) or context.params["project"]
    if context.params.pop("help"):
        rest = ["--help"]
    return context.params, rest


def _project_in(rest: Sequence[str]) -> str | None:
    """Return the value of the last `--project` among the words of a command, or None."""
    words = rest[: rest.index("--")] if "--" in rest else rest
    projects = [after for word, after in pairwise(words) if word == "--project"]
    projects += [word.partition("=")[2] for word in words if word.startswith("--project=")]
    return projects[-1] if projects else None


def parse(
    commands: Sequence[CommandInfo], arguments: Sequence[str], out: TextIO, plugins: Sequence[PluginInfo] = ()
) -> Invocation | None:
    """Return which command the arguments ask for; None where they asked for help, which was shown on `out`.

    `plugins` are those of which some may be withheld, with their commands.
    """
    root = group(commands)
    try:
        with contextlib.redirect_stdout(out):
            outcome = root.main(list(arguments), prog_name="tavern", standalone_mode=False)
    except click.NoSuchOption as error:
        name = error.option_name
        if any(name in option.opts for option in _GLOBAL):
            message = f"{name} stands before the command: tavern {name} … {arguments[0]} …"
            raise click.UsageError(message, error.ctx) from None
        raise
    except click.UsageError as error:
        if (word := arguments[0]) not in root.commands and (who := _who_may_have(word, plugins)):
            message = f"No such command {word!r}{did_you_mean(word, root.commands)}{who}"
            raise click.UsageError(message, error.ctx) from None
        raise
    return outcome if isinstance(outcome, Invocation) else None


def _who_may_have(word: str, plugins: Sequence[PluginInfo]) -> str:
    """Return which withheld plugin an unknown command may be of, with what helps, or nothing."""
    from tavern_host.hookspecs import hooks

    asked = hooks()["tavern_register_commands"].permission
    texts = (withheld(p.name, [p]) for p in plugins if any(asked == permission.name for permission in p.permissions))
    hidden = next(filter(None, texts), "").replace("; the plugin", "; it may be a command of", 1)
    return withheld(word, plugins) or hidden


def group(commands: Sequence[CommandInfo], completing: Completing | None = None) -> click.Group:
    """Return all commands as click has them."""
    groups: dict[str, CommandGroup] = {}
    for info in commands:
        if info.group is not None:
            groups.setdefault(info.name.split()[0], info.group)
    root: click.Group = Group(
        "tavern",
        sections={name: group.section for name, group in groups.items()},
        params=list(_GLOBAL),
        help="A plugin host for AI workflows, tools and agents.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for info in sorted(commands, key=lambda c: c.name):
        *parents, name = info.name.split()
        parent_group = root
        for parent in parents:
            child = parent_group.commands.get(parent)
            if not isinstance(child, click.Group):
                about = groups.get(parent)
                child = Group(parent, help=about.help if about else f"Commands: {_siblings(commands, parent)}.")
                parent_group.add_command(child)
            parent_group = child
        parent_group.add_command(_click_command(name, info, completing))
    return root


def _siblings(commands: Sequence[CommandInfo], parent: str) -> str:
    return ", ".join(sorted(c.name.split()[1] for c in commands if c.name.startswith(f"{parent} ")))


def _click_command(name: str, info: CommandInfo, completing: Completing | None) -> click.Command:
    def callback(**values: Any) -> Invocation:
        as_json, here = values.pop("json"), values.pop("here", True)
        arguments = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
        for parameter in info.parameters:
            key = parameter.key
            value = arguments.get(key)
            if parameter.type != "path" or not isinstance(value, str) or value == "-":
                continue
            if os.path.exists(value):  # noqa: PTH110  # also of what can be no path
                arguments[key] = str(Path(value).absolute())
        is_input_used = any(p.type == "path" and arguments[p.key] == "-" for p in info.parameters)
        return Invocation(info, arguments, as_json, here or is_input_used)

    completers = [completing and partial(completing, info, parameter) for parameter in info.parameters]
    parameters: list[click.Parameter] = [*map(_click_parameter, info.parameters, completers)]
    parameters.append(click.Option(["--json"], is_flag=True, help="Print the result, or the error, as JSON."))
    if info.at_server:
        parameters.append(click.Option(["--here"], is_flag=True, help="Run it here, not at the project's server."))
    if all(parameter.name != "--project" for parameter in info.parameters):  # it was read before
        where = click.Option(["--project"], metavar="DIR", expose_value=False, help="The project to work on.")
        parameters.append(where)
    extra = "\n".join(
        f"{p.key.upper()}: {say(p.help)}" for p in info.parameters if not p.name.startswith("--") and p.help
    )
    text = f"{info.help}\n\n\b\n{extra}" if extra else info.help
    shown = "\n".join(["\b", say("Examples:"), *(f"  {line}" for line in info.examples)]) if info.examples else None
    return Command(name, callback=callback, params=parameters, help=text, short_help=info.help, epilog=shown)


def _click_parameter(parameter: CommandParameter, completer: Callable[..., list[Any]] | None) -> click.Parameter:
    # A default of None would count as a value, so that nothing required would ever be missing.
    default: dict[str, Any] = {} if parameter.default is None else {"default": parameter.default}
    names, text = [parameter.name, parameter.key], parameter.help
    if parameter.type == "flag":
        return click.Option(names, is_flag=True, help=text)
    kind = {"required": parameter.required, "type": _TYPES[parameter.type], "shell_complete": completer, **default}
    if not parameter.name.startswith("--"):
        return click.Argument(names[1:], nargs=-1 if parameter.multiple else 1, **kind)
    shown = parameter.default not in (None, "")
    return click.Option(names, multiple=parameter.multiple, show_default=shown, help=text, **kind)
