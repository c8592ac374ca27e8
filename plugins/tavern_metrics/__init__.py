"""The service `metrics`, with `GET /metrics` for Prometheus and `GET /api/figures`.

What is counted is counted where it happens, by a `Tally`; here it is collected when somebody asks.
"""

from __future__ import annotations

from tavern_host import RouteInfo, ServiceInfo, hookimpl, service_info
from tavern_host.contracts.metrics import METRICS


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
