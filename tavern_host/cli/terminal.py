"""Runs the command that is asked for, and shows its output.

Exit codes: 0 done, 2 the user's mistake, 1 a failure, 130 interrupted. Errors go to stderr; with `--json`, where no
result was printed before, to stdout too, in the form that the server gives them.
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
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from tavern_host import __version__
from tavern_host.cli.arguments import global_options, parse
from tavern_host.cli.descriptors import HOST_COMMANDS, host_commands, known_commands
from tavern_host.cli.garbage import collect_again
from tavern_host.cli.help import first_steps
from tavern_host.cli.log import set_up_log
from tavern_host.cli.process_end import ExitDeadline, run_main
from tavern_host.contracts.commands import CommandInfo, CommandOutput
from tavern_host.contracts.errors import TavernError, describe
from tavern_host.contracts.languages import CATALOGUE, of_terminal, say, say_lines
from tavern_host.contracts.plugins import PluginInfo, PluginState
from tavern_host.projects import Folders, check_path
from tavern_host.runtime.installed import catalogue, first_party_part

if TYPE_CHECKING:
    from tavern_host.host import Host

_log = logging.getLogger("tavern.cli")

LONGEST_ID = 120
"""How many columns of the terminal a word in a table may take before it is folded."""
_COLOURS = {"good": "green", "bad": "red", "active": "yellow"}
_USER_MISTAKES = frozenset({"invalid_input", "invalid_file", "not_found", "conflict", "misconfigured"})
_STEERING = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\t\n"
}
"""Control characters of terminals and of text direction, with the escapes that are shown instead."""


class _Streams:
    """The streams of a command's output, whatever plugins print, or do with `sys.stdout`."""

    def __init__(self) -> None:
        self._kept: tuple[TextIO, TextIO] | None = None
        self.has_json = False
        """Whether a JSON document is on stdout."""

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


STREAMS = _Streams()
"""Where the command of this process writes."""


def run(arguments: list[str], *, owns_process: bool = False) -> int:
    """Run `tavern` with these arguments and return the exit code. With `owns_process`, the process is ended where a
    plugin keeps it from ending."""
    hosts: list[Host] = []
    deadline = (
        ExitDeadline(partial(_locate, hosts), lambda text: _say(f"Error: {text}", err=True)) if owns_process else None
    )
    code = _run_in_loop(arguments, hosts, deadline)
    if deadline is not None:
        collect_again()  # where nothing did: the process ends without looking through what a start made
        deadline.begin(code=code)
    return code


def _locate(hosts: list[Host], file: str) -> str | None:
    return next(filter(None, (host.locate(file) for host in hosts)), None)


def _third_party(hosts: list[Host]) -> list[str]:
    return [plugin.name for host in hosts for plugin in host.plugins() if not plugin.first_party]


def _run_in_loop(arguments: list[str], hosts: list[Host], deadline: ExitDeadline | None) -> int:
    _show_any_text()
    CATALOGUE.set(catalogue(of_terminal(os.environ)))
    as_json = "--json" in arguments
    STREAMS.has_json = False
    try:
        options, rest = global_options(arguments)
        if options["version"]:
            click.echo(f"tavern-host {__version__}")
            return 0
        if not rest:
            click.echo(first_steps())
            return 0
        if options["debug"]:
            first_party_part("debugger:wait_for_debugger")()
        known = known_commands(options) if {"-h", "--help"} & {*rest} else None
        if known is not None and parse(known, rest, STREAMS.out) is None:
            return 0
        set_up_log(verbose=options["verbose"])
        with STREAMS.kept():
            main = _run(options, rest, hosts)
            return run_main(main, partial(_locate, hosts), partial(_third_party, hosts), deadline)
    except click.ClickException as error:
        with io.StringIO() as shown:
            error.show(shown)
            click.echo(say_lines(shown.getvalue()).rstrip("\n"), err=True)
        return _as_json(as_json, error.exit_code, "invalid_input", error.format_message())
    except click.exceptions.Exit as error:
        return error.exit_code
    except TavernError as error:
        return _fail(error, as_json)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return _as_json(as_json, 130, "interrupted", "interrupted")
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; there is nobody left to tell
        return 0
    except Exception as error:
        _log.error("tavern %s failed", " ".join(arguments), exc_info=error)
        first_line = textwrap.shorten(describe(error).splitlines()[0], 300, placeholder=" …")
        message = f"{first_line} (`tavern --verbose …` shows where)"
        click.echo(say(f"Error: {message}"), err=True)
        return _as_json(as_json, 1, "error", message)


