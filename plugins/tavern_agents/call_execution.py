"""Carries out the calls of one answer: chains in order, independent ones at once, waiting for people where need be.

What was begun and what came of it is stored before anything follows from it, so that no call is made twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from tavern_agents.account import CallAccount
from tavern_agents.api.agents import AgentProfile, AgentRun
from tavern_agents.begun_calls import accepted, lost, may_repeat, outcome, result_of
from tavern_agents.conversation import MAY_HAVE_RUN, NEVER_RAN, Conversation, result_messages
from tavern_agents.decision import Decision, read_decision
from tavern_agents.feedback import limit_for
from tavern_agents.long_results import how_to_read, shortened, whole_text
from tavern_agents.replay.player import Player
from tavern_agents.rows import Kept, KeptRun
from tavern_agents.run_writer import RunWriter
from tavern_agents.store import AgentStore
from tavern_agents.tracing import Tracer
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_llm.api.llm import ChatMessage
from tavern_tools.api.observations import cut_middle, observation
from tavern_tools.api.toolcalls import TaskFilter, TaskStatus, ToolCallRequest, ToolErrorType, ToolFeedback, ToolResult
from tavern_tools.api.tools import TOOL_MANAGER, ToolManager

_WAIT = 60.0
"""Seconds after which the decision about a call is asked for again; it is known at once when it is made."""


class Worker(Protocol):
    """The run of an agent for which calls are made."""

    context: PluginContext
    store: AgentStore
    run: AgentRun
    call: CallContext
    conversation: Conversation
    profile: AgentProfile
    tool_ids: list[str]
    trace: Tracer
    is_stopped: bool
    player: Player | None
    account: CallAccount
    writer: RunWriter

    def count_calls(self, count: int) -> None:
        """Add calls to what the run used."""

    async def write(self, **added: Any) -> list[Kept]:
        """Store what is added."""

    def offer_reader(self) -> None:
        """Let the agent read on in long results from now on."""

    async def waits_for(self, task_id: str, request: ToolCallRequest) -> None:
        """Note that a call waits for a person."""

    def waits_no_more(self, task_id: str) -> None:
        """Note that a call was decided about."""


class CallExecution:
    """The calls of the message `message` (its number in the store), for one agent."""

    def __init__(self, loop: Worker, decision: Decision, message: int, call: CallContext) -> None:
        self._loop = loop
        self._decision = decision
        self.message = message
        self._call = call
        self._tools: ToolManager = loop.context.services.get(TOOL_MANAGER)
        self._scope = loop.account.scope.model_copy(update={"streams": "system:stream_read" in loop.tool_ids})
        self.results: dict[int, ToolResult] = {}
        self._open = 0
        """How many chains have not ended, the last of which is stored with the messages about all."""

    @property
    def in_order(self) -> list[ToolResult]:
        """The results so far, in the order of the calls."""
        return [self.results[place] for place in sorted(self.results)]

    async def groups(self) -> list[list[list[int]]]:
        """Return the chains in the order in which they are carried out; those of one group at once."""
        if len(self._decision.blocks) == 1:
            return [self._decision.blocks]
        found: list[list[list[int]]] = []
        joined = False
        for block in self._decision.blocks:
            independent = len(block) == 1 and await self._is_independent(self._decision.calls[block[0]].tool_id)
            if independent and joined:
                found[-1].append(block)
            else:
                found.append([block])
            joined = independent
        return found

    async def _is_independent(self, tool_id: str) -> bool:
        if tool_id.startswith("agent:"):
            return True
        try:
            return (await self._tools.get(tool_id)).read_only
        except TavernError:
            return False

    async def carry_out(self, groups: list[list[list[int]]]) -> None:
        """Make the calls. Those of the first group are stored as begun already."""
        self._open = sum(map(len, groups))
        with self._loop.account.own(self._call):
            for number, group in enumerate(groups):
                if number:
                    begun = [place for block in group for place in block]
                    self._loop.count_calls(len(begun))
                    await self._keep(begun=begun)
                async with asyncio.TaskGroup() as together:
                    for block in group:
                        together.create_task(self._chain(block))

    async def cut_short(self) -> None:
        """Note what came of calls in the middle of which the run was stopped; make none, and wait for none."""
        kept = await self._loop.store.run(self._loop.run.id)
        for place, request in enumerate(self._decision.calls):
            task, result = kept.calls.get(place, (None, None))
            if result is None and task is None and self._is_behind(place, kept):
                continue
            if result is None and place in kept.calls:
                task = task or await accepted(self._tools, request, kept.tasks, self._call)
                result = await self._taken_back(request, task)
            never = place not in kept.calls
            kind = ToolErrorType.INTERRUPTED if never else ToolErrorType.UNKNOWN_OUTCOME
            self.results[place] = result or lost(request, NEVER_RAN if never else MAY_HAVE_RUN, kind)
        await self._keep(results=self.results)

    async def _taken_back(self, request: ToolCallRequest, task_id: str | None) -> ToolResult | None:
        """Cancel the task of a call where it waits for a person; return what came of it, if that is known."""
        if task_id is None:
            return None
        task = await self._tools.task(task_id, call=self._call)
        if task.status is TaskStatus.AWAITING_APPROVAL:
            task = await self._tools.cancel_task(task_id, call=self._call)
        return result_of(request, task) if task.status.is_final else None

    def _is_behind(self, place: int, kept: KeptRun) -> bool:
        """Whether a step before a call, in its chain, had to wait: then the call was not made."""
        calls, block = self._decision.calls, next(block for block in self._decision.blocks if place in block)
        waited = [before for before in block if before < place and kept.calls.get(before, (None,))[0] is not None]
        return any(calls[before].on_error == "stop" for before in waited)

    async def recover(self, kept: KeptRun) -> None:
        """Find the results of calls in the middle of which a host ended; repeat only those that may be repeated."""
        calls = kept.calls
        for place, request in enumerate(self._decision.calls):
            task, result = calls.get(place, (None, None))
            if result is not None:
                self.results[place] = result
            elif task is None and self._is_behind(place, kept):
                continue
            elif task is not None or (task := await accepted(self._tools, request, kept.tasks, self._call)) is not None:
                await self._wait_for(place, task)
            elif place not in calls:
                self.results[place] = lost(request, NEVER_RAN, ToolErrorType.INTERRUPTED)
            elif await may_repeat(self._tools, request.tool_id):
                with self._loop.account.own(self._call):
                    await self._chain([place])
            else:
                loop = self._loop
                self.results[place] = await outcome(loop.context, loop.store, request, self.message, self._call)
        await self._keep(results=self.results)

    async def _chain(self, block: list[int]) -> None:
        requests = [self._decision.calls[place] for place in block]
        for place, request in zip(block, requests, strict=True):
            self._loop.trace.say(
                "tool_running",
                f"Calls {request.tool_id}",
                toolId=request.tool_id,
                place=place,
                traceId=self._call.trace_id,
            )
        player = self._loop.player
        called = self._tools.call_all if player is None else partial(player.call_all, self._tools)
        results = await called(requests, scope=self._scope, call=self._call)
        for place, result in zip(block, results, strict=False):
            self.results[place] = result
        found = {(self.message, place): self.results[place] for place in block if place in self.results}
        if self._open == 1 and all(result.status != "awaiting_approval" for result in found.values()):
            self._loop.writer.unstored |= found
            return
        await self._keep(results={place: result for (_, place), result in found.items()})
        for place, result in zip(block, results, strict=False):
            if result.status == "awaiting_approval" and result.task_id is not None:
                await self._wait_for(place, result.task_id)
        self._open -= 1

    async def _wait_for(self, place: int, task_id: str) -> None:
        """Wait until a call was decided about and, if it was approved, made."""
        request = self._decision.calls[place]
        try:
            await self._loop.waits_for(task_id, request)
            await self._keep(tasks={place: task_id})
            while True:
                task = await self._tools.task(task_id, wait=_WAIT, call=self._call)
                if task.status.is_final:
                    break
        except asyncio.CancelledError:
            if self._loop.is_stopped:  # nobody waits for the call any more
                await asyncio.shield(self._tools.cancel_task(task_id, call=self._call))
            raise
        finally:
            self._loop.waits_no_more(task_id)
        self.results[place] = result_of(request, task)
        await self._keep(results={place: self.results[place]})

    async def _keep(
        self,
        *,
        begun: Iterable[int] = (),
        tasks: dict[int, str] | None = None,
        results: dict[int, ToolResult] | None = None,
    ) -> None:
        await self._loop.write(
            begun_later=[(self.message, place) for place in begun],
            tasks={(self.message, place): task for place, task in (tasks or {}).items()},
            # one that waits has no result yet: what comes of it is asked of the task
            results={(self.message, p): r for p, r in (results or {}).items() if r.status != "awaiting_approval"},
        )

    async def messages(self, say: Callable[[ToolCallRequest, str, ToolResult | None], None]) -> list[ChatMessage]:
        """Return the messages with which the model reads the results of its calls. `say` gets the text about each.

        What of the results is not stored yet is stored first where the messages take a while.
        """
        decision = self._decision
        limit = limit_for(len(decision.calls))
        answers = await self._tools.feedback(decision.calls, self.in_order, limit=limit)
        for place, (request, one) in enumerate(zip(decision.calls, answers, strict=False)):
            result = self.results.get(place)
            if result is not None and len(one.text) > limit:
                if self._loop.writer.unstored:
                    await self._loop.write()
                answers[place] = one = await self._shortened(place, request, result, one, limit)
            say(request, one.text, result)
        twins = {call_id: answers[place].text for call_id, place in decision.twins.items()}
        return result_messages(decision.calls, answers, twins | decision.unusable)

    async def _shortened(
        self, place: int, request: ToolCallRequest, result: ToolResult, shown: ToolFeedback, limit: int
    ) -> ToolFeedback:
        """Return the feedback on a result that is too long: a summary, or its ends, and how to read it whole."""
        whole = await whole_text(self._tools, result)
        loop = self._loop
        text = await shortened(loop.context, loop.profile, loop.trace, self._call, request.tool_id, whole)
        text = shown.text if text is None else cut_middle(text, limit)
        self._loop.offer_reader()
        text = f"{text}\n{how_to_read(self.message, place, len(whole))}"
        framed = text if request.protocol == "native" else observation(text, request.tool_id)
        return ToolFeedback(tool_id=request.tool_id, text=text, framed=framed)


async def latest_calls(loop: Worker) -> tuple[CallExecution | None, Decision]:
    """Return the calls of the last message, if it asks for any, and what it asks for."""
    last = loop.conversation.kept[-1] if loop.conversation.kept else None
    if last is None or last.message.role != "assistant":
        return None, Decision()
    decision = await read_decision(loop.context.services.get(TOOL_MANAGER), last.message, loop.tool_ids)
    asks = decision.calls or decision.unusable
    return CallExecution(loop, decision, last.seq, loop.call.child()) if asks else None, decision


async def take_calls_back(loop: Worker) -> None:
    """Cancel the calls that wait for a person's decision, those too of which the run was just to hear."""
    tools = loop.context.services.get(TOOL_MANAGER)
    asked = TaskFilter(principal=str(loop.call.principal), statuses=[TaskStatus.AWAITING_APPROVAL])
    for task in await tools.tasks(asked, call=loop.call):
        if task.agent_run_id == loop.run.id:
            await tools.cancel_task(task.id, call=loop.call)
