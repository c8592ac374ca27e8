"""What some figures were in the last day: a number for each minute, kept in memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from datetime import datetime, timedelta

from tavern_host.contracts.metrics import Figure
from tavern_operations.api.metrics import FigureHistory, FigureSeries

EVERY = 60.0
"""Seconds between two numbers that are kept."""
KEPT = 24 * 60
"""How many numbers of each figure are kept."""
MAX_SERIES = 400
"""How many figures, told apart by their labels, are kept; later ones are not."""
_HOST = ("tavern_active_runs", "tavern_event_loop_lag_seconds", "tavern_llm_tokens_total", "tavern_sockets")
NAMES = frozenset({*_HOST, "process_cpu_seconds_total", "process_resident_memory_bytes"})
_OF_PLUGINS = ("tavern_hooks", "tavern_nodes")
"""Figures that are kept as sums for each plugin; the labels beside that are for a moment, not for a day."""

Key = tuple[str, tuple[tuple[str, str], ...]]


class Recorder:
    """Keeps what figures were. Not for several threads."""

    def __init__(self) -> None:
        self._times: list[datetime] = []
        self._values: dict[Key, array[float]] = {}

    def is_due(self, now: datetime) -> bool:
        """Return whether the next number is to be kept."""
        return not self._times or now - self._times[-1] >= timedelta(seconds=EVERY - 1)

    def add(self, now: datetime, figures: Iterable[Figure]) -> None:
        """Keep what the figures are now."""
        self._times.append(now)
        sums: dict[Key, float] = {}
        for figure in figures:
            key = _key(figure)
            if key is not None:
                sums[key] = sums.get(key, 0.0) + figure.value
        for key, value in sums.items():
            if key not in self._values and len(self._values) < MAX_SERIES:
                self._values[key] = array("d", [math.nan] * (len(self._times) - 1))
            if key in self._values:
                self._values[key].append(value)
        for known, values in self._values.items():
            if known not in sums:
                values.append(math.nan)
        if len(self._times) > KEPT:
            del self._times[0]
            for values in self._values.values():
                del values[0]

    def since(self, first: datetime, most: int) -> FigureHistory:
        """Return the numbers since a moment, at most so many of each: of more every second, third …"""
        places = [at for at, time in enumerate(self._times) if time >= first]
        step = -(-len(places) // most) or 1
        shown = places[::-step][::-1]
        series = [
            FigureSeries(name=name, labels=dict(labels), values=[_known(values[at]) for at in shown])
            for (name, labels), values in self._values.items()
        ]
        return FigureHistory(times=[self._times[at] for at in shown], series=series)


def _key(figure: Figure) -> Key | None:
    if figure.name in NAMES:
        return figure.name, tuple(sorted(figure.labels.items()))
    plugin = figure.labels.get("plugin")
    return (figure.name, (("plugin", plugin),)) if plugin and figure.name.startswith(_OF_PLUGINS) else None


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
