"""Short ways to make runs for a store of them, whichever it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tavern_engine.api.runs import RunEnd, RunEntry, RunStore
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.executions import RunRequest, RunStatus

DOCUMENT = b'{"nodes":[]}'


def entry(run_id: str, document: str, **more: Any) -> RunEntry:
    """Return a run; `inputs` and `priority` go into its request."""
    request = RunRequest(**{key: more.pop(key) for key in ("inputs", "priority", "metadata") if key in more})
    more.setdefault("submitted_at", datetime.now(UTC))
    return RunEntry(id=run_id, request=request, workflow=document, call=system_call(), **more)


async def accepted(store: RunStore, *run_ids: str, worker: str = "w", lease: float = 30, **more: Any) -> list[RunEntry]:
    """Accept runs of one document."""
    document = await store.put(DOCUMENT)
    entries = [entry(run_id, document, **more) for run_id in run_ids]
    for each in entries:
        await store.accept(each, worker=worker, lease=lease)
    return entries


async def finished(store: RunStore, *run_ids: str, worker: str = "w", **more: Any) -> None:
    """Accept runs and let them end."""
    end = RunEnd(
        status=more.pop("status", RunStatus.COMPLETE), **{k: more.pop(k) for k in ("finished_at",) if k in more}
    )
    await accepted(store, *run_ids, worker=worker, **more)
    for run_id in run_ids:
        await store.update(worker, run_id, end)