def host_maker(options: Mapping[str, Any], hosts: list[Host]) -> Callable[..., Host]:
    """Return the function that makes the hosts that the options of `tavern` ask for, and adds each to `hosts`."""

    from tavern_host.host import Host

    def make_host(project: Path | None = None, *, serving: bool = False, third_party: bool = True) -> Host:
        dev = [Path(path) for path in options["dev"]]
        for path in dev:
            check_path(path)
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

    return make_host


async def _run(options: dict[str, Any], rest: list[str], hosts: list[Host]) -> int:
    from tavern_host.cli.host_commands import run_host_command

    make_host = host_maker(options, hosts)
    words = [word for word in rest if word != "--"][:2]
    names = {rest[0], " ".join(words)}
    own = HOST_COMMANDS if names & HOST_COMMANDS.keys() else host_commands()
    infos = [*own.values()]
    if names & own.keys():
        invocation = parse(infos, rest, STREAMS.out)
        if invocation is None:
            return 0
        asks = not (options["dev"] or options["no_plugin"] or options["no_plugins"] or invocation.here)
        arguments = {**invocation.arguments, "strict": options["strict"], "asks_server": asks}
        try:
            return await _show(run_host_command(invocation.command, make_host, arguments), invocation.as_json)
        finally:
            for host in hosts:  # one that was never started may have recorded a decision
                await host.audit.close()
    is_usual = not (options["dev"] or options["no_plugin"] or options["no_plugins"])
    if rest[0] in {name.split()[0] for name in own}:
        with _host_of_first_party_plugins(make_host) as host:
            return await _run_plugin_command(host, rest, infos, third_party=False, at_server=is_usual)
    return await _run_plugin_command(make_host(), rest, infos, at_server=is_usual)


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
            from tavern_host.host import Host

            root = Path(folder)
            host = Host(root / "project", third_party=False, folders=Folders(root / "config", root / "state", root))
        yield host


async def _run_plugin_command(
    host: Host, rest: list[str], own: list[CommandInfo], *, third_party: bool = True, at_server: bool = False
) -> int:
    """Load all plugins, find the command among theirs and the host's `own`, then start the host and run it; with
    `at_server` let the server of the project do so that are for it. Without `third_party`, say nothing of plugins that
    are not first-party."""
    from tavern_host.server.holder import server_of

    try:
        await host.load()
        registered = host.registrations.commands
        infos = own + [item.info for item in registered.values()]
        plugins = [plugin for plugin in host.plugins() if third_party or plugin.first_party]
        try:
            invocation = parse(infos, rest, STREAMS.out, plugins)
        finally:
            _warn_of_failures(plugins)
        if invocation is None:
            return 0
        is_for_server = at_server and invocation.command.at_server and not invocation.here
        if is_for_server and (server := server_of(host.folders, host.project)):
            hand_over = first_party_part("handing_over:handed_over")
            outputs = hand_over(server, host.project.id, invocation.command.name, invocation.arguments)
            return await _show(outputs, invocation.as_json)
        if not invocation.command.standalone:
            await host.start()
        command = registered[invocation.command.name]
        collect_again()
        return await _show(command.call(invocation.arguments), invocation.as_json)
    finally:
        await host.stop()


def _say(text: str, *, err: bool = False, tones: Sequence[str] = ()) -> None:
    colour = None if os.environ.get("NO_COLOR") else _COLOURS.get("".join(tones))
    shown = _visible(text)
    click.echo(click.style(shown, fg=colour) if colour else shown, file=STREAMS.err if err else STREAMS.out)


def _visible(text: str) -> str:
    """Return a text with characters shown that a plugin could use to hide what it asks for."""
    return text.replace("\r\n", "\n").translate(_STEERING)


async def _show(outputs: AsyncIterator[CommandOutput], as_json: bool) -> int:
    """Show what a command says, as it says it; return the exit code."""
    code, failure = 0, ""
    display: Any = None
    try:
        with contextlib.ExitStack() as at_end:
            async with contextlib.aclosing(outputs) as stream:  # type: ignore[type-var]
                async for output in stream:
                    if output.kind in ("message", "progress"):
                        output = output.model_copy(update={"text": say_lines(output.text)})
                    is_running = output.kind in ("live", "chunk", "progress")
                    if display is None and is_running and not as_json:
                        display = at_end.enter_context(contextlib.closing(_live_display()))
                    elif display is not None and not is_running:
                        display.close()
                    if output.kind == "failure":
                        _say(say(f"Error: {output.text}"), err=True)
                        code, failure = output.exit_code, failure or output.text
                    elif output.kind in ("result", "entry"):
                        if as_json:
                            _print_json(output.data, indent=None if output.kind == "entry" else 2)
                    elif is_running and not as_json:
                        display.show(output)
                    elif not as_json:
                        _show_table(output) if output.kind == "table" else _say(output.text, tones=output.tones)
    except TavernError as error:
        return _fail(error, as_json)
    return _as_json(as_json and code != 0, code, "invalid_input" if code == 2 else "failed", failure)


