"""Parses the command line with click, runs the command, and shows its output.

Exit codes: 0 done, 2 the user's mistake, 1 a failure, 130 interrupted. Errors go to stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click

from tavern_host import __version__
from tavern_host.cli.garbage import collect_again
from tavern_host.cli.host_commands import HOST_COMMANDS
from tavern_host.cli.live_display import LiveDisplay
from tavern_host.cli.log import set_up_log
from tavern_host.cli.process_end import Stay, run_main
from tavern_host.contracts.commands import CommandInfo, CommandOutput, CommandParameter
from tavern_host.contracts.errors import TavernError, describe
from tavern_host.contracts.plugins import PluginInfo, PluginState
from tavern_host.host import Host
from tavern_host.projects import Folders

_log = logging.getLogger("tavern.cli")

_USER_MISTAKES = frozenset({"invalid_input", "invalid_file", "not_found", "conflict", "misconfigured"})
_TYPES: dict[str, Any] = {"text": str, "integer": int, "number": float, "path": str}
_STEERING = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\t\n"
}
"""Control characters of terminals and of text direction, with the escapes that are shown instead."""
_GLOBAL = [
    click.Option(["--project"], metavar="DIR", help="The project to work on."),
    click.Option(["--dev"], metavar="DIR", multiple=True, help="Load a plugin folder that is being written."),
    click.Option(["--no-plugins"], is_flag=True, help="Load first-party plugins only."),
    click.Option(["--no-plugin"], metavar="NAME", multiple=True, help="Leave a plugin out."),
    click.Option(["--strict"], is_flag=True, help="Fail where a plugin is not in order."),
    click.Option(["--verbose", "-v"], is_flag=True, help="Show the log, with tracebacks."),
    click.Option(["--version", "-V"], is_flag=True, help="Show the version."),
]


class _Streams:
    """The streams of a command's output, whatever plugins print, or do with `sys.stdout`."""

    def __init__(self) -> None:
        self._kept: tuple[TextIO, TextIO] | None = None

    @property
    def out(self) -> TextIO:
        """For what was asked for."""
        return self._kept[0] if self._kept else sys.stdout

    @property
    def err(self) -> TextIO:
        """For what else there is to say."""
        return self._kept[1] if self._kept else sys.stderr

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Let all that others print go to standard error while the block runs."""
        self._kept = sys.stdout, sys.stderr
        try:
            theirs: TextIO = open(os.dup(sys.stderr.fileno()), "w", buffering=1, errors="backslashreplace")  # noqa: PTH123, SIM115  # a descriptor, for as long as plugins hold it
        except (OSError, ValueError):  # no file, as where a test looks on
            theirs = sys.stderr
        sys.stdout = sys.stderr = theirs
        try:
            yield
        finally:
            (sys.stdout, sys.stderr), self._kept = self._kept, None
            if theirs is not sys.stderr:
                with contextlib.suppress(OSError, ValueError):  # whatever plugins did to it
                    theirs.close()


_streams = _Streams()


@dataclass(frozen=True)
class Invocation:
    """A command that was asked for, with its arguments."""

    command: CommandInfo
    arguments: dict[str, Any]
    as_json: bool


def run(arguments: list[str], *, owns_process: bool = False) -> int:
    """Run `tavern` with these arguments and return the exit code. With `owns_process`, the process is ended where a
    plugin keeps it from ending."""
    hosts: list[Host] = []
    stay = Stay(partial(_locate, hosts), lambda text: _say(f"Error: {text}", err=True)) if owns_process else None
    code = _run_in_loop(arguments, hosts, stay)
    if stay is not None:
        stay.begin(code=code)
    return code


def _locate(hosts: list[Host], file: str) -> str | None:
    return next(filter(None, (host.locate(file) for host in hosts)), None)


def _third_party(hosts: list[Host]) -> list[str]:
    return [plugin.name for host in hosts for plugin in host.plugins() if not plugin.first_party]


def _run_in_loop(arguments: list[str], hosts: list[Host], stay: Stay | None) -> int:
    _show_any_text()
    try:
        options, rest = _global_options(arguments)
        if options["version"]:
            click.echo(f"tavern-host {__version__}")
            return 0
        set_up_log(verbose=options["verbose"])
        with _streams.kept():
            main = _run(options, rest, hosts)
            return run_main(main, partial(_locate, hosts), partial(_third_party, hosts), stay)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except TavernError as error:
        return _fail(error)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; there is nobody left to tell
        return 0
    except Exception as error:
        _log.error("tavern %s failed", " ".join(arguments), exc_info=error)
        click.echo(f"Error: {_first_line(describe(error))} (`tavern --verbose …` shows where)", err=True)
        return 1


async def _run(options: dict[str, Any], rest: list[str], hosts: list[Host]) -> int:
    def make_host(project: Path | None = None, *, serving: bool = False, third_party: bool = True) -> Host:
        dev = [Path(path) for path in options["dev"]]
        host = Host(
            project or options["project"],
            create=False,
            dev=dev,
            without=options["no_plugin"],
            third_party=third_party and not options["no_plugins"],
            strict=options["strict"],
            serving=serving,
        )
        hosts.append(host)
        return host

    words = [word for word in rest if word != "--"][:2]
    if rest[0] in HOST_COMMANDS or " ".join(words) in HOST_COMMANDS:
        invocation = _parse([info for info, _ in HOST_COMMANDS.values()], rest)
        if invocation is None:
            return 0
        command = HOST_COMMANDS[invocation.command.name][1]
        arguments = {**invocation.arguments, "strict": options["strict"]}
        return await _show(command(make_host, arguments), invocation.as_json)
    if rest[0] in {name.split()[0] for name in HOST_COMMANDS}:
        with _host_of_first_party_plugins(make_host) as host:
            return await _run_plugin_command(host, rest, third_party=False)
    return await _run_plugin_command(make_host(), rest)


@contextlib.contextmanager
def _host_of_first_party_plugins(make_host: Callable[..., Host]) -> Iterator[Host]:
    """Give a host that loads no third-party plugin, for the commands that first-party plugins add to the host's own.

    Where the project or the operator's file cannot be read, it has an empty project instead: `tavern plugins check`
    helps to mend one.
    """
    with tempfile.TemporaryDirectory(prefix="tavern-") as folder:
        try:
            host = make_host(third_party=False)
            host.link()
        except TavernError:
            root = Path(folder)
            host = Host(root / "project", third_party=False, folders=Folders(root / "config", root / "state", root))
        yield host


async def _run_plugin_command(host: Host, rest: list[str], *, third_party: bool = True) -> int:
    """Load all plugins, find the command among theirs, then start the host and run it. Without `third_party`, say
    nothing of plugins that are not first-party."""
    try:
        await host.load()
        registered = host.registrations.commands
        infos = [info for info, _ in HOST_COMMANDS.values()] + [item.info for item in registered.values()]
        try:
            invocation = _parse(infos, rest)
        finally:
            _warn_of_failures([plugin for plugin in host.plugins() if third_party or plugin.first_party])
        if invocation is None:
            return 0
        if not invocation.command.standalone:
            await host.start()
        command = registered[invocation.command.name]
        collect_again()
        return await _show(command.call(invocation.arguments), invocation.as_json)
    finally:
        await host.stop()


def _global_options(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Split off the options that stand before the command."""
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
    if context.params.pop("help") or not rest:
        rest = ["--help"]
    return context.params, rest


