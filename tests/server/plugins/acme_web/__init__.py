"""A plugin whose routes and messages answer in every way there is."""

from __future__ import annotations

from tavern_host import MessageInfo, RouteInfo, hookimpl

BASE = "/api/x/acme-web"


@hookimpl
def tavern_register_routes() -> list[RouteInfo | MessageInfo]:
    """Return the routes and messages."""
    web = f"{__name__}.web"
    return [
        RouteInfo(method="GET", path=f"{BASE}/echo/{{name}}", handler=f"{web}:echo"),
        RouteInfo(method="PUT", path=f"{BASE}/echo/{{name}}", handler=f"{web}:echo"),
        RouteInfo(method="POST", path=f"{BASE}/json", handler=f"{web}:json"),
        RouteInfo(method="GET", path=f"{BASE}/fail/{{how}}", handler=f"{web}:fail"),
        RouteInfo(method="GET", path=f"{BASE}/page", handler=f"{web}:page"),
        RouteInfo(method="GET", path=f"{BASE}/events/{{count}}", handler=f"{web}:events"),
        MessageInfo(type="ACME_ECHO", handler=f"{web}:on_echo"),
        MessageInfo(type="ACME_FAIL", handler=f"{web}:on_fail"),
        MessageInfo(type="ACME_PUBLISH", handler=f"{web}:on_publish"),
    ]
