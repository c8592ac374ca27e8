"""The routes under `/api/tools`."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.contracts.http import HttpRequest, HttpResponse, RouteInfo
from tavern_host.contracts.toolcalls import ToolScope
from tavern_host.contracts.tools import TOOL_MANAGER
from tavern_tools.requests import call_of, callback_asked, protocols_asked, tool_filter


def tool_routes() -> list[RouteInfo]:
    """Return the routes about tools."""
    return [
        RouteInfo(method="GET", path="/api/tools", handler="tavern_tools.web.tool_routes:index", summary="The tools."),
        RouteInfo(
            method="GET", path="/api/tools/{id}", handler="tavern_tools.web.tool_routes:show", summary="One tool."
        ),
        RouteInfo(
            method="POST",
            path="/api/tools/execute",
            handler="tavern_tools.web.tool_routes:execute",
            summary='Carry out action text (`{"text"}`) or one call (`{"toolId", "arguments"}`).',
        ),
    ]


async def index(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tools`: the tools that fit `tag`, `namespace`, `kind`, `text` and `plugin`."""
    tools = await context.services.get(TOOL_MANAGER).list_tools(tool_filter(request.query))
    return HttpResponse(data=[tool.to_json() for tool in tools])


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/tools/{id}`: one tool."""
    tool = await context.services.get(TOOL_MANAGER).get(request.parameters["id"])
    return HttpResponse(data=tool.to_json())


async def execute(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/tools/execute`: action text or one call. Failed calls are results, not HTTP errors."""
    body = request.json_body()
    asked = call_of(body)
    scope = ToolScope(callback=callback_asked(body))
    manager = context.services.get(TOOL_MANAGER)
    if isinstance(asked, str):
        done = await manager.call_text(asked, protocols=protocols_asked(body), scope=scope, call=request.call)
        return HttpResponse(data=done.to_json())
    result = await manager.call(asked, scope=scope, call=request.call)
    return HttpResponse(data={"results": [result.to_json()]})
