"""A run that is submitted under an idempotency key is begun once, however often it is submitted."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from tavern_engine.run.active_run import ActiveRun
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, NotFound
from tavern_host.contracts.executions import Run


async def submitted_once(
    call: CallContext | None, accept: Callable[[], Awaitable[ActiveRun]], get: Callable[[str], Awaitable[Run]]
) -> str:
    """Return the id of a run that `accept` accepts, unless the call's key has one, as `get` says. Raises what `accept`
    raises."""
    if call is None or call.idempotency_key is None:
        return (await accept()).record.id
    with contextlib.suppress(NotFound):
        return (await get(call.id_of("run"))).id
    try:
        return (await accept()).record.id
    except Conflict:  # somebody else was first
        return (await get(call.id_of("run"))).id
