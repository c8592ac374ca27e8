"""Installing, upgrading and removing plugins over HTTP, in the host that runs."""

from __future__ import annotations

from pydantic import Field

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.packages import PackageChange, PackageRequest
from tavern_host.contracts.wire import Model
from tavern_packages.changes import Changes
from tavern_packages.sources import Options


class IndexQuery(Model):
    """`q` is a text in the name or the summary of a plugin; without it all are given."""

    q: str = ""


class IndexedPlugin(Model):
    """A plugin in the index, with its newest version there, and the one that is installed."""

    name: str
    version: str
    summary: str = ""
    installed: str | None = None


class PluginIndex(Model):
    """What the operator's index has. It is not `is_set` where the setting names none; then there is nothing in it."""

    is_set: bool
    plugins: list[IndexedPlugin] = Field(default_factory=list)


async def search_index(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with plugins of the operator's index."""
    asked, changes = request.read_query(IndexQuery), Changes(context)
    if not changes.sources.index:
        return HttpResponse(data=PluginIndex(is_set=False).to_json())
    plugins = [
        IndexedPlugin(name=one.name, version=one.version, summary=one.summary, installed=installed)
        for one, installed in await changes.search(asked.q)
    ]
    return HttpResponse(data=PluginIndex(is_set=True, plugins=plugins).to_json())


async def list_packages(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with what is installed, by name of the distribution."""
    packages = Changes(context).store.read()
    return HttpResponse(data=[packages[name].to_json() for name in sorted(packages)])


async def install(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Install a plugin."""
    asked = request.read(PackageRequest)
    if not asked.what:
        raise InvalidInput("the body must say `what` is to be installed: a name, or the address of a wheel")
    return _answer(await _changes(request, context).install(asked.what, _options(asked)))


async def upgrade(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Put another version of a plugin in the place of the one that is installed."""
    asked = request.read(PackageRequest)
    return _answer(await _changes(request, context).upgrade(request.parameters["name"], asked.what, _options(asked)))


async def rollback(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Put the version before in the place of the one that is in use."""
    return _answer(await _changes(request, context).rollback(request.parameters["name"]))


async def uninstall(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Remove a plugin that was installed; its data stay."""
    return _answer(await _changes(request, context).uninstall(request.parameters["name"], purge=False))


def _changes(request: HttpRequest, context: PluginContext) -> Changes:
    return Changes(context, request.call, is_running=True)


def _options(asked: PackageRequest) -> Options:
    return Options(asked.grant, outside_index=asked.outside_index, remote=True)


def _answer(change: PackageChange) -> HttpResponse:
    if change.refusal is not None:
        raise Conflict(change.refusal, **change.to_json())
    return HttpResponse(data=change.to_json())
