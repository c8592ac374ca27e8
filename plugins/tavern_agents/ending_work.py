"""Stops runs of agents whose person is gone, or that somebody stops."""

from __future__ import annotations

import asyncio

from tavern_agents import State
from tavern_agents.api.agents import AgentRun, AgentRunFilter, AgentStatus
from tavern_agents.runtime import Runtime
from tavern_host import CallContext, PluginContext
from tavern_host.contracts.accounts import SettledWork, WorkFilter, is_to_settle
from tavern_host.contracts.errors import Conflict

_OPEN = [status for status in AgentStatus if not status.is_final]


async def end_work(runtime: Runtime, which: WorkFilter, by: CallContext, context: PluginContext) -> list[SettledWork]:
    """Stop the runs that a filter means; return how many. One that another host works on ends at its next step, where
    its person may do no more."""
    store, services = context.own(State).store, context.services
    found = await store.runs(AgentRunFilter(statuses=_OPEN, limit=1000))
    meant = [run for run in found if await is_to_settle(services, which, (await store.run(run.id)).entry.call)]
    # Those of sub-agents end with what they are part of.
    first = [run for run in meant if run.parent_run_id not in {one.id for one in meant}]
    answers = await asyncio.gather(*(runtime.interrupt(run.id, call=by) for run in first), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Conflict):
            raise answer
    return [SettledWork(kind="runs of agents", stopped=sum(isinstance(one, AgentRun) for one in answers))]
