"""A run in a panel as it happens: server-sent events with how it stands, and the pieces of what it streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tavern_host import PluginContext
from tavern_host.context import Subscription
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.http import ServerEvent
from tavern_panels.api.panels import PanelRun
from tavern_panels.running import REPLY, PanelInUse

_KEEP_ALIVE = 5.0
"""Seconds without an event after which a client is sent an empty one, which shows whether it is still there."""

_TYPES = ("EXECUTION_STATUS_UPDATE", "WORKFLOW_INTERFACE_YIELD", "NODE_PROGRESS", "AGENT_TRACE", "TOOL_CALL_UPDATE")
_CHANGES = {"awaiting_approval", "resumed", "reply", "limit", "error", "interrupted"}
"""Steps of an agent after which its run stands otherwise."""


async def follow(panel: PanelInUse, run_id: str, context: PluginContext) -> AsyncIterator[ServerEvent]:
    """Yield `run` with how a run stands, at once and whenever that changes, until it has ended; between, `piece` with
    the `key` of an output and its `content`, `progress` of a node, and `note` with what an agent does."""
    subscription = context.events.subscribe(*_TYPES)
    try:
        run = await panel.run(run_id)
        shown = await panel.shown_outputs(run.element)
        yield _state(run)
        if _has_ended(run):
            return
        async for event in _with_pauses(subscription):
            if event is None:
                yield ServerEvent()
            elif isinstance(event, Gap) or _is_change(event, run_id):
                run = await panel.run(run_id)
                yield _state(run)
                if _has_ended(run):
                    return
            elif (told := _piece(event, run_id, shown)) is not None:
                yield told
    finally:
        await subscription.close()


def _state(run: PanelRun) -> ServerEvent:
    return ServerEvent(event="run", data=run.to_json())


def _has_ended(run: PanelRun) -> bool:
    return run.status not in ("queued", "running")


def _is_change(event: Event, run_id: str) -> bool:
    payload = event.payload
    if event.type == "EXECUTION_STATUS_UPDATE":
        return bool(payload.get("promptId") == run_id)
    if event.type == "TOOL_CALL_UPDATE":
        return bool(payload.get("runId") == run_id)
    return event.type == "AGENT_TRACE" and payload.get("agentRunId") == run_id and payload.get("kind") in _CHANGES


def _piece(event: Event, run_id: str, shown: list[str]) -> ServerEvent | None:
    payload: Any = event.payload
    if event.type == "AGENT_TRACE" and payload.get("agentRunId") == run_id:
        if payload["kind"] == "fragment":
            restarted = bool((payload.get("data") or {}).get("restarted"))
            text = "" if restarted else payload["text"]
            return ServerEvent(event="piece", data={"key": REPLY, "content": text, "restart": restarted})
        if payload["kind"] in ("thought", "tool_call"):  # not with what it is called
            tool = str((payload.get("data") or {}).get("toolId") or "")
            return ServerEvent(event="note", data={"kind": payload["kind"], "text": tool})
    if payload.get("promptId") != run_id:
        return None
    if event.type == "WORKFLOW_INTERFACE_YIELD" and payload.get("interfaceOutputKey") in shown:
        data = {"key": payload["interfaceOutputKey"], "content": payload.get("yieldedContent")}
        return ServerEvent(event="piece", data=data)
    if event.type == "NODE_PROGRESS":
        told = {key: payload[key] for key in ("value", "max", "message") if payload.get(key) is not None}
        return ServerEvent(event="progress", data=told)
    return None


async def _with_pauses(subscription: Subscription) -> AsyncIterator[Event | Gap | None]:
    """Yield events as they come, and None after each pause without one."""
    events = aiter(subscription)
    waiting: asyncio.Task[Event | Gap] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(_next(events))
            await asyncio.wait([waiting], timeout=_KEEP_ALIVE)
            if not waiting.done():
                yield None
                continue
            try:
                event = waiting.result()
            except StopAsyncIteration:
                return
            finally:
                waiting = None
            yield event
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait([waiting])


async def _next(events: AsyncIterator[Event | Gap]) -> Event | Gap:
    return await anext(events)
