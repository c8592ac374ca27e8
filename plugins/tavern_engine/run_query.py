"""Parses which runs a query or a command line asks for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Any

from tavern_engine.api.executions import RunFilter
from tavern_engine.cli.run_text import point_in_time
from tavern_host import EXECUTION_ENGINE, InvalidInput, NotFound, PluginContext, clock
from tavern_host.common.queries import read_filter, statuses
from tavern_host.contracts.executions import Run, RunStatus

_PAGE = 1000
_PREFIX = "run_"
_SHOWN = 5


def run_filter(query: Mapping[str, str], zone: tzinfo | None = UTC) -> RunFilter:
    """Return the filter of a query: `status` (several with commas), `workflowId`, `since`, `until`, `text`, `limit`,
    `offset`. Raises `InvalidInput` for a value that cannot be; empty ones are no values."""
    now = clock.now()
    found: dict[str, Any] = {
        key: query[key].strip() for key in ("workflowId", "text", "limit", "offset") if query.get(key, "").strip()
    }
    found |= {
        key: _named(key, point_in_time, query[key], now=now, zone=zone) for key in ("since", "until") if query.get(key)
    }
    found["statuses"] = statuses(RunStatus, query.get("status", ""))
    return read_filter(RunFilter, found)


def _named(key: str, read: Any, *arguments: Any, **named: Any) -> Any:
    try:
        return read(*arguments, **named)
    except InvalidInput as error:
        raise InvalidInput(f"{key}: {error.message}") from None


async def find_run(text: str, context: PluginContext) -> Run:
    """Return the run of an id, or of the beginning of one, with or without `run_`.

    Raises `NotFound`, and `InvalidInput` for a beginning that several runs have.
    """
    engine = context.services.get(EXECUTION_ENGINE)
    try:
        return await engine.get(text)
    except NotFound:
        pass
    start = text if text.startswith(_PREFIX) else f"{_PREFIX}{text}"
    found: dict[str, None] = {}
    for offset in range(0, 10**9, _PAGE):
        page = await engine.history(RunFilter(text=start, limit=_PAGE, offset=offset))
        found |= dict.fromkeys(run.id for run in page if text and run.id.startswith(start))
        if len(page) < _PAGE or len(found) > _SHOWN:
            break
    if not found:
        raise NotFound(f"there is no run {text!r:.60}; `tavern runs list` shows those that there are")
    if len(found) > 1:
        more = " …" if len(found) > _SHOWN else ""
        raise InvalidInput(
            f"{text!r:.60} matches several runs: {', '.join(list(found)[:_SHOWN])}{more}; write more of the id"
        )
    return await engine.get(next(iter(found)))
