"""The `agentRuntime` service: deliberate, act on the calls in the text, observe, and so on.

It owns the loop only: workflows are run by the engine, calls are parsed, authorised and made by the tool
manager, prompts are filled in by the providers of macros.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from tavern_agents.deliberation import Deliberation, Situation
from tavern_agents.feedback import (
    limit_for,
    not_understood_text,
    told,
)
from tavern_agents.profiles import Profiles, read_profiles
from tavern_agents.tracing import Tracer
from tavern_host.context import PluginContext
from tavern_host.contracts.agents import AgentLimits, AgentProfile, AgentReply, AgentRequest, AgentRuntime, AgentSummary
from tavern_host.contracts.calls import CallContext, Principal, new_id, system_call
from tavern_host.contracts.errors import (
    Interrupted,
    InvalidInput,
    Misconfigured,
    NotFound,
    TavernError,
    describe,
)
from tavern_host.contracts.executions import EXECUTION_ENGINE, RunRequest, RunStatus
from tavern_host.contracts.llm import ChatMessage
from tavern_host.contracts.toolcalls import ParsedText, ToolResult, ToolScope
from tavern_host.contracts.tools import TOOL_MANAGER
from tavern_host.contracts.workflows import WORKFLOW_MANAGER

Outcome = Literal["reply", "limit", "error"]

_UNUSABLE: dict[str, type[TavernError]] = {
    NotFound.code: NotFound,
    InvalidInput.code: Misconfigured,
    Misconfigured.code: Misconfigured,
}
"""What it means for an agent that its workflow cannot be had, by the code of the reason."""


class Runtime(AgentRuntime):
    """The agents of the project. Profiles are read when they are asked for, so that edits count at once."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._reported: frozenset[str] = frozenset()

    async def list_agents(self) -> list[AgentSummary]:
        """Return the agents that can be used; what is wrong with the others is in the log."""
        profiles = await self._profiles()
        for problem in profiles.problems:
            if problem not in self._reported:
                self._context.log.warning("%s", problem)
        self._reported = frozenset(profiles.problems)
        return [
            AgentSummary(id=p.id, name=p.name, description=p.description, tools=p.tool_ids_inventory)
            for p in profiles.by_id.values()
        ]

    async def get(self, profile_id: str) -> AgentProfile:
        """Return a profile. Raises `NotFound`, or `Misconfigured` with every problem of a broken one."""
        return (await self._profiles()).get(profile_id)

    async def run(self, request: AgentRequest, *, call: CallContext | None = None) -> AgentReply:
        """Return how the agent's work ended. Raises what keeps it from beginning: `NotFound`, `Misconfigured`."""
        call = call or system_call()
        profile = await self.get(request.profile_id)
        deliberation = await self._deliberation(profile)
        run_id = new_id("agent")
        # Within a workflow's run the calls stay calls of that run: the engine does not let them wait for its end.
        agent = call.child(principal=Principal(kind="agent", id=profile.id), run_id=call.run_id or run_id)
        tracer = Tracer(self._context, run_id, profile.id, run_id)
        return await _AgentRun(run_id, self._context, profile, deliberation, request, agent, tracer).work()

    async def _profiles(self) -> Profiles:
        return await asyncio.to_thread(read_profiles, self._context.project.root)

    async def _deliberation(self, profile: AgentProfile) -> Deliberation:
        reference = profile.core_deliberation_workflow_id
        try:
            stored = await self._context.services.get(WORKFLOW_MANAGER).get(reference)
            return Deliberation.of(stored)
        except TavernError as error:
            kind = _UNUSABLE.get(error.info.code)
            if kind is None:
                raise
            where = f"the agent {profile.id!r} (core_deliberation_workflow_id: {reference!r})"
            raise kind(f"{where}: {error.message}", agent=profile.id, workflow=reference) from None