def _parse(commands: list[CommandInfo], arguments: list[str]) -> Invocation | None:
    """Return which command the arguments ask for; None where they asked for help, which was shown."""
    root = click.Group(
        "tavern",
        params=list(_GLOBAL),
        help="A plugin host for AI workflows, tools and agents.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for info in sorted(commands, key=lambda c: c.name):
        *parents, name = info.name.split()
        group = root
        for parent in parents:
            child = group.commands.get(parent)
            if not isinstance(child, click.Group):
                child = click.Group(parent, help=f"Commands: {_siblings(commands, parent)}.")
                group.add_command(child)
            group = child
        group.add_command(_click_command(name, info))
    try:
        with contextlib.redirect_stdout(_streams.out):
            outcome = root.main(arguments, prog_name="tavern", standalone_mode=False)
    except click.NoSuchOption as error:
        name = error.option_name
        if any(name in option.opts for option in _GLOBAL):
            message = f"{name} stands before the command: tavern {name} … {arguments[0]} …"
            raise click.UsageError(message, error.ctx) from None
        raise
    return outcome if isinstance(outcome, Invocation) else None


def _siblings(commands: list[CommandInfo], parent: str) -> str:
    return ", ".join(sorted(c.name.split()[1] for c in commands if c.name.startswith(f"{parent} ")))


def _click_command(name: str, info: CommandInfo) -> click.Command:
    def callback(**values: Any) -> Invocation:
        as_json = values.pop("json")
        arguments = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
        for parameter in info.parameters:
            key = _key(parameter)
            value = arguments.get(key)
            if parameter.type == "path" and isinstance(value, str):
                arguments[key] = _existing_path(value)
        return Invocation(info, arguments, as_json)

    parameters: list[click.Parameter] = [_click_parameter(parameter) for parameter in info.parameters]
    parameters.append(click.Option(["--json"], is_flag=True, help="Print the result as JSON."))
    extra = "\n".join(f"{_key(p).upper()}: {p.help}" for p in info.parameters if not p.name.startswith("--") and p.help)
    return click.Command(
        name, callback=callback, params=parameters, help=f"{info.help}\n\n\b\n{extra}", short_help=info.help
    )


def _click_parameter(parameter: CommandParameter) -> click.Parameter:
    # A default of None would count as a value, so that nothing required would ever be missing.
    default: dict[str, Any] = {} if parameter.default is None else {"default": parameter.default}
    if not parameter.name.startswith("--"):
        return click.Argument(
            [_key(parameter)],
            required=parameter.required,
            nargs=-1 if parameter.multiple else 1,
            type=_TYPES[parameter.type],
            **default,
        )
    if parameter.type == "flag":
        return click.Option([parameter.name, _key(parameter)], is_flag=True, help=parameter.help)
    return click.Option(
        [parameter.name, _key(parameter)],
        required=parameter.required,
        multiple=parameter.multiple,
        type=_TYPES[parameter.type],
        show_default=bool(default),
        help=parameter.help,
        **default,
    )


def _key(parameter: CommandParameter) -> str:
    return parameter.name.lstrip("-").replace("-", "_")


def _existing_path(text: str) -> str:
    path = Path(text)
    return str(path.absolute()) if text != "-" and path.exists() else text


def _say(text: str, *, err: bool = False) -> None:
    click.echo(_visible(text), file=_streams.err if err else _streams.out)


def _visible(text: str) -> str:
    """Return a text with characters shown that a plugin could use to hide what it asks for."""
    return text.replace("\r\n", "\n").translate(_STEERING)


async def _show(outputs: AsyncIterator[CommandOutput], as_json: bool) -> int:
    """Show what a command says, as it says it; return the exit code."""
    code = 0
    is_quiet = not _log.isEnabledFor(logging.INFO)  # the log would be written across what stands on the terminal
    display = LiveDisplay(_streams.out, _streams.err, _visible, may_live=is_quiet)
    try:
        with contextlib.closing(display):
            async with contextlib.aclosing(outputs) as stream:  # type: ignore[type-var]
                async for output in stream:
                    if output.kind == "failure":
                        display.close()
                        _say(f"Error: {output.text}", err=True)
                        code = output.exit_code
                    elif as_json:
                        _show_json(output)
                    elif output.kind == "live":
                        display.show(output)
                    elif output.kind == "chunk":
                        display.write(output.text)
                    elif output.kind == "progress":
                        display.say(output.text)
                    else:
                        display.close()
                        _SHOW[output.kind](output)
    except TavernError as error:
        return _fail(error)
    return code


def _show_json(output: CommandOutput) -> None:
    if output.kind == "result":
        click.echo(json.dumps(output.data, ensure_ascii=False, indent=2), file=_streams.out)


def _show_table(output: CommandOutput) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    if not output.rows:
        _say(output.title or "none")
        return
    table = Table(title=_visible(output.title or "") or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column in output.columns:
        table.add_column(column, overflow="fold")
    for row in output.rows:
        table.add_row(*(_plain(cell) for cell in row))
    console = Console(width=None if _streams.out.isatty() else 160, markup=False, highlight=False)
    with console.capture() as shown:  # rich would end the program where the reader has gone
        console.print(table)
    click.echo(shown.get(), nl=False, file=_streams.out)


def _plain(cell: str) -> Any:
    from rich.text import Text

    return Text(_visible(cell))


_SHOW: dict[str, Callable[[CommandOutput], None]] = {
    "text": lambda output: _say(output.text),
    "table": _show_table,
    "result": lambda output: None,
}


def _first_line(text: str) -> str:
    return textwrap.shorten(text.splitlines()[0], 300, placeholder=" …")


def _fail(error: TavernError) -> int:
    _say(f"Error: {error.message}", err=True)
    return 2 if error.info.code in _USER_MISTAKES else 1


def _warn_of_failures(plugins: list[PluginInfo]) -> None:
    for plugin in plugins:
        if plugin.state in (PluginState.FAILED, PluginState.INVALID, PluginState.INCOMPATIBLE):
            reason = f": {plugin.problems[0]}" if plugin.problems else ""
            _say(f"Warning: the plugin {plugin.name} is {plugin.state.value}{reason}", err=True)
        elif plugin.state is PluginState.LOADED:
            for problem in plugin.problems:
                _say(f"Warning: the plugin {plugin.name}: {problem}", err=True)


def _show_any_text() -> None:
    """Write what the terminal's encoding lacks as an escape, which is valid in JSON too, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
