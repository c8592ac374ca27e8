"""The `metrics` service."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from tavern_host.contracts.metrics import Figure
from tavern_host.contracts.services import ServiceInterface, ServiceKey, reads
from tavern_host.contracts.wire import Model

LONGEST = 24 * 3600
"""For how many seconds figures are kept."""


class FigureSeries(Model):
    """What a figure was at each of some moments; null where it was not known. Of counters with the label `plugin` the
    others are summed."""

    name: str
    labels: dict[str, str] = Field(default_factory=dict)
    values: list[float | None]


class FigureHistory(Model):
    """What figures were, at the same moments all of them, the oldest first. It begins with the host."""

    times: list[datetime]
    series: list[FigureSeries]


class Metrics(ServiceInterface, name="metrics", version=2):
    """Collects the figures of the host and of all plugins."""

    @reads
    async def figures(self) -> list[Figure]:
        """Return all figures as they are now, under their full names."""

    @reads(since=2)
    async def history(self, seconds: int) -> FigureHistory:
        """Return the figures of runs, memory, sockets, tokens, hooks and nodes of plugins over the last seconds: about
        one number a minute, at most 240 of each, of at most a day. Only a host that serves keeps them."""


METRICS = ServiceKey(Metrics)
