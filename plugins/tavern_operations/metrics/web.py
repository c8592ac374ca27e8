"""The routes of the figures, and the text that Prometheus reads (its exposition format, version 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pydantic import Field

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.http import answer_with
from tavern_host.contracts.metrics import Figure
from tavern_host.contracts.wire import Model
from tavern_operations.api.metrics import LONGEST, METRICS

_ESCAPES_OF_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


async def prometheus(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with all figures as text."""
    text = exposition(await context.services.get(METRICS).figures())
    return HttpResponse(body=text.encode(errors="replace"), content_type="text/plain; version=0.0.4")


async def figures(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with all figures as JSON."""
    return HttpResponse(data=[figure.to_json() for figure in await context.services.get(METRICS).figures()])


class HistoryQuery(Model):
    """The query of `GET /api/figures/history`: of how many seconds until now."""

    seconds: int = Field(default=3600, ge=1, le=LONGEST)


async def history(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with what figures were lately."""
    seconds = request.read_query(HistoryQuery).seconds
    found = await context.services.get(METRICS).history(seconds)
    return await answer_with(found.to_json, is_large=True)


def exposition(figures: Iterable[Figure]) -> str:
    """Return figures as Prometheus reads them: those of one name together, each combination of labels once."""
    named: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        labels = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in sorted(figure.labels.items()))
        named.setdefault(figure.name, {})[f"{{{labels}}}" if labels else ""] = figure
    lines = []
    for name, by_labels in sorted(named.items()):
        first = next(iter(by_labels.values()))
        lines.append(f"# HELP {name} {first.help.translate(_ESCAPES_OF_HELP)}")
        lines.append(f"# TYPE {name} {first.kind}")
        lines += [f"{name}{labels} {_number(figure.value)}" for labels, figure in by_labels.items()]
    return "\n".join([*lines, ""])


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(int(value)) if value == int(value) else repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
