"""The `agentRuntime` service: deliberate, act on the calls in the text, observe, and so on (DESIGN §7).

It owns the loop only: workflows are run by the engine, calls are parsed, authorised and made by the tool
manager, prompts are filled in by whoever registered the macros.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tavern_agents.deliberation import Deliberation, Situation, workflow_id_of
from tavern_agents.feedback import (
    cut_middle,
    feedback,
    limit_for,
    not_understood_text,
    observation,
)
from tavern_agents.macros import Expander
from tavern_agents.profiles import Profiles, read_profiles
from tavern_agents.tracing import Tracer
from tavern_host.context import Contribution, PluginContext
from tavern_host.contracts.agents import AgentProfile, AgentReply, AgentRequest, AgentRuntime, AgentSummary
from tavern_host.contracts.calls import CallContext, Principal, new_id, system_call
from tavern_host.contracts.errors import (
    Interrupted,
    InvalidInput,
    Misconfigured,
    NotFound,
    PluginFailure,
    TavernError,
    describe,
)
from tavern_host.contracts.executions import EXECUTION_ENGINE, RunRequest, RunStatus
from tavern_host.contracts.llm import ChatMessage
from tavern_host.contracts.macros import MacroRequest, PromptMacroInfo
from tavern_host.contracts.tools import TOOL_MANAGER, ParsedText, ToolResult
from tavern_host.contracts.workflows import WORKFLOW_MANAGER

MACROS = "tavern_register_prompt_macros"

Outcome = Literal["reply", "limit", "error"]

_UNUSABLE: dict[str, type[TavernError]] = {
    NotFound.code: NotFound,
    InvalidInput.code: Misconfigured,
    Misconfigured.code: Misconfigured,
}
"""What it means for an agent that its workflow cannot be had, by the code of the reason."""

_AT_FAULT = frozenset({PluginFailure.code, NotFound.code})
"""The codes of errors in a macro that are its plugin's doing: its code failed, or its handler is gone."""


