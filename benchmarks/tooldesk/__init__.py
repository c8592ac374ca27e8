"""A plugin that publishes a service for the benchmark of tools."""

from __future__ import annotations

from tavern_host import ServiceInfo, hookimpl


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    return [ServiceInfo(service="tool-desk.desk", handler=f"{__name__}.desk:Answers")]