def _live_display() -> Any:
    is_quiet = not _log.isEnabledFor(logging.INFO)  # the log would be written across what stands on the terminal
    return first_party_part("live_display:LiveDisplay")(STREAMS.out, STREAMS.err, _visible, may_live=is_quiet)


def _print_json(data: Any, indent: int | None = 2) -> None:
    STREAMS.has_json = True
    click.echo(json.dumps(data, ensure_ascii=False, indent=indent, default=str), file=STREAMS.out)


def _show_table(output: CommandOutput) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not output.rows:
        _say(say(output.title or "none"))
        return
    table = Table(title=_visible(say(output.title or "")) or None, title_justify="left", box=box.SIMPLE_HEAD)
    console = Console(width=None if STREAMS.out.isatty() else 160, markup=False, highlight=False)
    rows = [[_visible(cell) for cell in row] for row in (map(say, output.columns), *output.rows)]
    widths = _column_widths(list(zip(*rows, strict=True)), console.width)
    for column, width in zip(rows[0], widths, strict=True):
        table.add_column(column, overflow="fold", width=width)
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    console.width = max(console.width, sum(widths) + 3 * len(widths) + 1)
    with console.capture() as shown:  # rich would end the program where the reader has gone
        console.print(table)
    click.echo(shown.get(), nl=False, file=STREAMS.out)


def _column_widths(columns: Sequence[Sequence[str]], available: int) -> list[int]:
    """Return how wide each column is, given its cells: narrower where the table would be too wide, but never so narrow
    that an id is folded."""
    from rich.cells import cell_len

    widths = [max([1, *(cell_len(line) for text in column for line in text.splitlines())]) for column in columns]
    words = [[cell_len(word) for text in column for word in text.split()] for column in columns]
    least = [max([1, *(size for size in sizes if size <= LONGEST_ID)]) for sizes in words]
    excess = sum(widths) + 3 * len(widths) + 1 - available
    for place in sorted(range(len(widths)), key=lambda i: least[i] - widths[i]):
        cut = max(0, min(excess, widths[place] - least[place]))
        widths[place] -= cut
        excess -= cut
    return widths


def _fail(error: TavernError, as_json: bool) -> int:
    _say(say(f"Error: {error.message}"), err=True)
    code = 2 if error.info.code in _USER_MISTAKES else 1
    return _as_json(as_json, code, error.info.code, error.message, error.info.details)


def _as_json(as_json: bool, exit_code: int, code: str, message: str, details: Mapping[str, Any] | None = None) -> int:
    """Print an error as JSON, where that is wanted and stdout has no document yet; return the exit code."""
    if as_json and not STREAMS.has_json:
        error = {"success": False, "error": message, "code": code, "message": message}
        if details:
            error["details"] = details
        _print_json(error)
    return exit_code


def _warn_of_failures(plugins: list[PluginInfo]) -> None:
    """Mention in one line the plugins that are not in order."""
    broken = (PluginState.FAILED, PluginState.INVALID, PluginState.INCOMPATIBLE)
    bad = [p for p in plugins if p.state in broken or (p.state is PluginState.LOADED and p.problems)]
    if len(bad) == 1:
        (plugin,) = bad
        state = f" is {plugin.state.value}" if plugin.state in broken else ""
        more = f" (and {len(plugin.problems) - 1} more)" if len(plugin.problems) > 1 else ""
        reason = f": {plugin.problems[0]}{more}" if plugin.problems else ""
        _say(f"Warning: the plugin {plugin.name}{state}{reason}", err=True)
    elif bad:
        names = ", ".join(sorted(f"{p.name} ({p.state.value if p.state in broken else 'problems'})" for p in bad))
        _say(f"Warning: plugins are not in order: {names}; `tavern plugins list --check` says why", err=True)


def _show_any_text() -> None:
    """Write what the terminal's encoding lacks as an escape, which is valid in JSON too, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
