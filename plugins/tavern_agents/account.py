"""The account of the calls of an agent's run, wherever they are made: by its deliberation, by a tool that it called, by
its code. They are counted, limited, traced, stored before and after, and never made twice.

The calls that its answers ask for are entered by the loop, with the message that asks for them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tavern_agents import State
from tavern_agents.api.agents import AgentLimits, AgentRun
from tavern_agents.api.callaccounts import CallAccounts, CallEntry
from tavern_agents.begun_calls import accepted, lost, may_repeat, outcome, result_of
from tavern_agents.conversation import BROKEN_OFF, Conversation
from tavern_agents.feedback import MIN_OBSERVATION
from tavern_agents.replay.player import Player
from tavern_agents.rows import InnerCall, Kept
from tavern_agents.started_tasks import StartedTasks
from tavern_agents.store import AgentStore
from tavern_agents.tracing import Tracer, asks_model
from tavern_agents.watch import used_up
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import TavernError
from tavern_llm.api.llm import ChatMessage
from tavern_tools.api.toolcalls import TaskStatus, ToolCallRequest, ToolErrorType, ToolResult, ToolScope
from tavern_tools.api.tools import TOOL_MANAGER

_WAIT = 60.0
"""Seconds after which a question is looked at again; that it was answered is known at once."""

_MOST_TOLD = 1_000
"""Of how many calls between two steps of a run the trace tells."""


class Run(Protocol):
    """The run whose calls these are."""

    context: PluginContext
    store: AgentStore
    run: AgentRun
    limits: AgentLimits
    call: CallContext
    conversation: Conversation
    trace: Tracer
    player: Player | None

    async def waits_for(self, task_id: str, request: ToolCallRequest) -> None:
        """Note that a call waits for a person."""

    def waits_no_more(self, task_id: str) -> None:
        """Note that a call was decided about."""

    def count_calls(self, count: int) -> None:
        """Add calls to what the run used."""

    async def write(self, **added: Any) -> list[Kept]:
        """Store what is added."""


class CallAccount:
    """The account of one run at work. Once a limit is reached, which `over` says, no call is made any more."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tools = run.context.services.get(TOOL_MANAGER)
        self._own: set[str] = set()
        self._made: list[InnerCall] = []
        self._unclaimed: list[InnerCall] = []
        self._at_work: dict[int, InnerCall] = {}
        self._numbers = itertools.count(1)
        self._told = 0
        self._started = StartedTasks()
        self.over: str | None = None
        self.has_made = False
        """Whether a call was entered here, beside those of the loop."""

    def is_of(self, principal: Principal) -> bool:
        """Return whether this is the account of an agent."""
        return principal == self._run.call.principal

    @property
    def scope(self) -> ToolScope:
        """What the agent may call, and what a person has to approve."""
        return ToolScope(allowed=self._run.trace.allowed, approval=self._run.trace.consent)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Take calls meanwhile."""
        accounts = self._run.context.own(State).accounts
        accounts[self._run.run.id] = self
        self._started.read(self._run.conversation)
        try:
            yield
        finally:
            del accounts[self._run.run.id]

    @contextmanager
    def own(self, call: CallContext) -> Iterator[None]:
        """Leave the calls that are made with `call` to the loop meanwhile; others are made within those."""
        self._own.add(call.id)
        try:
            yield
        finally:
            self._own.discard(call.id)

    # --- attempts -----------------------------------------------------------------------------------------

    async def take_up(self) -> None:
        """Read which calls were made since the last answer, when the host ended."""
        answers = [kept.seq for kept in self._run.conversation.kept if kept.message.role == "assistant"]
        self._made = await self._run.store.inner_calls(self._run.run.id, answers[-1] if answers else 0)
        self._unclaimed = list(self._made)

    async def told(self) -> list[str]:
        """Begin a deliberation; return what the agent has to know of the calls of one before it that did not end. Each
        of them is made once only."""
        self._unclaimed = list(self._made)
        results = list[ToolResult]()
        for made in self._unclaimed:
            if (known := await self._known(made)) is not None:
                results.append(known)
        if not results:
            return []
        lines = [one.text for one in await self._tools.feedback([], results, limit=MIN_OBSERVATION)]
        return [f"{BROKEN_OFF}: these calls of yours were made already:\n" + "\n".join(lines)]

    def end_step(self, results: Iterable[ToolResult] = ()) -> list[InnerCall]:
        """End a step, in which calls of an answer had `results`; return the calls that were made in it besides."""
        self._started.add([*results, *(one.result for one in self._made if one.result is not None)])
        made, self._made, self._unclaimed, self._told = self._made, [], [], 0
        return made

    async def ended_tasks(self) -> list[ChatMessage]:
        """Return a text for the agent about the tasks that it started, and that have ended since."""
        return [] if self._run.player is not None else await self._started.ended(self._tools, self._run.call)

    # --- calls --------------------------------------------------------------------------------------------

    async def begin(self, request: ToolCallRequest, call: CallContext) -> CallEntry | None:
        """Enter a call; see `CallAccounts`."""
        if call.id in self._own or (call.via is not None and call.parent_id in self._own):
            return None
        self.has_made = True
        run, made, known = self._run, self._claimed(request), None
        if is_again := made is not None:
            known = await self._known(made)
        else:
            kept, limit = run.conversation.kept, self.over or used_up(run.limits, run.run.usage, 0, calls=1)
            made = InnerCall(kept[-1].seq if kept else 0, request)
            self._made.append(made)
            run.count_calls(limit is None)
            if run.player is not None:
                await run.player.inner(self._tools, made, is_within=bool(self._own))
            if limit is not None:
                self.over = limit
                made.result = lost(request, f"the call was not made: {limit}", ToolErrorType.RESOURCE)
            known = made.result
        if self._told < _MOST_TOLD:
            [arguments] = await self._tools.masked([request])
            about: dict[str, Any] = {"traceId": call.trace_id, "runId": call.run_id, "arguments": arguments}
            self._run.trace.say("tool_running", f"Calls {request.tool_id}", toolId=request.tool_id, **about)
        try:
            await self._keep(made)
        except TavernError:  # it is not made now; what was made before stays so
            if is_again:
                self._unclaimed.append(made)
            else:
                self._made.remove(made)
                run.count_calls(-(known is None))
            raise
        if known is not None:
            known = (await self._answered(made, known)).model_copy(update=request.about)
            await self._tell_result(request, known)
            return CallEntry(result=known)
        self._at_work[number := next(self._numbers)] = made
        return CallEntry(number=number, scope=self.scope)

    async def end(self, number: int, result: ToolResult) -> ToolResult:
        """Enter the result of a call, and return what came of it; see `CallAccounts`."""
        if (made := self._at_work.pop(number, None)) is None:
            return result
        if result.status == "awaiting_approval":
            made.task = result.task_id
            result = await self._answered(made, result)
        else:
            made.result = result
        if self._run.player is not None:
            self._run.player.came(made)
        await self._tell_result(made.request, result)
        await self._keep(made)
        return result

    async def _answered(self, made: InnerCall, result: ToolResult) -> ToolResult:
        """Return the result of a question that the deliberation asks itself, once somebody has answered; other results
        as they are. What is called by an answer has a time limit, and does not wait."""
        run = self._run
        is_played = run.player is not None
        if self._own or is_played or result.status != "awaiting_approval" or result.task_id is None:
            return result
        task = await self._tools.task(result.task_id, call=run.call)
        if task.approval is None or task.approval.question is None:
            return result
        await self._keep(made)
        try:
            await run.waits_for(task.id, made.request)
            while not task.status.is_final:
                task = await self._tools.task(task.id, wait=_WAIT, call=run.call)
        except asyncio.CancelledError:
            if not run.context.is_stopping():  # nobody waits for it any more; else the next host does
                await asyncio.shield(self._tools.cancel_task(task.id, call=run.call))
            raise
        finally:
            run.waits_no_more(task.id)
        made.result = result_of(made.request, task)
        return made.result

    async def _tell_result(self, request: ToolCallRequest, result: ToolResult) -> None:
        if self._told < _MOST_TOLD:
            self._told += 1
            (one,) = await self._tools.feedback([request], [result])
            self._run.trace.say("tool_output", one.text, toolId=request.tool_id, status=result.status)

    def _claimed(self, request: ToolCallRequest) -> InnerCall | None:
        """Return the same call of an attempt that did not end."""
        for made in self._unclaimed:
            if (made.request.tool_id, made.request.arguments) == (request.tool_id, request.arguments):
                self._unclaimed.remove(made)
                return made
        return None

    async def _known(self, made: InnerCall) -> ToolResult | None:
        """Return the result of a call that was begun; None for one that may be repeated."""
        run, request = self._run, made.request
        if made.result is None and made.task is None:
            known = (await run.store.run(run.run.id)).tasks
            made.task = await accepted(self._tools, request, known, run.call)
        if made.result is None and made.task is not None:
            task = await self._tools.task(made.task, call=run.call)
            if not task.status.is_final:
                status = "awaiting_approval" if task.status is TaskStatus.AWAITING_APPROVAL else "pending"
                return ToolResult.model_validate({**request.about, "status": status, "task_id": task.id})
            made.result = result_of(request, task)
        if made.result is None and not await may_repeat(self._tools, request.tool_id):
            made.result = await outcome(run.context, run.store, request, made.message, run.call)
        return made.result

    async def _keep(self, made: InnerCall) -> None:
        """Store a call as it stands. What may be repeated, within a call that is stored, is not."""
        if made.number or not self._own or not await may_repeat(self._tools, made.request.tool_id):
            await self._run.write(inner=[made])


class Accounts(CallAccounts):
    """The accounts of the runs that are at work in this host."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context

    async def begin(self, request: ToolCallRequest, *, call: CallContext | None = None) -> CallEntry | None:
        """Enter a call that is about to be made; see the interface."""
        account = _account_of(self._context, call)
        return None if account is None or call is None else await account.begin(request, call)

    async def end(self, number: int, result: ToolResult, *, call: CallContext | None = None) -> ToolResult:
        """Enter the result of a call."""
        account = _account_of(self._context, call)
        return result if account is None else await account.end(number, result)

    async def model_asked(self, iteration: int | None = None, *, call: CallContext | None = None) -> None:
        """Note that a node asks a model."""
        if call is not None:
            asks_model(self._context, call, iteration)


def _account_of(context: PluginContext, call: CallContext | None) -> CallAccount | None:
    """Return the account of the run that makes a call; what a plugin does in its own name is not in it."""
    found = None if call is None else context.own(State).accounts.get(call.agent_run_id or "")
    return found if found is not None and call is not None and found.is_of(call.principal) else None
