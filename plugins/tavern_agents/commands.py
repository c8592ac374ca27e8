"""`tavern agent list` and `tavern agent run`: what they print, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic import JsonValue

from tavern_agents.profiles import read_profiles
from tavern_agents.tracing import EVENT
from tavern_host import AGENT_RUNTIME, CommandOutput, PluginContext
from tavern_host.contracts.agents import AgentReply, AgentRequest
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.events import Event, Gap


async def list_agents(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the agents as a table, and what is wrong with files that hold none."""
    agents = await context.services.get(AGENT_RUNTIME).list_agents()
    problems = (await asyncio.to_thread(read_profiles, context.project.root)).problems
    rows = [[a.id, a.name, ", ".join(a.tools), a.description] for a in agents]
    yield CommandOutput(kind="table", columns=["id", "name", "tools", "description"], rows=rows)
    for problem in problems:
        yield CommandOutput(kind="progress", text=problem)
    data: dict[str, Any] = {"agents": [agent.to_json() for agent in agents], "problems": problems}
    yield CommandOutput(kind="result", data=data)


_TOLD_AT_THE_END = ("reply", "error")


async def run_agent(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the agent's work as it happens, then its reply; fail where there is none."""
    request = _request(arguments)
    traces = context.events.subscribe(EVENT)

    async def run() -> AgentReply:
        try:
            return await context.services.get(AGENT_RUNTIME).run(request)
        finally:
            await traces.close()

    task = asyncio.create_task(run(), name=f"agent run {request.profile_id}")
    try:
        async for line in _lines(traces.__aiter__(), request.profile_id):
            yield CommandOutput(kind="progress", text=line)
        reply = await task
    finally:
        task.cancel()
        await asyncio.wait([task])
    if reply.outcome == "reply":
        yield CommandOutput(kind="text", text=reply.text)
    yield CommandOutput(kind="result", data=reply.to_json())
    if reply.outcome != "reply":
        yield CommandOutput(kind="failure", text=f"agent {reply.profile_id}: {reply.error}", exit_code=1)


def _request(arguments: dict[str, JsonValue]) -> AgentRequest:
    given: dict[str, Any] = {"profile_id": arguments["profile"], "message": arguments["message"]}
    if arguments.get("max_steps") is not None:
        given["limits"] = {"steps": arguments["max_steps"]}
    return read_model(AgentRequest, given, "agent run")


async def _lines(events: AsyncIterator[Event | Gap], profile_id: str) -> AsyncIterator[str]:
    """Yield a line for each step of the first run of the agent that is seen."""
    agent_run_id: JsonValue = None
    async for event in events:
        if isinstance(event, Gap):
            yield f"({event.last - event.first + 1} steps were too fast to be shown)"
            continue
        trace = event.payload
        if agent_run_id is None and trace.get("profileId") == profile_id and trace.get("kind") == "started":
            agent_run_id = trace.get("agentRunId")
        if trace.get("agentRunId") == agent_run_id and trace.get("kind") not in _TOLD_AT_THE_END:
            yield f"[{trace.get('step')}] {trace.get('kind')}: {trace.get('text')}"
