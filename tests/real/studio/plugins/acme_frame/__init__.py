"""A plugin whose front end runs in frames and tries to leave them. Its one route answers with what was sent."""

from __future__ import annotations

from tavern_host import HttpRequest, HttpResponse, PluginContext, RouteInfo, hookimpl


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    return [RouteInfo(method="POST", path="/api/x/acme-frame/echo", handler=f"{__name__}:echo")]


async def echo(request: HttpRequest, context: PluginContext) -> HttpResponse:
    return HttpResponse(data={"sent": request.json_body()})