@dataclass
class _AgentRun:
    """One run of one agent: what it works with, and the conversation as it grows."""

    id: str
    context: PluginContext
    profile: AgentProfile
    deliberation: Deliberation
    request: AgentRequest
    call: CallContext
    trace: Tracer
    step: int = 0
    said: str = ""
    turns: list[ChatMessage] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    warned: set[str] = field(default_factory=set)

    @property
    def limits(self) -> AgentLimits:
        """What the run may use."""
        return self.request.limits or AgentLimits(steps=8)

    async def work(self) -> AgentReply:
        """Deliberate and act until there is a reply, the limit is reached, or something fails."""
        self.trace.say("started", f"{self.profile.name} begins", message=self.request.message)
        try:
            reply = await self._loop()
        except asyncio.CancelledError:
            self.trace.say("interrupted", "Stopped on request")
            raise
        except TavernError as error:
            interrupted = error.info.code == Interrupted.code
            self.trace.say("interrupted" if interrupted else "error", error.message, code=error.info.code)
            return self._reply("error", error=error.message)
        except Exception as error:
            self.trace.say("error", describe(error))
            raise
        if reply is None:
            line = f"no final reply within {self.limits.steps} steps"
            self.trace.say("limit", f"Stopped: {line}")
            return self._reply("limit", text=self.said, error=line)
        self.trace.say("reply", reply)
        return self._reply("reply", text=reply)

    def _reply(self, outcome: Outcome, *, text: str = "", error: str | None = None) -> AgentReply:
        return AgentReply(
            agent_run_id=self.id,
            profile_id=self.profile.id,
            outcome=outcome,
            text=text,
            steps=self.step,
            tool_results=self.results,
            history=self._situation().conversation,
            error=error,
        )

    async def _loop(self) -> str | None:
        asked_again = False
        while self.step < self.limits.steps:
            self.step += 1
            self.trace.step = self.step
            text = await self._deliberate()
            self.turns.append(ChatMessage(role="assistant", content=text))
            parsed = await self.context.services.get(TOOL_MANAGER).parse_text(text)
            self.said = parsed.text.strip()
            if parsed.calls:
                asked_again = False
                await self._act(text, parsed)
            elif parsed.warnings and not asked_again:
                asked_again = True
                text = not_understood_text(parsed.warnings)
                self._observe(text)
                self.turns.append(ChatMessage(role="user", content=told(text)))
            else:
                return self.said or text.strip()
        return None

    async def _deliberate(self) -> str:
        self.trace.say("thinking", f"Step {self.step}: thinking")
        expanded = await self.context.services.get(TOOL_MANAGER).expand(
            self.deliberation.prompts, tool_ids=self.profile.tool_ids_inventory, call=self.call
        )
        for warning in expanded.warnings:
            self._warn(warning)
        request = RunRequest(
            workflow=self.deliberation.with_prompts(cast("list[Any]", expanded.value)),
            inputs=self.deliberation.inputs(self._situation()),
            metadata={"agent": self.profile.id, "step": self.step},
        )
        run = await self.context.services.get(EXECUTION_ENGINE).run(request, call=self.call.child())
        if run.status is RunStatus.INTERRUPTED:
            raise Interrupted(f"the deliberation of {self.profile.id!r} was interrupted (run {run.id})")
        if run.status is not RunStatus.COMPLETE:
            reason = run.error.message if run.error is not None else f"it ended as {run.status.value}"
            raise TavernError(f"the deliberation of {self.profile.id!r} failed (run {run.id}): {reason}")
        return self.deliberation.text(run.outputs)

    async def _act(self, text: str, parsed: ParsedText) -> None:
        """Let the tool manager carry out the calls of a text and observe every result."""
        if self.said:
            self.trace.say("thought", self.said)
        for warning in parsed.warnings:
            self._warn(warning)
        for call in parsed.calls:
            self.trace.say(
                "tool_call", f"Calls {call.tool_id}", toolId=call.tool_id, index=call.index, arguments=call.arguments
            )
        tools = self.context.services.get(TOOL_MANAGER)
        scope = ToolScope(allowed=self.profile.tool_ids_inventory)
        done = await tools.call_text(text, scope=scope, call=self.call.child())
        self.results.extend(done.results)
        calls = done.parsed.calls
        answers = await tools.feedback(calls, done.results, limit=limit_for(len(calls)))
        for one in answers:
            self._observe(one.text, tool_id=one.tool_id)
        self.turns.append(ChatMessage(role="user", content="\n".join(one.framed for one in answers)))

    def _observe(self, text: str, *, tool_id: str | None = None) -> None:
        self.observations.append(text)
        self.trace.say("observation", text, toolId=tool_id)

    def _situation(self) -> Situation:
        return Situation(
            history=tuple(self.request.history),
            message=self.request.message,
            turns=tuple(self.turns),
            observations=tuple(self.observations),
            step=max(1, self.step),
        )

    def _warn(self, text: str) -> None:
        """Say once per run that something was not as it should be."""
        if text not in self.warned:
            self.warned.add(text)
            self.trace.say("warning", text)
