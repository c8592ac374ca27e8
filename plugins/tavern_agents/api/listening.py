"""What an agent says in a run, piece by piece, for the doors through which clients talk to agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from tavern_agents.api.agents import AGENT_RUNTIME, AgentReply, AgentRun, AgentTrace
from tavern_host.context import PluginContext
from tavern_host.contracts.events import Event
from tavern_llm.api.llm import LlmChunk

_TRACES = "AGENT_TRACE"
_TOLD = frozenset({"fragment", "thinking", "thought", "awaiting_approval"})
"""The steps of an agent's work that a client hears of."""


async def answered(
    context: PluginContext, begin: Callable[[], Awaitable[AgentRun]]
) -> AsyncGenerator[AgentRun | LlmChunk | AgentReply]:
    """Yield the run that `begin` starts or finds, what the agent says and thinks as it comes, and its reply last.

    Texts are those of a language model's answer, with a blank line between what it says in different steps. What of the
    reply did not come piece by piece, comes before it. Closing ends the listening, not the run. The plugin needs
    `agentRuntime:read` and the event `AGENT_TRACE`.
    """
    runtime = context.services.get(AGENT_RUNTIME)
    traces = context.events.subscribe(_TRACES)
    waiting: asyncio.Task[AgentReply] | None = None
    try:
        run = await begin()
        yield run
        waiting = asyncio.create_task(runtime.wait(run.id), name=f"wait for {run.id}")
        waiting.add_done_callback(lambda _: asyncio.ensure_future(traces.close()))
        said = ""
        async for event in traces:
            if not isinstance(event, Event) or event.payload.get("agentRunId") != run.id:
                continue
            if event.payload.get("kind") not in _TOLD:
                continue
            step = AgentTrace.model_validate(event.payload)
            for chunk in _chunks(step, said):
                yield chunk
            said = _said(step, said)
        reply = await waiting
        if reply.outcome in ("reply", "limit"):
            if not reply.text.startswith(said.strip()):  # pieces were lost, or are no part of the reply
                yield LlmChunk(text=f"\n\n{reply.text}")
            elif rest := reply.text.removeprefix(said.strip()):
                yield LlmChunk(text=rest)
        yield reply
    finally:
        await traces.close()
        if waiting is not None and not waiting.done():
            waiting.cancel()
            await asyncio.wait([waiting])


def _chunks(step: AgentTrace, said: str) -> list[LlmChunk]:
    """Return a step as a client gets it: the agent's words, and as thoughts what it thinks and waits for."""
    if step.kind == "fragment":
        restarted = step.data.get("restarted")
        return [LlmChunk(restarted=str(restarted)) if restarted else LlmChunk(text=step.text)]
    if step.kind == "thinking" and said:
        return [LlmChunk(text="\n\n")]
    if _is_said(step, said):
        return [LlmChunk(text=step.text)]
    is_thought = step.kind == "awaiting_approval" or step.data.get("isReasoning")
    return [LlmChunk(reasoning=f"{step.text}\n")] if is_thought else []


def _said(step: AgentTrace, said: str) -> str:
    """Return the agent's words since it began to deliberate, after a step."""
    if step.kind == "thinking" or step.data.get("restarted"):
        return ""
    return said + step.text if step.kind == "fragment" or _is_said(step, said) else said


def _is_said(step: AgentTrace, said: str) -> bool:
    """Return whether a step is what an agent says beside its calls, of which no piece came before."""
    return step.kind == "thought" and not step.data.get("isReasoning") and not said
