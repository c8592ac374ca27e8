"""What a workflow gives by the streams of its interface, while it runs. Built on the messages about the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import Any

from pydantic import JsonValue

from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_engine.api.yields import INTERFACE_YIELD, interface_items, items_of
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, new_id
from tavern_host.contracts.errors import ErrorInfo, TavernError
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_tools.api.toolcalls import TakePiece, ToolErrorType
from tavern_tools.catalog.failures import ToolFailure, failure_of

_STATUS = "EXECUTION_STATUS_UPDATE"
_BACKLOG = 100_000
"""How many messages, of all runs, wait while the stream is not read; then some are lost and the stream breaks off."""


async def workflow_stream(
    context: PluginContext, request: RunRequest, call: CallContext, keys: Collection[str]
) -> AsyncIterator[JsonValue]:
    """Run a workflow and yield what comes by the interface outputs `keys`, in order; end with the run.

    Of one output the items themselves, of several `{"output": KEY, "item": …}`. Neighbouring pieces of text may come
    as one. Leaving before the end interrupts the run. Raises `ToolFailure` where the run fails, a stream of it breaks
    off, or items were lost since they were read too slowly; and what the engine raises for a run that it refuses.
    """
    engine = context.services.get(EXECUTION_ENGINE)
    watching = context.events.subscribe(INTERFACE_YIELD, _STATUS, limit=_BACKLOG)
    run_id: str | None = None
    has_ended = False
    broken: str | None = None
    try:
        run_id = await engine.submit(request, call=call)
        async for event in watching:
            if isinstance(event, Gap):
                message = f"messages {event.first} to {event.last} were lost: the stream was read too slowly"
                raise ToolFailure(ToolErrorType.RESOURCE, message, runId=run_id)
            payload = event.payload
            if payload.get("promptId") != run_id:
                continue
            if event.type == _STATUS:
                has_ended = RunStatus(str(payload.get("status"))).is_final
                if has_ended:
                    break
                continue
            key = str(payload.get("interfaceOutputKey"))
            if key not in keys:
                continue
            broken = broken or _error(event)
            for item in items_of(event.payload):
                yield item if len(keys) == 1 else {"output": key, "item": item}
        if not has_ended:
            raise ToolFailure(ToolErrorType.INTERRUPTED, "the host stops, or unloads the plugin", runId=run_id)
        await _require_success(context, run_id, broken)
    finally:
        await watching.close()
        if run_id is not None and not has_ended:
            with suppress(TavernError):  # it has ended just now, or all runs are being ended
                await engine.interrupt(run_id, call=call)


async def run_passing_on(
    context: PluginContext, request: RunRequest, call: CallContext, keys: Collection[str], take: TakePiece
) -> Run:
    """Run a workflow as `ExecutionEngine.run` does, and pass on what comes by the interface outputs `keys`."""
    watching = context.events.subscribe(INTERFACE_YIELD, limit=_BACKLOG)
    call = call.model_copy(update={"idempotency_key": new_id("pieces")})  # the run's id is known by it

    async def follow() -> None:
        async for item in interface_items(watching, call.id_of("run"), keys):
            take(item)

    following = asyncio.create_task(follow(), name="pass on pieces of a tool's output")
    try:
        return await context.services.get(EXECUTION_ENGINE).run(request, call=call)
    finally:
        await watching.close()
        await asyncio.wait([following])


async def _require_success(context: PluginContext, run_id: str, broken: str | None) -> None:
    """Raise `ToolFailure` where a run that has ended failed."""
    run = await context.services.get(EXECUTION_ENGINE).wait(run_id)
    if run.status is RunStatus.INTERRUPTED:
        message = run.error.message if run.error else "the run was interrupted"
        raise ToolFailure(ToolErrorType.INTERRUPTED, message, runId=run_id)
    if run.status is not RunStatus.COMPLETE:
        raise failure_of(run.error or ErrorInfo(code="error", message=f"the run ended as {run.status}"), runId=run_id)
    if broken is not None:
        raise ToolFailure(ToolErrorType.EXECUTION, f"the stream broke off: {broken}", runId=run_id)


def _error(event: Event) -> str | None:
    """Return why a stream ended here, where that is not since its source had."""
    content: Any = event.payload.get("yieldedContent")
    if event.payload.get("isLastChunk") is True and isinstance(content, dict) and content.get("type") == "error_chunk":
        return str(content.get("content"))
    return None
