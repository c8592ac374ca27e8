"""Runs that are resumed, as they stood."""

from __future__ import annotations

from tavern_agents.api.agents import AgentProfile, AgentStatus
from tavern_agents.deliberation import deliberation_of
from tavern_agents.loop import AgentLoop
from tavern_agents.rows import KeptRun
from tavern_agents.store import AgentStore
from tavern_agents.tracing import Tracer
from tavern_host.context import PluginContext


async def loop_of(context: PluginContext, store: AgentStore, profile: AgentProfile, kept: KeptRun) -> AgentLoop:
    """Return a claimed run as it stood. Raises `TavernError` where its workflow cannot be used."""
    deliberation = await deliberation_of(context, profile, kept.entry.request.world_state)
    steps = await store.steps(kept.run.id, 0)
    run = kept.run.model_copy(update={"status": AgentStatus.RUNNING, "finished_at": None, "reason": None})
    if kept.run.status.is_final:  # its limits start over
        run = run.model_copy(update={"usage": run.usage.model_copy(update={"steps": 0})})
    trace = Tracer(
        context,
        run.id,
        profile.id,
        run.conversation_id,
        seq=steps[-1].seq if steps else 0,
        allowed=profile.inventory,
        began=run.started_at,
        above=await store.path_above(run),
    )
    trace.step = steps[-1].step if steps else 0
    return AgentLoop(
        context=context,
        store=store,
        profile=profile,
        deliberation=deliberation,
        limits=kept.entry.request.limits or profile.limits,
        run=run,
        first=kept.entry.first,
        call=kept.entry.call,
        trace=trace,
        conversation=await store.conversation(kept.run.id),
        repeated=await store.called_beside(run, kept.entry.first),
    )
