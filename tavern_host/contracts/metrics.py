"""Figures of a running host for monitoring: what plugins count.

A plugin keeps a `Tally` for each thing that it counts, and gives their figures in `tavern_collect_figures`. Counting
costs about a microsecond; nothing is computed before somebody asks.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tavern_host.contracts.wire import Model

MAX_LABELLED = 1000
"""How many combinations of labels one tally tells apart; those that come later are counted together."""


OTHER = "other"
"""The value of every label of those."""


Label = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,50}$")]


class Figure(Model):
    """One number at this moment. A counter only grows while the host runs; a gauge may do anything. The full name has
    `tavern_` in front, for a third-party plugin `tavern_x_NAME_`; that of a counter ends with `_total`."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,99}$")
    value: float
    kind: Literal["counter", "gauge"] = "counter"
    help: str = ""
    labels: dict[Label, Annotated[str, Field(max_length=200)]] = Field(default_factory=dict)


class Tally:
    """Counts by the values of some labels; `name` is that of the figure, without `_total`. Not for several threads."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._counts: dict[tuple[str, ...], float] = {}
        self._seconds: dict[tuple[str, ...], float] = {}

    def add(self, *values: str, count: float = 1, seconds: float | None = None) -> None:
        """Count something with these values of the labels, in their order, and the seconds that it took."""
        if values not in self._counts:
            values = tuple(value[:200] for value in values)
        if values not in self._counts and len(self._counts) >= MAX_LABELLED:
            values = (OTHER,) * len(self.labels)
        self._counts[values] = self._counts.get(values, 0) + count
        if seconds is not None:
            self._seconds[values] = self._seconds.get(values, 0.0) + seconds

    def figures(self) -> list[Figure]:
        """Return the counters `NAME_total` and, where seconds were counted, `NAME_seconds_total`."""
        found = []
        for end, help, values in (
            ("", self.help, self._counts),
            ("_seconds", f"{self.help} Seconds that it took.", self._seconds),
        ):
            for key, value in values.items():
                labels = dict(zip(self.labels, key, strict=True))
                found.append(Figure(name=f"{self.name}{end}_total", value=value, help=help, labels=labels))
        return found
