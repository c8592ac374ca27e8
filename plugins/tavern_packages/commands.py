"""`tavern plugins install`, `upgrade`, `uninstall` and `search`: what they say."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from packaging.version import Version

from tavern_host import CommandOutput, Folders, PluginContext
from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.languages import say
from tavern_host.contracts.packages import PackageChange
from tavern_host.contracts.plugins import PermissionInfo
from tavern_host.contracts.reviews import asked_for
from tavern_packages.changes import Changes
from tavern_packages.sources import Offer, Options

Output = AsyncIterator[CommandOutput]
_COLUMNS = ["plugin", "newest", "installed", "what it is"]


async def install(arguments: dict[str, Any], context: PluginContext) -> Output:
    """Install a plugin."""
    change = await _changes(context).install(arguments["what"], _options(arguments))
    for output in _shown(change, "installed"):
        yield output


async def upgrade(arguments: dict[str, Any], context: PluginContext) -> Output:
    """Put another version of a plugin in the place of the one that is installed."""
    change = await _changes(context).upgrade(arguments["name"], arguments.get("what"), _options(arguments))
    for output in _shown(change, "upgraded"):
        yield output


async def rollback(arguments: dict[str, Any], context: PluginContext) -> Output:
    """Put the version before in the place of the one that is in use."""
    change = await _changes(context).rollback(arguments["name"])
    for output in _shown(change, "in use again"):
        yield output


async def uninstall(arguments: dict[str, Any], context: PluginContext) -> Output:
    """Remove a plugin that was installed."""
    change = await _changes(context).uninstall(arguments["name"], purge=arguments["purge"])
    names, version = ", ".join(change.package.plugins), change.package.version
    data = "so are its data in this project" if arguments["purge"] else "its data stay (--purge removes them)"
    yield _text(f"{names} {version} is uninstalled; {data}.")
    for line in change.running:
        yield _text(line)
    yield CommandOutput(kind="result", data=change.to_json())


async def search(arguments: dict[str, Any], context: PluginContext) -> Output:
    """Search the index of plugins."""
    found = await _changes(context).search(arguments.get("word") or "")
    rows = [[one.name, one.version, installed or "", one.summary] for one, installed in found]
    yield CommandOutput(kind="table", title=None if rows else "nothing found", columns=_COLUMNS, rows=rows)
    data: Any = [{**one.to_json(), "installed": installed} for one, installed in found]
    yield CommandOutput(kind="result", data=data)


def _changes(context: PluginContext) -> Changes:
    """Return the object that changes the packages of this user. Raises `Misconfigured` where the command has an empty
    project instead of one that cannot be read."""
    if Folders.of_user().state != context.operator_dir.parents[3]:
        raise Misconfigured("the project or the operator's host.yaml cannot be read; `tavern plugins list` says why")
    return Changes(context)


def _options(arguments: dict[str, Any]) -> Options:
    grant = arguments["grant"]
    return Options(
        grant, arguments["build"], arguments["outside_index"], ask=_ask, replace=_is_granted if grant else _replace
    )


async def _is_granted(offer: Offer) -> bool:
    return True


async def _replace(offer: Offer) -> bool:
    """Show the person at the terminal, if there is one, what changes with a version; return whether it may replace what
    is there, and have what it asks for."""
    if not _is_somebody_there():
        return False
    _print_asked(offer.missing)
    for name in offer.dropped:
        print(say(f"It no longer asks for {name}."), file=sys.stderr)
    there, version = f"{offer.before.distribution} {offer.before.version}", offer.package.version
    text = f"{there} is installed. Put {version} in its place? [y/N] "
    if offer.missing:
        text = f"{there} is installed. Put {version} in its place, and grant that? [y/N] "
    print(say(text), end="", file=sys.stderr, flush=True)
    return await _says_yes()


async def _ask(asked: Mapping[str, list[PermissionInfo]]) -> bool:
    """Show the person at the terminal what plugins ask for; return whether they grant it, False where there is
    nobody."""
    if not _is_somebody_there():
        return False
    _print_asked(asked)
    print(say("Nothing of it was run yet. Grant it? [y/N] "), end="", file=sys.stderr, flush=True)
    return await _says_yes()


def _print_asked(asked: Mapping[str, list[PermissionInfo]]) -> None:
    for name, permissions in asked.items():
        print(say(f"{name} asks for"), file=sys.stderr)
        for one in permissions:
            print(f"  {say(one.level):10} {one.name}: {say(one.description)}", file=sys.stderr)


def _is_somebody_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


async def _says_yes() -> bool:
    answer = await asyncio.to_thread(sys.stdin.readline)
    return answer.strip().lower() in ("y", "yes")


def _shown(change: PackageChange, done: str) -> list[CommandOutput]:
    package, refusal = change.package, change.refusal
    names, version = ", ".join(package.plugins), package.version
    outputs = []
    for plugin, missing in change.missing.items():
        outputs.append(asked_for(plugin, missing))
    if refusal is not None:
        outputs.append(CommandOutput(kind="failure", text=refusal))
    elif not change.changed:
        outputs.append(_text(f"{names} {version} is installed, and there is nothing else to install."))
    else:
        came = "".join(f", with {name} {found}" for name, found in package.dependencies.items())
        if change.before is not None and done != "in use again":
            done = "downgraded" if Version(version) < Version(change.before) else "upgraded"
        was = f" from {change.before}" if change.before is not None and done != "in use again" else ""
        outputs.append(_text(f"{names} {version} is {done}{was}{came}."))
        outputs += [_text(f"Next: `tavern plugins grant {plugin}`.") for plugin in change.missing]
        outputs += [_text(line) for line in change.running]
    return [*outputs, CommandOutput(kind="result", data=change.to_json())]


def _text(text: str) -> CommandOutput:
    return CommandOutput(kind="message", text=text)
