"""The service `metrics`, with `GET /metrics` for Prometheus, `GET /api/figures` and `tavern top`.

What is counted is counted where it happens, by a `Tally`; here it is collected when somebody asks.
"""

from __future__ import annotations

from tavern_host import CommandInfo, CommandParameter, RouteInfo, ServiceInfo, hookimpl, service_info
from tavern_metrics.api.metrics import METRICS


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `metrics`."""
    return [service_info(METRICS, "tavern_metrics.service:HostMetrics")]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of the figures."""
    return [
        RouteInfo(
            method="GET",
            path="/metrics",
            handler="tavern_metrics.web:prometheus",
            summary="All figures, as Prometheus reads them.",
            content_type="text/plain",
        ),
        RouteInfo(
            method="GET",
            path="/api/figures",
            handler="tavern_metrics.web:figures",
            summary="All figures.",
            answer="tavern_host.contracts.metrics:Figure[]",
        ),
    ]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the command `top`."""
    return [
        CommandInfo(
            name="top",
            help="Show what the server of the project does, and what each plugin costs, until Ctrl-C.",
            handler="tavern_metrics.top:top",
            at_server=True,
            parameters=[
                CommandParameter(name="--every", type="number", default=2, help="Seconds between two looks."),
                CommandParameter(name="--once", type="flag", help="Look once."),
            ],
        )
    ]
