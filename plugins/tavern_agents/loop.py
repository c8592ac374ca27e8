"""The loop of one run of one agent: deliberate, act, observe, until there is a reply, a limit, or an interrupt.

Each step is stored before the next one begins; a run that is resumed begins with what the stored conversation says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

from tavern_agents.account import CallAccount
from tavern_agents.api.agents import AgentLimits, AgentProfile, AgentReply, AgentRun, AgentStatus
from tavern_agents.call_execution import CallExecution, latest_calls, take_calls_back
from tavern_agents.compaction import ContextWindow
from tavern_agents.conversation import READER, Conversation
from tavern_agents.decision import Decision, read_decision
from tavern_agents.deliberation import Deliberation, Situation, failure_of
from tavern_agents.feedback import CONTINUE, EMPTY, circles_text, framed, last_text, not_understood_text, waits_text
from tavern_agents.inventory import consent, offered_tools, tool_ids, tools_text
from tavern_agents.outcomes import End, reply_from, traced_end
from tavern_agents.replay.player import Player
from tavern_agents.replay.recorder import Recorder
from tavern_agents.rows import Kept, KeptRun
from tavern_agents.run_writer import RunWriter
from tavern_agents.store import AgentStore
from tavern_agents.streamed_answers import speaking
from tavern_agents.tracing import Tracer
from tavern_agents.watch import CycleWatch, about, added, used_up
from tavern_engine.api.executions import EXECUTION_ENGINE
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Interrupted, PluginFailure, TavernError, describe
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import ChatMessage, LlmResponse
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult
from tavern_tools.api.tools import TOOL_MANAGER


@dataclass
class AgentLoop:
    """One run at work; `run` is how it stands."""

    context: PluginContext
    store: AgentStore
    profile: AgentProfile
    deliberation: Deliberation
    limits: AgentLimits
    run: AgentRun
    first: str
    call: CallContext
    trace: Tracer
    conversation: Conversation
    tool_ids: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    player: Player | None = None
    """What plays a recording, where the run is a replay."""
    recorder: Recorder = field(default_factory=Recorder)
    waiting: dict[str, ToolCallRequest] = field(default_factory=dict)
    may_run: asyncio.Event = field(default_factory=asyncio.Event)
    observations: list[str] = field(default_factory=list)
    results: list[ToolResult] | None = field(default_factory=list)  # None where not all are known here
    reply: AgentReply | None = None  # what it came to, once that is stored
    said: str = ""
    is_stopped: bool = False  # somebody asked for the end of the run
    has_mail: bool = False  # something may be in the inbox
    account: CallAccount = field(init=False)
    window: ContextWindow = field(init=False)
    writer: RunWriter = field(init=False)
    _warned: set[str] = field(default_factory=set)
    _nudge: str | None = None
    _notes: list[str] = field(default_factory=list)
    """What the model reads of its tools before the conversation."""
    _offered: tuple[tuple[Any, ...], str] | None = None
    """The tools as the deliberation takes them, and as text."""
    _worked: float = 0.0
    """When the run began, by the clock's `monotonic`, moved on by the time in which it waited."""
    _waits_since: float = 0.0

    def __post_init__(self) -> None:
        self.account, self.window = CallAccount(self), ContextWindow(self.context)
        self.writer = RunWriter(self.context, self.store, self.trace, self.recorder)

    async def work(self, kept: KeptRun | None = None) -> None:
        """Work until the run ends, and store how. `kept` is what is known of a run that is resumed."""
        self._worked = clock.monotonic()
        self.recorder.is_on = self.player is None and self.context.settings.get("recordRuns", True) is True
        self._cycles = CycleWatch(self.limits.repeats)
        try:
            experience = None if self.player is None else self.player.experience
            self.tool_ids, self._notes = await offered_tools(
                self.context, self.profile, self.conversation.task, self.trace, self.call, experience
            )
            self.trace.consent = await consent(self.context.services.get(TOOL_MANAGER), self.repeated)
            if self.conversation.has_long_results:
                self.offer_reader()
            with self.trace.following(self.call), self.account.open():
                while True:
                    try:
                        await self._steps(kept)
                    except End as end:
                        kept = None
                        await self._end(end.status, end.text, end.reason, end.messages)
                        if self.run.status.is_final:
                            return
        except asyncio.CancelledError:
            if self.is_stopped:
                await asyncio.shield(self.stop())
            else:  # the host stops: the next one resumes the run
                with suppress(TavernError):
                    await asyncio.shield(self.write())
            raise
        except TavernError as error:
            is_stop = error.info.code == Interrupted.code
            await self._end(AgentStatus.INTERRUPTED if is_stop else AgentStatus.ERROR, self.said, error.message)
        except Exception as error:
            self.context.log.error("the run %s failed: %s", self.run.id, describe(error), exc_info=error)
            await self._end(AgentStatus.ERROR, self.said, describe(error))

    # --- steps ------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End as interrupted; store what came of the latest calls for whoever continues the conversation."""
        try:
            await self.write()  # what is known of the calls
            await take_calls_back(self)
            known = self.tool_ids or self.profile.inventory
            self.tool_ids = await tool_ids(self.context.services.get(TOOL_MANAGER), known)
            self.conversation = await self.store.conversation(self.run.id)
            if (execution := (await latest_calls(self))[0]) is not None:
                await execution.cut_short()
                await self.write(messages=await execution.messages(self._observe_result))
        except Exception as error:
            self._warn(f"what came of the last calls could not be kept: {describe(error)}")
        await self._end(AgentStatus.INTERRUPTED, self.said, "Stopped on request")

    async def _steps(self, kept: KeptRun | None) -> NoReturn:
        if kept is not None:
            await self._take_up(kept)
        while True:
            await self._boundary()
            await self._step()

    async def _boundary(self) -> None:
        """Between two steps: wait while the run is paused, and hear what was said meanwhile."""
        if not self.may_run.is_set():
            self._stands(status=AgentStatus.PAUSED)
            self.trace.say("paused", "Paused")
            await self.write()
            await self.may_run.wait()
            self._stands(status=AgentStatus.RUNNING)
            self.trace.say("resumed", "Resumed")
        number, messages = await self.store.inbox(self.run.id) if self.has_mail else (0, [])
        self.has_mail = False
        messages = [*await self.account.ended_tasks(), *messages]
        if messages:
            self._cycles = CycleWatch(self.limits.repeats)
            await self.write(messages=messages, heard=number)

    async def _step(self) -> None:
        limit = self.account.over or used_up(self.limits, self.run.usage, clock.monotonic() - self._worked)
        if limit is not None:
            raise await self._last(limit)
        answer = await self._deliberate()
        decision = await read_decision(
            self.context.services.get(TOOL_MANAGER), answer.message(), self.tool_ids, answer.finish_reason
        )
        self.said = decision.text or self.said
        if decision.calls or decision.unusable:
            await self._act(decision, answer)
        else:
            await self._reply(decision, answer)

    async def _reply(self, decision: Decision, answer: LlmResponse) -> None:
        """End with what was said, unless it is nothing, or meant to be a call."""
        text = decision.text or answer.text.strip()
        nudged, self._nudge = self._nudge, None
        if not text:
            if nudged == EMPTY:
                raise End(AgentStatus.ERROR, self.said, "the model gave an empty answer twice")
            self._nudge = EMPTY
            self._warn("the model gave an empty answer; it is asked once more", again=True)
            return
        if decision.warnings and nudged is None:
            self._nudge = not_understood_text(decision.warnings)
            self._observe(self._nudge)
            note = ChatMessage(role="user", content=framed(self._nudge))
            await self.write(messages=[answer.message(), note])
            return
        if self.account.over is not None:
            raise End(AgentStatus.LIMIT, text, self.account.over, [answer.message()])
        if not self.has_mail:
            raise End(AgentStatus.REPLY, text, messages=[answer.message()])
        await self.write(messages=[answer.message()])  # what was said meanwhile is answered too

    async def _act(self, decision: Decision, answer: LlmResponse) -> None:
        """Carry out the calls of an answer, and observe."""
        self._nudge = None
        if decision.text:
            self.trace.say("thought", decision.text, **self._answered)
        for warning in decision.warnings:
            self._warn(warning)
        if (limit := used_up(self.limits, self.run.usage, 0, calls=len(decision.calls))) is not None:
            raise await self._last(limit)
        shown = await self.context.services.get(TOOL_MANAGER).masked(decision.calls)
        for place, (call, arguments) in enumerate(zip(decision.calls, shown, strict=True)):
            data: dict[str, Any] = {"toolId": call.tool_id, "index": call.index, "arguments": arguments}
            self.trace.say("tool_call", f"Calls {call.tool_id}", place=place, **data, **self._answered)
        execution = CallExecution(self, decision, 0, self.call.child())
        groups = await execution.groups()
        begun = [place for block in (groups or [[]])[0] for place in block]
        self.count_calls(len(begun))
        execution.message = (await self.write(messages=[answer.message()], begun=begun))[-1].seq
        await execution.carry_out(groups)
        await self._observe_all(execution, decision)

    async def _observe_all(self, execution: CallExecution, decision: Decision) -> None:
        messages = await execution.messages(self._observe_result)
        self.results = None if self.results is None else [*self.results, *execution.in_order]
        self.account.end_step(execution.in_order)
        circle = self._cycles.add(decision.calls, list(execution.results.values()))
        if circle is not None and not self._cycles.was_nudged:
            self._cycles.was_nudged = True
            self._warn(circle, again=True)
            messages.append(ChatMessage(role="user", content=framed(circles_text(circle))))
            circle = None
        await self.write(messages=messages, dropped=execution.message)
        if circle is not None:
            raise await self._last(circle)

    async def _take_up(self, kept: KeptRun) -> None:
        """Complete the step in which the host of the run ended: the calls of the last message."""
        self.has_mail, self.results = True, None
        self.trace.say("resumed", "Resumed where it was interrupted")
        await self.account.take_up()
        execution, decision = await latest_calls(self)
        if execution is not None:
            await execution.recover(kept)
            await self._observe_all(execution, decision)
        elif self.conversation.kept and (last := self.conversation.kept[-1].message).role == "assistant":
            if not kept.run.status.is_final:
                raise End(AgentStatus.REPLY, decision.text or last.content.strip())
            self._nudge = CONTINUE

    async def _last(self, limit: str) -> End:
        """Let the agent answer once more, without tools; return how the run ends."""
        self._nudge, self.account.over = last_text(limit), limit
        self._warn(limit, again=True)
        try:
            answer = await self._deliberate(last=True)
        except TavernError as error:
            self._warn(f"there is no last answer: {error.message}")
            return End(AgentStatus.LIMIT, self.said, limit)
        decision = await read_decision(self.context.services.get(TOOL_MANAGER), answer.message(), self.tool_ids)
        if text := decision.text or self.said:
            await self.write(messages=[ChatMessage(role="assistant", content=text)])
        return End(AgentStatus.LIMIT, text, limit)

    # --- deliberation -----------------------------------------------------------------------------

    async def _deliberate(self, *, last: bool = False) -> LlmResponse:
        usage = self.run.usage
        self._stands(usage=usage.model_copy(update={"steps": usage.steps + 1}))
        self.trace.begin_step()
        if await self.window.is_full(self.conversation):
            await self._compact("the conversation is longer than the model takes")
        try:
            return await self._run_deliberation(last=last)
        except PluginFailure as error:
            if not error.info.details.get("overflow") or not await self._compact("the model says that it is too long"):
                raise
            return await self._run_deliberation(last=last)

    async def _run_deliberation(self, *, last: bool) -> LlmResponse:
        situation, workflow = await self._situation(last=last)
        played = None if self.player is None else self.player.answer(situation)
        if played is not None and self.player is not None:
            await self.player.make_inner(self.context.services.get(TOOL_MANAGER), self.call.child())
        answer, run_id = (played, "") if played is not None else await self._think(situation, workflow)
        self.recorder.add(self.conversation, situation, answer, self.account.end_step())
        self._account(answer, run_id)
        return answer

    async def _think(self, situation: Situation, workflow: Workflow) -> tuple[LlmResponse, str]:
        """Return the agent's response, and the id of the run of its workflow."""
        is_recorded = self.context.settings.get("recordDeliberations", False) is True
        request = RunRequest.construct(
            workflow=workflow,
            inputs=self.deliberation.inputs(situation),
            metadata={"agent": self.profile.id, "agentRunId": self.run.id, "step": situation.step},
            use_cache=False,
            recover=False,
            keep=is_recorded,
            inline=not is_recorded,
        )
        async with speaking(self, self.call.child(timeout=self._seconds_left())) as call:
            run = await self.context.services.get(EXECUTION_ENGINE).run(request, call=call)
        if (failure := failure_of(run, self.profile.id)) is not None:
            partial = failure.info.details.get("partial_text")
            self.said = partial if isinstance(partial, str) and partial else self.said
            raise failure
        if (answer := self.deliberation.answer(run.outputs)).error:
            self.said = answer.text or self.said
            raise PluginFailure(f"the answer of the model broke off: {answer.error}")
        return answer, run.id

    async def _situation(self, *, last: bool) -> tuple[Situation, Workflow]:
        """Return the agent's situation, and its workflow with the macros filled in."""
        tools, latest = self.context.services.get(TOOL_MANAGER), list[str]()
        workflow, prompts = self.deliberation.workflow, self.deliberation.prompts
        if self.deliberation.has_macros:
            expanded = await tools.expand(prompts, tool_ids=[] if last else self.tool_ids, call=self.call)
            for warning in expanded.warnings:
                self._warn(warning)
            prompts, latest = cast("list[Any]", expanded.value), expanded.latest
            workflow = self.deliberation.with_prompts(prompts)
        if self._offered is None and self.deliberation.takes_tools:  # the same in every request: servers cache prefixes
            schemas, text = await tools.native_schemas(self.tool_ids), await tools_text(tools, self.tool_ids)
            self._offered = (tuple(schemas), text)
        offered = ((), "") if last or self._offered is None else self._offered
        told = await self.account.told()
        situation = Situation.of(
            self.conversation,
            self.first,
            self._nudge,
            before=[] if last else self._notes,
            latest=[*latest, *told] if self.player is None else self.player.latest(latest),
            observations=tuple(self.observations),
            tools=offered[0],
            tools_text=offered[1],
            step=self.run.usage.steps,
            prompts=prompts,
        )
        return situation, workflow

    def _account(self, answer: LlmResponse, run_id: str) -> None:
        """Add what an answer used, and remember what the next step needs to know of it."""
        self._count(answer)
        self.window.heard(answer)
        for notice in answer.notices:
            self._warn(notice)
        if answer.reasoning:
            self.trace.say("thought", answer.reasoning, isReasoning=True)
        self._answered = about(answer, run_id)

    def _count(self, answer: LlmResponse) -> None:
        """Add the tokens and the price of an answer."""
        usage = added(self.run.usage, answer, self.window.models.get(answer.model))
        if usage.cost is None and self.run.usage.cost is not None and self.limits.cost is not None:
            self._warn(f"the model {answer.model!r} has no price, so the limit of the cost is not kept")
        self._stands(usage=usage)

    async def _compact(self, why: str) -> bool:
        """Summarise what was said first; return whether the conversation became shorter."""
        try:
            conversation, answer = await self.window.compact(self.store, self.conversation, self.call)
            if answer is not None:
                self._count(answer)
        except TavernError as error:
            self._warn(f"the conversation could not be summarised: {error.message}", again=True)
            return False
        count, self.conversation = len(self.conversation.kept) - len(conversation.kept), conversation
        if count:
            self.results = None
            self.trace.say("compacted", f"Summarised {count} messages: {why}", messages=count)
        return count > 0

    def _seconds_left(self) -> float | None:
        seconds = self.limits.seconds
        return None if seconds is None else max(1.0, seconds - (clock.monotonic() - self._worked))

    # --- what is stored and said ------------------------------------------------------------------

    async def write(self, **added: Any) -> list[Kept]:
        """Store how the run stands, with what is `added` and the steps that were said since."""
        kept, has_mail = await self.writer.write(self.run, added)
        if has_mail:
            self.has_mail = True
            self._stands(status=AgentStatus.RUNNING, finished_at=None)
        self.conversation.extend(kept)
        return kept

    def count_calls(self, count: int) -> None:
        """Add calls to what the run used."""
        self._stands(usage=self.run.usage.model_copy(update={"calls": self.run.usage.calls + count}))

    def _stands(self, **changes: Any) -> None:
        self.run = self.run.model_copy(update=changes)

    def offer_reader(self) -> None:
        """Let the agent read on in long results from now on: it has the tool for it in all further requests."""
        if self.tool_ids and READER not in self.tool_ids:
            self.tool_ids.append(READER)
            self.trace.allowed.append(READER)
            self._offered = None

    async def waits_for(self, task_id: str, request: ToolCallRequest) -> None:
        """Note that a call waits for a person."""
        task = await self.context.services.get(TOOL_MANAGER).task(task_id, call=self.call)
        self.waiting[task_id] = request
        self._approvals()
        text, about = waits_text(task)
        self.trace.say("awaiting_approval", text, **about, path=list(self.trace.path))

    def waits_no_more(self, task_id: str) -> None:
        """Note that a call was decided about."""
        self.waiting.pop(task_id, None)
        self._approvals()

    def _approvals(self) -> None:
        if self.waiting and self.run.status is AgentStatus.RUNNING:
            self._waits_since = clock.monotonic()
        elif not self.waiting:
            self._worked += clock.monotonic() - self._waits_since  # waiting for a person is not working
        status = AgentStatus.WAITING if self.waiting else AgentStatus.RUNNING
        self._stands(status=status, approvals=list(self.waiting))

    def _observe_result(self, request: ToolCallRequest, text: str, result: ToolResult | None) -> None:
        data: dict[str, Any] = {"toolId": request.tool_id, "status": result.status if result else "skipped"}
        if result is not None and result.task_id is not None:
            data["taskId"] = result.task_id
        self._observe(text, **data)

    def _observe(self, text: str, **data: Any) -> None:
        self.observations.append(text)
        self.trace.say("observation", text, **data)

    def _warn(self, text: str, *, again: bool = False) -> None:
        """Say, by default once per run, that something was not as it should be."""
        if again or text not in self._warned:
            self._warned.add(text)
            self.trace.say("warning", text)

    async def _end(
        self, status: AgentStatus, text: str, reason: str | None = None, messages: Sequence[ChatMessage] = ()
    ) -> None:
        """Store how the run ended; it continues where something was said to it before a reply was stored."""
        used, (kind, said) = self.run.usage, traced_end(status, text, reason)
        self._stands(status=status, text=text, reason=reason, approvals=[], finished_at=clock.now())
        self.trace.say(kind, said, tokens=used.prompt_tokens + used.completion_tokens, **self._answered)
        await self.write(messages=messages)
        if self.run.status is AgentStatus.REPLY and self.results is not None and not self.account.has_made:
            self.reply = reply_from(self.run, self.conversation.added_by(self.run.id), self.results)

    _answered: dict[str, Any] = field(default_factory=dict)
