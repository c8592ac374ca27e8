"""First-party plugin `tavern-studio`: the web page of the host."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tavern_host import PluginContext, RouteInfo, hookimpl

if TYPE_CHECKING:
    from tavern_devtools.api.findings import CheckedPlugin, Finding


class State:
    """What the parts of this plugin share: development servers, and the description of the interface with the revision
    of the plugins that it is of."""

    def __init__(self, context: PluginContext) -> None:
        self.servers: dict[str, asyncio.Future[str]] = {}
        self.openapi = -1, b""


@hookimpl
async def tavern_check_plugin(plugin: CheckedPlugin) -> list[Finding]:
    """Say what is wrong with a plugin's front end."""
    from tavern_studio.plugin_check import check_plugin

    return await check_plugin(plugin)


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """The page at `/`, the frame of sandboxed panels, and the HTTP interface: described, and to read and try."""
    return [
        RouteInfo(
            method="GET",
            path="/",
            handler="tavern_studio.page:index",
            summary="The host at a glance.",
            content_type="text/html",
        ),
        RouteInfo(
            method="GET",
            path="/docs",
            handler="tavern_studio.page:documentation",
            summary="Lead to the documentation, which the page shows.",
            status=302,
        ),
        RouteInfo(
            method="GET",
            path="/sandbox",
            handler="tavern_studio.sandbox:frame",
            summary="The document in which a sandboxed panel of a plugin runs.",
            content_type="text/html",
        ),
        RouteInfo(
            method="GET",
            path="/api/docs",
            handler="tavern_studio.page:api",
            summary="Every route, to read and to try.",
            content_type="text/html",
        ),
        RouteInfo(
            method="GET",
            path="/api/openapi.json",
            handler="tavern_studio.openapi:describe",
            summary="Every route, described (OpenAPI 3.1).",
        ),
    ]
