"""The aiohttp application: transport, plugins and permissions. Every other route belongs to a plugin.

`reach` says where it listens, `gate` who may enter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aiohttp import web

from tavern_host.host import Host
from tavern_host.server import blob_routes, commands, frontend_files, health, pages, plugin_admin, served, websocket
from tavern_host.server.errors import Handler
from tavern_host.server.gate import GATE, Gate, admitting, guard
from tavern_host.server.logs import add_headers, logged
from tavern_host.server.plugin_routes import plugin_route, wrong_method
from tavern_host.server.reach import Reach
from tavern_host.server.refusals import REFUSALS, Refusals
from tavern_host.server.routes import OWN_ROUTES
from tavern_host.server.served import SERVED, ServedProjects

ROUTES = (
    *websocket.ROUTES,
    *plugin_admin.ROUTES,
    *commands.ROUTES,
    *blob_routes.ROUTES,
    *served.ROUTES,
    *health.ROUTES,
    *pages.ROUTES,
    *frontend_files.ROUTES,
)
"""The routes that are no plugin's."""
MAX_BODY = 16 << 20
"""The largest body in bytes."""


def make_app(
    host: Host | ServedProjects, *, token: str | Callable[[], str], port: int, reach: Reach | None = None
) -> web.Application:
    """Return the application that serves a started host, or several, on a port of this machine or as `reach` says.
    `token` is the operator's, or gives the one that it is now."""
    app = web.Application(middlewares=[logged, guard], client_max_size=MAX_BODY)
    app[SERVED] = projects = host if isinstance(host, ServedProjects) else ServedProjects(host)
    app.cleanup_ctx.append(projects.of_application)
    projects.keep_secret(get_token := token if callable(token) else partial(str, token))
    app[GATE] = Gate(get_token, reach or Reach(port))
    app[REFUSALS] = Refusals()
    app.on_shutdown.append(_write_refusals)
    app[OWN_ROUTES] = ROUTES
    projects.default.registrations.own_routes = tuple(info for info, _ in ROUTES)
    app[websocket.SOCKETS] = {}
    app.cleanup_ctx.append(websocket.end_sessions)
    handlers: dict[str, dict[str, Handler]] = {}
    for info, own in ROUTES:
        handler = admitting(info, own)
        handlers.setdefault(info.path, {})[info.method] = handler
        if not info.path.startswith("/api/projects"):
            handlers.setdefault(_in_project(info.path), {})[info.method] = handler
    for path, by_method in handlers.items():
        resource = app.router.add_resource(path)
        for method, handler in by_method.items():
            resource.add_route(method, handler)
        if "GET" in by_method and path != "/ws":
            resource.add_route("HEAD", by_method["GET"])
        resource.add_route("*", _refuse_other_methods(sorted(by_method)))
    app.router.add_route("*", "/api/projects/{projectId}/{path:.*}", plugin_route)
    app.router.add_route("*", "/projects/{projectId}/{path:.*}", plugin_route)
    app.router.add_route("*", "/{path:.*}", plugin_route)
    app.on_response_prepare.append(add_headers)
    return app


def _in_project(path: str) -> str:
    """Return where a route of one project is found among several: the API below the project, all else beside it."""
    api = path.removeprefix("/api/")
    return f"/projects/{{projectId}}{path}" if api == path else f"/api/projects/{{projectId}}/{api}"


def _refuse_other_methods(allowed: list[str]) -> Handler:
    async def refuse(request: web.Request) -> web.StreamResponse:
        raise wrong_method(request, allowed)

    return refuse


async def _write_refusals(app: web.Application) -> None:
    app[REFUSALS].flush()
