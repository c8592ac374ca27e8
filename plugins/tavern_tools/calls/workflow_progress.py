"""Runs of workflows that report how far they are to who called the tool. Built on the messages about the run."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host.context import PluginContext, Subscription
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.events import Gap
from tavern_host.contracts.executions import Run, RunRequest
from tavern_tools.api.toolcalls import Report

_DONE, _CACHED, _PROGRESS = "NODE_COMPLETE", "NODE_CACHED", "NODE_PROGRESS"
_BACKLOG = 1000
"""How many messages, of all runs, wait to be looked at; older ones are dropped, which costs a report."""


async def run_reporting(context: PluginContext, request: RunRequest, call: CallContext, report: Report) -> Run:
    """Run a workflow as `ExecutionEngine.run` does, and report each node that is done, and what nodes say of their own
    progress."""
    engine = context.services.get(EXECUTION_ENGINE)
    watching = context.events.subscribe(_DONE, _CACHED, _PROGRESS, limit=_BACKLOG)
    run: Run | None = None
    run_id: str | None = None
    following: asyncio.Task[None] | None = None
    try:
        run_id = await engine.submit(request, call=call)
        nodes = frozenset((await engine.get(run_id)).nodes)
        following = asyncio.create_task(_follow(watching, run_id, nodes, report), name=f"progress of {run_id}")
        run = await engine.wait(run_id)
        return run
    finally:
        if following is not None:
            following.cancel()
        await watching.close()
        if run is None and run_id is not None:
            with suppress(TavernError):  # it has ended just now, or all runs are being ended
                await engine.interrupt(run_id, call=call)


async def _follow(watching: Subscription, run_id: str, nodes: frozenset[str], report: Report) -> None:
    done: set[str] = set()
    async for event in watching:
        if isinstance(event, Gap) or event.payload.get("promptId") != run_id:
            continue
        node, cached, text = str(event.payload.get("nodeId")), event.payload.get("nodeIds"), None
        if event.type == _PROGRESS:
            text = str(event.payload.get("message") or f"{node}: {event.payload.get('value')}")
        elif event.type == _CACHED and isinstance(cached, list):
            done.update(nodes.intersection(map(str, cached)))
        elif node in nodes:  # not the run's own outputs
            done.add(node)
            text = f"{node} is done"
        report(len(done) / len(nodes) if nodes else None, text)
