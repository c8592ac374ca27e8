"""The host's own commands: `serve`, `token`, `init`, `plugins list`, `plugins show`. All others belong to plugins.

Each takes a factory of hosts, since `init` runs without a project."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from urllib.parse import quote

from tavern_host.cli.log import OnceASecond
from tavern_host.contracts.commands import CommandInfo, CommandOutput
from tavern_host.contracts.errors import InvalidInput, Misconfigured, NotFound
from tavern_host.contracts.languages import say
from tavern_host.contracts.plugins import PluginInfo, PluginState
from tavern_host.contracts.reviews import outputs_of, permissions_of
from tavern_host.host import Host
from tavern_host.projects import PROJECT_FILE, Folders, first_party_samples, make_project
from tavern_host.runtime.installed import first_party_part
from tavern_host.storage.files import make_folder

MakeHost = Callable[..., Host]
"""Makes the host that the command's options ask for, or with a folder the host of that project; `serving=True`, for one
that runs until it is stopped, `third_party=False`, for one that loads first-party plugins alone."""

HostCommand = Callable[[MakeHost, dict[str, Any]], AsyncIterator[CommandOutput]]

_IN_ORDER = frozenset({PluginState.DISCOVERED, PluginState.LOADED, PluginState.STARTED, PluginState.DISABLED})


async def serve(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Run the host and its server."""
    host = make_host(serving=True)
    for folder in (host.project.private, host.folders.project_state(host.project)):
        try:
            make_folder(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise OSError(errno.EACCES, "it may not be written", str(folder))
        except OSError as error:
            if error.errno != errno.ELOOP:  # plugins say what they do not do behind a link
                why = f"nothing can be kept in {folder}: {error.strerror or error}"
                raise Misconfigured(f"{why}; a server writes there: change its rights, or make room") from None
    log_to = first_party_part("server_log:server_log")
    form, levels, secrets = arguments["log_format"], arguments["log_level"], host.settings.secrets
    filters = [partial(OnceASecond, logging.WARNING)]
    with log_to(host.project.private, format=form, levels=levels, secrets=secrets, filters=filters):
        async for output in _served(host, make_host, arguments):
            yield output


async def _served(host: Host, make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    from tavern_host.server.reach import reach
    from tavern_host.server.serve import serve

    how = reach(
        arguments["port"],
        address=arguments["address"],
        names=arguments["name"],
        base_path=arguments["base_path"],
        proxies=arguments["trusted_proxy"],
        certificate=arguments["tls_cert"],
        key=arguments["tls_key"],
    )
    async with host:
        for plugin in _out_of_order(host.plugins()):
            yield CommandOutput(
                kind="progress", text=f"the plugin {plugin.name} is {plugin.state.value}: {_reason(plugin)}"
            )
        others = [Path(folder) for folder in arguments["also"]]
        make_other = partial(make_host, serving=True)
        drain = float(arguments["drain"])
        async for output in serve(host, how, also=others, make_host=make_other, drain=drain):
            yield output


async def init(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Make a project."""
    root = _new_project(arguments["folder"], is_empty=arguments["empty"])
    yield CommandOutput(kind="message", text=f"Made a project in {root}")
    yield CommandOutput(kind="message", text="There, `tavern serve` opens its page.")
    if not arguments["empty"]:
        text = "`tavern workflow run greeting --input name=Ada` runs its sample; `tavern init --empty` makes none."
        yield CommandOutput(kind="message", text=text)
    yield CommandOutput(kind="result", data={"project": str(root)})


def _new_project(folder: str, *, is_empty: bool) -> Path:
    if not folder:
        raise InvalidInput("the folder's name is empty; for the current folder write `tavern init .`")
    root = Path(folder).absolute()
    if (root / PROJECT_FILE).exists():
        raise InvalidInput(f"{root} is a project already")
    try:
        make_project(root, () if is_empty else first_party_samples())
    except OSError as error:
        raise InvalidInput(f"no project can be made in {root}: {error.strerror}") from None
    return root


async def list_plugins(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """List all plugins."""
    host = make_host()
    if arguments["check"]:
        plugins = await _checked(host)
    elif (server := _server(host, arguments)) is not None:
        yield CommandOutput(kind="progress", text=_AS_SERVED.format(server.address, server.process))
        plugins = [PluginInfo.model_validate(one) for one in await _asked(server, host, "plugins")]
    else:
        plugins = host.link()
    rows = [[p.name, p.version, say(p.state.value), p.source, _times(p), _reason(p)] for p in plugins]
    columns = ["name", "version", "state", "source", "ms", "what to know"]
    yield CommandOutput(kind="table", columns=columns, rows=rows)
    yield CommandOutput(kind="result", data=[p.to_json() for p in plugins])
    bad = [plugin.name for plugin in _out_of_order(plugins)]
    if arguments["strict"] and bad:
        yield CommandOutput(kind="failure", text=f"not in order: {', '.join(bad)}", exit_code=1)


_AS_SERVED = "As the server at {} (process {}) has them; --here looks here."


def _server(host: Host, arguments: dict[str, Any]) -> Any:
    """Return the server of the project, which knows how its plugins stand, where there is one and it is to be asked."""
    from tavern_host.server.holder import server_of

    return server_of(host.folders, host.project) if arguments.get("asks_server") else None


async def _asked(server: Any, host: Host, path: str) -> Any:
    return await first_party_part("handing_over:answer_of")(server, f"projects/{host.project.id}/{path}")


async def _checked(host: Host) -> list[PluginInfo]:
    """Return the plugins once they were loaded; none is started."""
    try:
        await host.load()
        with suppress(NotFound):
            await first_party_part("checks:check_loaded")(host)
        return host.plugins()
    finally:
        await host.stop()


async def show_plugin(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Show a plugin."""
    host = make_host()
    host.link()
    plugin = host.plugin(arguments["name"])
    if (server := _server(host, arguments)) is not None:
        yield CommandOutput(kind="progress", text=_AS_SERVED.format(server.address, server.process))
        plugin = PluginInfo.model_validate(await _asked(server, host, f"plugins/{quote(plugin.name)}"))
    named = " ".join(filter(None, (plugin.name, plugin.version)))
    yield CommandOutput(kind="message", text=f"{say(plugin.display_name)} ({named}) — {say(plugin.state.value)}")
    lines: list[str] = []
    if plugin.placement != "in-process":
        process = first_party_part("placement:running_process")(host.project, plugin.name)
        plugin = plugin.model_copy(update={"process": process})
        lines = [_WHERE[plugin.placement], *(process.lines() if process is not None else [])]
    for line in [say(plugin.description or ""), f"from {plugin.source}", *lines, *(str(p) for p in plugin.problems)]:
        if line:
            yield CommandOutput(kind="message", text=f"  {line}")
    yield permissions_of(plugin)
    notes = await host.notes(plugin, make_host(third_party=False))
    for output in outputs_of(notes):
        yield output
    yield CommandOutput(kind="result", data={**plugin.to_json(), **{note.key: note.data for note in notes}})


async def token(make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Show the operator's token, or make another."""
    from tavern_host.server.holder import server_of
    from tavern_host.server.operator_token import OperatorToken

    kept = OperatorToken.of_environment(Folders.of_user().state)
    if arguments["renew"]:
        if kept.fixed:
            raise InvalidInput("TAVERN_TOKEN says which token it is: change it there, and start the server again")
        audit = make_host().audit
        try:
            async with audit.decision("operator.token_renewed", actor="user:operator"):
                kept.renew()
        finally:
            await audit.close()
        yield CommandOutput(kind="progress", text="Sessions with the token from before have ended.")
    kept.make()
    host = make_host()
    server = server_of(host.folders, host.project)
    found = server.token if server is not None else kept()
    if server is not None and arguments["renew"] and found != kept():
        text = f"The server at {server.address} has the token of its TAVERN_TOKEN: change it there, and start it again."
        yield CommandOutput(kind="progress", text=text)
    url = f"{server.address}/?token={quote(found, safe='')}" if server is not None else None
    if url is not None:
        yield CommandOutput(kind="progress", text=f"Open {url}")
    yield CommandOutput(kind="message", text=found)
    yield CommandOutput(kind="result", data={"token": found, "url": url})


def run_host_command(info: CommandInfo, make_host: MakeHost, arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Run one of these commands."""
    outputs: AsyncIterator[CommandOutput] = resolve_name(info.handler)(make_host, arguments)
    return outputs


_WHERE = {"process": "in a process of its own", "process-without-sandbox": "in a process WITHOUT A SANDBOX"}


def _times(plugin: PluginInfo) -> str:
    """Return how long each stage took, as far as it came: reading the manifest, importing, loading."""
    return " ".join(f"{stage} {ms:.0f}" for stage, ms in plugin.timings.items() if ms >= 0.5)


def _reason(plugin: PluginInfo) -> str:
    where = [] if plugin.placement == "in-process" else [_WHERE[plugin.placement]]
    return "; ".join([*where, *map(str, plugin.problems)])


def _out_of_order(plugins: list[PluginInfo]) -> list[PluginInfo]:
    return [p for p in plugins if p.state is not PluginState.DISABLED and (p.state not in _IN_ORDER or p.problems)]
