"""Installing, upgrading and removing plugins over HTTP, in the host that runs."""

from __future__ import annotations

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.packages import PackageChange, PackageRequest
from tavern_packages.changes import Changes
from tavern_packages.sources import Options


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
