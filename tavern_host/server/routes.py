"""The host's own routes as they are described, in the form that plugins use for theirs."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from aiohttp import web

from tavern_host.contracts.http import RouteInfo
from tavern_host.server.errors import Handler

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class Route(NamedTuple):
    """A route of the host, and the function that answers it."""

    info: RouteInfo
    handler: Handler


OWN_ROUTES: web.AppKey[tuple[Route, ...]] = web.AppKey("own_routes")
"""Where an application has the routes that are no plugin's."""


def route(method: Method, path: str, handler: Handler, **described: Any) -> Route:
    """Return a route; the first sentence of its handler's docstring is its summary."""
    summary = " ".join((handler.__doc__ or "").split()).partition(". ")[0].removesuffix(".") + "."
    info = RouteInfo.construct(method=method, path=path, handler=handler.__name__, summary=summary, **described)
    return Route(info, handler)
