"""The commands that decide about plugins: grant, revoke, enable, disable, isolate and reload.

Running hosts follow, and what came of it there is said.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from pydantic import JsonValue

from tavern_host import CommandOutput, Host
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.plugins import Placement, PluginInfo, PluginState, Reloaded, RunningHost
from tavern_host.contracts.reviews import outputs_of, permissions_of

MakeHost = Callable[..., Host]
Command = Callable[[MakeHost, dict[str, Any]], AsyncIterator[CommandOutput]]
_RUNS = frozenset({PluginState.LOADED, PluginState.STARTED})
_IN_ORDER = _RUNS | {PluginState.DISCOVERED, PluginState.DISABLED}


async def grant(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Grant a plugin what it asks for, which is shown."""
    host = _linked(make_host)
    before = host.plugin(arguments["name"])
    yield permissions_of(before)
    for output in outputs_of(await host.notes(before, make_host(third_party=False))):
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
        host = _linked(make_host)
        plugin = await decide(host, arguments["name"])
        async for output in _done(host, plugin, outcome.format(name=plugin.name), wanted):
            yield output

    return command


revoke = _decision(Host.revoke, "The grant of {name} is taken back", frozenset(PluginState) - _RUNS)
enable = _decision(Host.enable, "{name} is enabled", _RUNS)
disable = _decision(Host.disable, "{name} is disabled", frozenset({PluginState.DISABLED}))


async def isolate(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Run a plugin in a process of its own from now on, or no more."""
    if arguments["undo"] and arguments["without_sandbox"]:
        raise InvalidInput("--undo and --without-sandbox say different things")
    placement: Placement | None = "process-without-sandbox" if arguments["without_sandbox"] else "process"
    host = _linked(make_host)
    plugin = await host.place(arguments["name"], None if arguments["undo"] else placement)
    where = {"in-process": "in the host's process", "process": "in a process of its own"}
    text = f"{plugin.name} runs {where.get(plugin.placement, 'in a process of its own WITHOUT A SANDBOX')}"
    async for output in _done(host, plugin, text, _RUNS):
        yield output


async def reload(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Let running hosts reload a plugin, or all that changed."""
    name = arguments.get("name")
    host = _linked(make_host)
    host.ask_to_reload(name)
    running = await host.running_hosts()
    if not running:
        yield CommandOutput(kind="message", text="No host runs for this project: there is nothing to reload.")
    hosts: list[JsonValue] = []
    for one in running:
        done = one.reloads.get(name or "", Reloaded())
        if problem := one.problem or done.error:
            yield CommandOutput(kind="failure", text=f"the running host (process {one.process}): {problem}")
        elif not (done.plugins or done.gone):
            text = f"The running host (process {one.process}) found no plugin that is new, changed or gone."
            yield CommandOutput(kind="message", text=text)
        for concerned in () if one.problem else done.plugins:
            yield _became(one, concerned, _IN_ORDER)
        for concerned in () if one.problem else done.gone:
            text = f"The running host (process {one.process}): {concerned} is gone."
            yield CommandOutput(kind="message", text=text)
        plugins: list[JsonValue] = [plugin.to_json() for plugin in one.plugins if plugin.name in done.plugins]
        hosts.append({"process": one.process, "problem": problem, "plugins": plugins, "gone": [*done.gone]})
    yield CommandOutput(kind="result", data={"asked": name, "hosts": hosts})


def _linked(make_host: MakeHost) -> Host:
    host = make_host()
    host.link()
    return host


async def _done(
    host: Host, plugin: PluginInfo, text: str, wanted: frozenset[PluginState]
) -> AsyncIterator[CommandOutput]:
    """Yield what an operator's decision about a plugin came to, here and in the running hosts, which are to have it in
    one of the states `wanted`."""
    running = await host.running_hosts()
    state = "" if plugin.state is PluginState.DISABLED else f"; it is {plugin.state.value}"
    yield CommandOutput(
        kind="message", text=f"{text}." if running else f"{text}{state}. No host runs for this project."
    )
    hosts: list[JsonValue] = []
    for one in running:
        yield _became(one, plugin.name, wanted)
        now = one.plugin(plugin.name)
        hosts.append({"process": one.process, "problem": one.problem, "plugin": now.to_json() if now else None})
    yield CommandOutput(kind="result", data={**plugin.to_json(), "hosts": hosts})


def _became(host: RunningHost, name: str, wanted: frozenset[PluginState]) -> CommandOutput:
    """Return the state of a plugin in a running host as output: a failure unless it is one of the states `wanted`."""
    plugin = host.plugin(name)
    what = f"the running host (process {host.process})"
    if host.problem is not None:
        return CommandOutput(kind="failure", text=f"{what}: {host.problem}")
    if plugin is None:
        return CommandOutput(kind="failure", text=f"{what} does not know {name}: `tavern plugins reload` there")
    problems = [str(problem) for problem in plugin.problems]
    text = "; ".join([f"{name} is {plugin.state.value}", *problems])
    failed = plugin.state not in wanted or (plugin.is_stale and plugin.state in _RUNS)
    where = "The" + what.removeprefix("the")
    return CommandOutput(kind="failure" if failed else "text", text=f"{what if failed else where}: {text}")
