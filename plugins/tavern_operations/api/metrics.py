"""The `metrics` service."""

from __future__ import annotations

from tavern_host.contracts.metrics import Figure
from tavern_host.contracts.services import ServiceInterface, ServiceKey, reads


class Metrics(ServiceInterface, name="metrics"):
    """Collects the figures of the host and of all plugins."""

    @reads
    async def figures(self) -> list[Figure]:
        """Return all figures as they are now, under their full names."""


METRICS = ServiceKey(Metrics)
