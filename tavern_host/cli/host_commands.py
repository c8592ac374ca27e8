"""The host's own commands: `serve`, `init`, `plugins …`, `why`, `settings …`. All other commands belong to plugins.

Each takes a factory of hosts, since `init` runs without a project."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from tavern_host.cli.audit_commands import COMMANDS as AUDIT_COMMANDS
from tavern_host.cli.own_command import Command, MakeHost, linked, own_command
from tavern_host.cli.settings_commands import COMMANDS as SETTINGS_COMMANDS
from tavern_host.contracts.commands import CommandInfo, CommandOutput, CommandParameter
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.plugins import PluginInfo, PluginState
from tavern_host.contracts.reviews import ReviewNote, outputs_of
from tavern_host.host import Host
from tavern_host.plugins.record import NOT_RELOADED
from tavern_host.projects import PROJECT_FILE, make_project
from tavern_host.storage.running_hosts import Reloaded, RunningHost

_IN_ORDER = frozenset({PluginState.DISCOVERED, PluginState.LOADED, PluginState.STARTED, PluginState.DISABLED})
_RUNS = frozenset({PluginState.LOADED, PluginState.STARTED})
VARIABLE = "_TAVERN_COMPLETE"
"""The environment variable in which a shell asks for completions, and in which of its forms."""
_NAME = CommandParameter(name="name", help="The plugin's name.", required=True)


async def _serve(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    from tavern_host.server.logs import server_log

    host = make_host(serving=True)
    form, levels = arguments["log_format"], arguments["log_level"]
    with server_log(host.project.private, format=form, levels=levels, secrets=host.settings.secrets):
        async for output in _served(host, make_host, arguments):
            yield output


async def _served(host: Host, make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    from tavern_host.server.serve import serve

    async with host:
        for plugin in _out_of_order(host.plugins()):
            yield CommandOutput(kind="progress", text=f"{plugin.name} is {plugin.state.value}: {_reason(plugin)}")
        others = [Path(folder) for folder in arguments["also"]]
        make_other = partial(make_host, serving=True)
        drain = float(arguments["drain"])
        async for output in serve(host, port=arguments["port"], also=others, make_host=make_other, drain=drain):
            yield output


async def _init(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    root = _new_project(arguments["folder"])
    yield CommandOutput(kind="text", text=f"Made a project in {root}")
    yield CommandOutput(kind="result", data={"project": str(root)})


def _new_project(folder: str) -> Path:
    if not folder:
        raise InvalidInput("the folder's name is empty; for the current folder write `tavern init .`")
    root = Path(folder).absolute()
    if (root / PROJECT_FILE).exists():
        raise InvalidInput(f"{root} is a project already")
    try:
        make_project(root)
    except OSError as error:
        raise InvalidInput(f"no project can be made in {root}: {error.strerror}") from None
    return root


async def _list(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    plugins = await _checked(make_host()) if arguments["check"] else make_host().link()
    rows = [[p.name, p.version, p.state.value, p.source, _times(p), _reason(p)] for p in plugins]
    columns = ["name", "version", "state", "source", "ms", "what to know"]
    yield CommandOutput(kind="table", columns=columns, rows=rows)
    yield CommandOutput(kind="result", data=[p.to_json() for p in plugins])
    bad = [plugin.name for plugin in _out_of_order(plugins)]
    if arguments["strict"] and bad:
        yield CommandOutput(kind="failure", text=f"not in order: {', '.join(bad)}", exit_code=1)


async def _checked(host: Host) -> list[PluginInfo]:
    """Return what is known of the plugins once they were loaded; none is started."""
    try:
        await host.load()
        return host.plugins()
    finally:
        await host.stop()


async def _show(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    host = linked(make_host)
    plugin = host.plugin(arguments["name"])
    named = " ".join(filter(None, (plugin.name, plugin.version)))
    yield CommandOutput(kind="text", text=f"{plugin.display_name} ({named}) — {plugin.state.value}")
    for line in [plugin.description, f"from {plugin.source}", *(str(p) for p in plugin.problems)]:
        if line:
            yield CommandOutput(kind="text", text=f"  {line}")
    yield _review(plugin)
    notes = await _notes(host, make_host, plugin)
    for output in outputs_of(notes):
        yield output
    yield CommandOutput(kind="result", data={**plugin.to_json(), **{note.key: note.data for note in notes}})


async def _notes(host: Host, make_host: MakeHost, plugin: PluginInfo) -> list[ReviewNote]:
    """Return what first-party plugins add to the review of a plugin; no other plugin is loaded to find it out."""
    reviewed = host.reviewed(plugin)
    if reviewed is None:
        return []
    judge = make_host(third_party=False)
    try:
        await judge.load()
        return await judge.review(reviewed)
    finally:
        await judge.stop()


async def _grant(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    host = linked(make_host)
    before = host.plugin(arguments["name"])
    yield _review(before)
    for output in outputs_of(await _notes(host, make_host, before)):
        yield output
    plugin = await host.grant(before.name)
    async for output in _done(host, plugin, f"{plugin.name} is granted what it asks for", _RUNS):
        yield output


def _decision(
    decide: Callable[[Host, str], Awaitable[PluginInfo]], outcome: str, wanted: frozenset[PluginState]
) -> Command:
    """Return a command that makes a decision about a plugin; `outcome` has a place for its `name`, and a running host
    is to have it in one of the states `wanted`."""

    async def command(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
        host = linked(make_host)
        plugin = await decide(host, arguments["name"])
        async for output in _done(host, plugin, outcome.format(name=plugin.name), wanted):
            yield output

    return command


async def _reload(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    name = arguments.get("name")
    host = linked(make_host)
    host.ask_to_reload(name)
    running = await host.running_hosts()
    if not running:
        yield CommandOutput(kind="text", text="No host runs for this project: there is nothing to reload.")
    hosts: list[JsonValue] = []
    for one in running:
        done = one.reloads.get(name or "", Reloaded())
        if problem := one.problem or done.error:
            yield CommandOutput(kind="failure", text=f"the running host (process {one.process}): {problem}")
        elif not done.plugins:
            text = f"The running host (process {one.process}) found no plugin that is new, changed or gone."
            yield CommandOutput(kind="text", text=text)
        for concerned in () if one.problem else done.plugins:
            yield _became(one, concerned, _IN_ORDER)
        plugins: list[JsonValue] = [plugin.to_json() for plugin in one.plugins if plugin.name in done.plugins]
        hosts.append({"process": one.process, "problem": problem, "plugins": plugins})
    yield CommandOutput(kind="result", data={"asked": name, "hosts": hosts})


async def _completion(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    import click
    from click.shell_completion import get_completion_class

    kind = get_completion_class(arguments["shell"])
    if kind is None:
        raise InvalidInput(f"{arguments['shell']!r}: expected bash, zsh or fish")
    shell = kind(click.Group("tavern"), {}, "tavern", VARIABLE)
    script = shell.source_template % shell.source_vars()
    if arguments["shell"] == "bash":
        script += "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n"  # names such as text:shout are one word
    yield CommandOutput(kind="text", text=script)
    yield CommandOutput(kind="result", data={"script": script})


async def _why(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    host = make_host()
    try:
        await host.load()
        explanation = host.why(arguments["subject"])
    finally:
        await host.stop()
    yield CommandOutput(kind="text", text=explanation.answer)
    for fact in explanation.facts:
        yield CommandOutput(kind="text", text=f"  {fact}")
    yield CommandOutput(kind="result", data=explanation.to_json())


_revoke = _decision(Host.revoke, "The grant of {name} is taken back", frozenset(PluginState) - _RUNS)
_enable = _decision(Host.enable, "{name} is enabled", _RUNS)
_disable = _decision(Host.disable, "{name} is disabled", frozenset({PluginState.DISABLED}))

_ALL: tuple[tuple[CommandInfo, Command], ...] = (
    own_command(
        "serve",
        "Run the host and its web page on this machine.",
        _serve,
        CommandParameter(name="--port", type="integer", default=8188, help="Port; 0 takes any free one."),
        CommandParameter(name="--also", type="path", multiple=True, help="Another project to serve beside it."),
        CommandParameter(
            name="--drain", type="number", default=10, help="Seconds that work in flight has to end when it stops."
        ),
        CommandParameter(name="--log-format", default="text", help="What the log's lines are: text or json."),
        CommandParameter(
            name="--log-level", multiple=True, help="DEBUG, INFO, WARNING or ERROR; of one plugin NAME=LEVEL."
        ),
    ),
    own_command(
        "init",
        "Make an empty project in a folder.",
        _init,
        CommandParameter(name="folder", help="The folder, made if need be.", required=True),
    ),
    own_command(
        "plugins list",
        "List all plugins; imports none of them.",
        _list,
        CommandParameter(name="--check", type="flag", help="Load them, and say what is wrong with their code."),
    ),
    own_command(
        "completion",
        'Print a script with which a shell completes commands and names: `eval "$(tavern completion bash)"`.',
        _completion,
        CommandParameter(name="shell", help="bash, zsh or fish.", required=True),
    ),
    own_command("plugins show", "Show a plugin and what it asks for.", _show, _NAME),
    own_command("plugins grant", "Grant a plugin what it asks for.", _grant, _NAME),
    own_command("plugins revoke", "Take a plugin's grant back.", _revoke, _NAME),
    own_command("plugins enable", "Let a disabled plugin be loaded.", _enable, _NAME),
    own_command("plugins disable", "Disable a plugin until it is enabled again.", _disable, _NAME),
    own_command(
        "plugins reload",
        "Reload a plugin in a running host.",
        _reload,
        CommandParameter(name="name", help="The plugin; all that changed, where none is named."),
    ),
    own_command(
        "why",
        "Explain why something is as it is.",
        _why,
        CommandParameter(
            name="subject", help="service:NAME, hook:NAME, permission:NAME or plugin:NAME.", required=True
        ),
    ),
    *SETTINGS_COMMANDS,
    *AUDIT_COMMANDS,
)
HOST_COMMANDS: dict[str, tuple[CommandInfo, Command]] = {info.name: (info, run) for info, run in _ALL}


async def _done(
    host: Host, plugin: PluginInfo, text: str, wanted: frozenset[PluginState]
) -> AsyncIterator[CommandOutput]:
    """Yield what an operator's decision about a plugin came to, here and in the running hosts, which are to have it in
    one of the states `wanted`."""
    running = await host.running_hosts()
    state = "" if plugin.state is PluginState.DISABLED else f"; it is {plugin.state.value}"
    yield CommandOutput(kind="text", text=f"{text}." if running else f"{text}{state}. No host runs for this project.")
    hosts: list[JsonValue] = []
    for one in running:
        yield _became(one, plugin.name, wanted)
        now = one.plugin(plugin.name)
        hosts.append({"process": one.process, "problem": one.problem, "plugin": now.to_json() if now else None})
    yield CommandOutput(kind="result", data={**plugin.to_json(), "hosts": hosts})


def _became(host: RunningHost, name: str, wanted: frozenset[PluginState]) -> CommandOutput:
    """Return what became of a plugin in a running host: a failure unless it is in one of the states `wanted`."""
    plugin = host.plugin(name)
    what = f"the running host (process {host.process})"
    if host.problem is not None:
        return CommandOutput(kind="failure", text=f"{what}: {host.problem}")
    if plugin is None:
        return CommandOutput(kind="failure", text=f"{what} does not know {name}: `tavern plugins reload` there")
    problems = [str(problem) for problem in plugin.problems]
    text = "; ".join([f"{name} is {plugin.state.value}", *problems])
    stale = plugin.pending_restart or any(problem.message.startswith(NOT_RELOADED) for problem in plugin.problems)
    failed = plugin.state not in wanted or (stale and plugin.state in _RUNS)
    where = "The" + what.removeprefix("the")
    return CommandOutput(kind="failure" if failed else "text", text=f"{what if failed else where}: {text}")


def _review(plugin: PluginInfo) -> CommandOutput:
    rows = [[p.level, p.name, p.description, "yes" if p.granted else "NO"] for p in plugin.permissions]
    return CommandOutput(
        kind="table",
        title=f"{plugin.name} asks for" if rows else f"{plugin.name} asks for nothing",
        columns=["level", "permission", "what it lets it do", "granted"],
        rows=rows,
    )


def _times(plugin: PluginInfo) -> str:
    """Return how long each stage took, as far as it came: reading the manifest, importing, loading."""
    return " ".join(f"{stage} {ms:.0f}" for stage, ms in plugin.timings.items() if ms >= 0.5)


def _reason(plugin: PluginInfo) -> str:
    return str(plugin.problems[0]) if plugin.problems else ""


def _out_of_order(plugins: list[PluginInfo]) -> list[PluginInfo]:
    return [p for p in plugins if p.state is not PluginState.DISABLED and (p.state not in _IN_ORDER or p.problems)]