class Runtime(AgentRuntime):
    """The agents of the project. Profiles are read when they are asked for, so that edits count at once."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._reported: frozenset[str] = frozenset()
        self._revision: int | None = None
        self._macros: dict[str, list[tuple[PromptMacroInfo, Contribution[Any]]]] = {}
        self._failed: set[str] = set()

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
        tracer = Tracer(self._context.events, run_id, profile.id)
        return await _AgentRun(
            run_id, self._context, profile, deliberation, request, agent, tracer, self._fill_in
        ).work()

    async def _fill_in(self, name: str, profile: AgentProfile, call: CallContext) -> str:
        """Return the text of a macro. Raises `TavernError` saying why there is none."""
        await self._collect()
        offers = self._macros.get(name, [])
        if not offers:
            raise NotFound(f"nobody fills in the macro {name!r}; left as it is")
        if len(offers) > 1:
            plugins = " and ".join(contribution.plugin for _, contribution in offers)
            raise Misconfigured(f"the macro {name!r} is provided by {plugins}; left as it is")
        info, contribution = offers[0]
        request = MacroRequest(name=name, tool_ids=profile.tool_ids_inventory, call=call)
        try:
            text = await contribution.call(info.handler, request)
        except Exception as error:
            reason = error.message if isinstance(error, TavernError) else describe(error)
            if not isinstance(error, TavernError) or error.info.code in _AT_FAULT:
                self._report_failed(name, contribution.plugin, f"failed: {reason}")
            raise TavernError(f"{contribution.plugin} failed in the macro {name!r}: {reason}; left as it is") from error
        if not isinstance(text, str):
            found = type(text).__name__
            self._report_failed(name, contribution.plugin, f"returned {found}, expected str")
            raise TavernError(f"{contribution.plugin} gave {found} for the macro {name!r}, not a text; left as it is")
        return text

    def _report_failed(self, name: str, plugin: str, reason: str) -> None:
        """Say with a plugin what went wrong with a macro when it failed first."""
        if name not in self._failed:
            self._failed.add(name)
            hint = f"mend it there, or keep it out with `tavern plugins disable {plugin}`"
            self._context.hooks.report(plugin, f"the macro {name!r} {reason}", hint=hint)

    async def _profiles(self) -> Profiles:
        return await asyncio.to_thread(read_profiles, self._context.project.root)

    async def _deliberation(self, profile: AgentProfile) -> Deliberation:
        reference = profile.core_deliberation_workflow_id
        try:
            stored = await self._context.services.get(WORKFLOW_MANAGER).get(workflow_id_of(reference))
            return Deliberation.of(stored)
        except TavernError as error:
            kind = _UNUSABLE.get(error.info.code)
            if kind is None:
                raise
            where = f"the agent {profile.id!r} (core_deliberation_workflow_id: {reference!r})"
            raise kind(f"{where}: {error.message}", agent=profile.id, workflow=reference) from None

    async def _collect(self) -> None:
        """Collect the macros again if plugins have come or gone."""
        revision = self._context.hooks.revision
        if revision == self._revision:
            return
        macros: dict[str, list[tuple[PromptMacroInfo, Contribution[Any]]]] = {}
        for contribution in await self._context.hooks.collect(MACROS):
            for info in contribution.value:
                macros.setdefault(info.name, []).append((info, contribution))
        self._macros, self._revision = macros, revision
        self._failed.clear()
        for name, offers in macros.items():
            if len(offers) > 1:
                self._report_contended(name, [contribution.plugin for _, contribution in offers])

    def _report_contended(self, name: str, plugins: list[str]) -> None:
        message = f"the macro {name!r} is provided by {' and '.join(plugins)}; none of them is used"
        for plugin in dict.fromkeys(plugins):
            hint = f"keep one alone, such as with `tavern plugins disable {plugin}`"
            if set(plugins) == {plugin}:
                hint = "return each macro once"
            self._context.hooks.report(plugin, message, hint=hint)


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
    fill_in: Callable[[str, AgentProfile, CallContext], Awaitable[str]]
    step: int = 0
    said: str = ""
    turns: list[ChatMessage] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    warned: set[str] = field(default_factory=set)

    async def work(self) -> AgentReply:
        """Deliberate and act until there is a reply, the limit is reached, or something fails."""
        self.trace.say("started", f"{self.profile.name} begins", message=self.request.message)
        try:
            reply = await self._loop()
        except asyncio.CancelledError:
            self.trace.say("stopped", "Stopped on request")
            raise
        except TavernError as error:
            interrupted = error.info.code == Interrupted.code
            self.trace.say("stopped" if interrupted else "error", error.message, code=error.info.code)
            return self._reply("error", error=error.message)
        except Exception as error:
            self.trace.say("error", describe(error))
            raise
        if reply is None:
            line = f"no final reply within {self.request.max_steps} steps"
            self.trace.say("stopped", f"Stopped: {line}", reason="limit")
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
        while self.step < self.request.max_steps:
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
                self._observe([(None, not_understood_text(parsed.warnings))])
            else:
                return self.said or text.strip()
        return None

    async def _deliberate(self) -> str:
        self.trace.say("deliberating", f"Step {self.step}: thinking")
        expander = Expander(self._macro)
        workflow = await self.deliberation.expanded(expander)
        for warning in expander.warnings:
            self._warn(warning)
        request = RunRequest(
            workflow=workflow,
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
        done = await self.context.services.get(TOOL_MANAGER).call_text(
            text, allowed=self.profile.tool_ids_inventory, call=self.call.child()
        )
        self.results.extend(done.results)
        self._observe(feedback(done.parsed.calls, done.results))

    def _observe(self, sentences: Sequence[tuple[str | None, str]]) -> None:
        """Put what was observed into the conversation, as one message of the user's side."""
        limit = limit_for(len(sentences))
        framed = [observation(text, tool_id, limit=limit) for tool_id, text in sentences]
        for tool_id, text in sentences:
            self.observations.append(cut_middle(text, limit))
            self.trace.say("observation", text, toolId=tool_id)
        self.turns.append(ChatMessage(role="user", content="\n".join(framed)))

    def _situation(self) -> Situation:
        return Situation(
            history=tuple(self.request.history),
            message=self.request.message,
            turns=tuple(self.turns),
            observations=tuple(self.observations),
            step=max(1, self.step),
        )

    async def _macro(self, name: str) -> str | None:
        try:
            return await self.fill_in(name, self.profile, self.call.child())
        except TavernError as error:
            self._warn(error.message)
            return None

    def _warn(self, text: str) -> None:
        """Say once per run that something was not as it should be."""
        if text not in self.warned:
            self.warned.add(text)
            self.trace.say("deliberating", f"Warning: {text}", warning=text)
