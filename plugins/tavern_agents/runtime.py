"""The `agentRuntime` service: profiles, and the runs of agents that are at work in this host.

What a run does is the loop's business; workflows are run by the engine, calls made by the tool manager.
"""

from __future__ import annotations

import asyncio
import contextlib

from pydantic import JsonValue

from tavern_agents import State
from tavern_agents.api.agents import (
    AgentProblem,
    AgentProfile,
    AgentReply,
    AgentRequest,
    AgentRun,
    AgentRunFilter,
    AgentRuntime,
    AgentStatus,
    AgentSummary,
    AgentTrace,
    ResultPart,
)
from tavern_agents.api.memory import AgentMemory, GoalChange, MemoryChange
from tavern_agents.api.recordings import AgentRecording, AgentReplay, ReplayOptions
from tavern_agents.deliberation import deliberation_of
from tavern_agents.histories import changed
from tavern_agents.inventory import tool_ids
from tavern_agents.long_results import read_part
from tavern_agents.loop import AgentLoop
from tavern_agents.memory import Memories, initial_memory
from tavern_agents.outcomes import reply_of, span_of
from tavern_agents.pictures import check_pictures
from tavern_agents.profile_checks import check_profiles
from tavern_agents.replay.player import Player
from tavern_agents.replay.recordings import play, recording_of
from tavern_agents.rows import KeptRun, RunEntry
from tavern_agents.run_writer import NOT_BEGUN, RunWriter
from tavern_agents.subagents import check_nesting
from tavern_agents.taking_up import loop_of
from tavern_agents.tracing import Tracer, agent_of
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, Principal, system_call
from tavern_host.contracts.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    PluginFailure,
    ServiceUnavailable,
    TavernError,
    describe,
)
from tavern_host.storage.retried_writes import Withdrawals
from tavern_llm.api.llm import ChatMessage
from tavern_llm.api.spans import span
from tavern_tools.api.tools import TOOL_MANAGER

_PATIENCE = 10.0
"""Seconds that stopping a run waits for its end, which is written later where the disk is full."""

_LOOK_EVERY = 0.3
"""Seconds between two looks at a run that another host works on."""


class Runtime(AgentRuntime):
    """The agents of the project. Profiles are read when they are asked for, so that edits count at once."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        state = context.own(State)
        self._store = state.store
        self._writer = RunWriter(context, self._store)
        self._memories = Memories(context, self._store, self.get)
        self._profiles = state.profiles
        self._reported: frozenset[str] = frozenset()
        self._loops: dict[str, AgentLoop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._claimed: set[str] = set()
        self._refused = Withdrawals(context.tasks.spawn, context.is_stopping)
        self._not_resumed: set[str] = set()
        state.runtime = self

    # --- profiles ---------------------------------------------------------------------------------

    async def list_agents(self) -> list[AgentSummary]:
        """Return the agents that can be used; what is wrong with the others is in the log."""
        profiles = await self._profiles.now()
        for problem in (one for one in profiles.problems if one not in self._reported):
            self._context.log.warning("%s", problem)
        self._reported = frozenset(profiles.problems)
        of = profiles.owners.get
        return [
            AgentSummary(id=p.id, name=p.name, description=p.description, tools=p.inventory, plugin=of(p.id, ""))
            for p in profiles.by_id.values()
        ]

    async def get(self, profile_id: str) -> AgentProfile:
        """Return a profile. Raises `NotFound`, or `Misconfigured` with every problem of a broken one."""
        return (await self._profiles.now()).get(profile_id)

    async def check(self, profile_id: str | None = None) -> list[AgentProblem]:
        """Return the problems of the profiles, or of one."""
        return await check_profiles(self._context, await self._profiles.now(), profile_id)

    # --- runs that begin --------------------------------------------------------------------------

    async def run(self, request: AgentRequest, *, call: CallContext | None = None) -> AgentReply:
        """Return how the agent's work ended. Raises what keeps it from beginning: `NotFound`, `Misconfigured`."""
        run = await self.start(request, call=call)
        task, loop = self._tasks.get(run.id), self._loops.get(run.id)
        try:
            if task is not None:
                await asyncio.shield(task)
        except asyncio.CancelledError:
            if not self._context.is_stopping():  # else the next host resumes it
                await self._stop(run.id)
            raise
        return await reply_of(self._store, run.id, None if loop is None else loop.reply)

    async def ask(self, profile_id: str, message: str, *, call: CallContext | None = None) -> str:
        """Return an agent's reply; see the interface."""
        reply = await self.run(AgentRequest(profile_id=profile_id, message=message), call=call)
        if reply.outcome != "reply":
            raise PluginFailure(f"the agent {profile_id!r} ended without a reply: {reply.error}", said=reply.text)
        return reply.text

    async def start(self, request: AgentRequest, *, call: CallContext | None = None) -> AgentRun:
        """Begin a run and return at once; return the one that was begun under the call's key, where it has one."""
        if call is not None and call.idempotency_key is not None:
            with contextlib.suppress(NotFound):
                return await self.get_run(call.id_of("agent"))
        return await self._start(request, call or system_call())

    async def _start(self, request: AgentRequest, call: CallContext, player: Player | None = None) -> AgentRun:
        profile = await self.get(request.profile_id)
        deliberation = await deliberation_of(self._context, profile, request.world_state)
        if player is not None and player.model is not None:
            deliberation = deliberation.with_model(player.model)
        initial_memory(profile)
        check_pictures(request.images)
        parent = self._loops.get(call.agent_run_id or "")
        check_nesting(profile, parent, self._loops)
        run_id = call.id_of("agent")
        run = AgentRun(
            id=run_id,
            profile_id=profile.id,
            conversation_id=request.conversation_id or run_id,
            status=AgentStatus.RUNNING,
            started_at=clock.now(),
            parent_run_id=None if parent is None else parent.run.id,
            trace_id=call.trace_id,
        )
        # Within a workflow's run the calls stay calls of that run: the engine does not let them wait for its end.
        acts = Principal(kind="agent", id=profile.id)
        agent = call.child(principal=acts, run_id=call.run_id or run_id, agent_run_id=run_id)
        entry = RunEntry(
            request=request, call=agent.model_copy(update={"deadline": None}), is_replay=player is not None
        )
        above = () if parent is None else parent.trace.path
        trace = Tracer(self._context, run_id, profile.id, run.conversation_id, allowed=profile.inventory, above=above)
        trace.say("started", f"{profile.name} begins", message=request.message, parentRunId=run.parent_run_id)
        self._claimed.add(run_id)
        try:
            begun = await self._store.begin(run, entry, trace.unwritten())
            loop = AgentLoop(
                context=self._context,
                store=self._store,
                profile=profile,
                deliberation=deliberation,
                limits=request.limits or profile.limits,
                run=begun.run,
                first=begun.first,
                call=agent,
                trace=trace,
                conversation=begun.conversation,
                repeated=begun.repeated,
                player=player,
            )
            self._begin(loop, None)
        except BaseException as error:
            self._refused.add(run_id, error, lambda: self._writer.give_up(run, NOT_BEGUN, AgentStatus.INTERRUPTED))
            if isinstance(error, ServiceUnavailable):
                raise ServiceUnavailable(f"the run {run_id} did not begin: {error.message}", run_id=run_id) from error
            raise
        finally:
            self._claimed.discard(run_id)
        changed(self._context, run.conversation_id, "added")
        return begun.run

    def _begin(self, loop: AgentLoop, kept: KeptRun | None) -> None:
        loop.may_run.set()
        run_id = loop.run.id
        self._loops[run_id] = loop
        self._tasks[run_id] = self._context.tasks.spawn(self._work(loop, kept), name=f"agent run {run_id}", finish=True)

    async def _work(self, loop: AgentLoop, kept: KeptRun | None) -> None:
        profile, about = loop.profile, {"conversation.id": loop.run.conversation_id, "tavern.run.id": loop.run.id}
        about |= {"provider.name": "tavern", "agent.id": profile.id, "agent.name": profile.name}
        try:
            with span("invoke_agent", profile.name[:200], loop.call, about) as tell:
                try:
                    await loop.work(kept)
                finally:
                    tell(span_of(loop.run))
        except Exception as error:  # it could not even be said how it ended
            self._context.log.error("the run %s was given up: %s", loop.run.id, describe(error), exc_info=error)
            if not self._context.is_stopping():
                await self._writer.give_up(loop.run, describe(error))
        finally:
            self._store.recent.put(loop.run.conversation_id, loop.conversation)
            self._loops.pop(loop.run.id, None)
            self._tasks.pop(loop.run.id, None)
            changed(self._context, loop.run.conversation_id, "added")

    # --- runs that resume -------------------------------------------------------------------------

    async def resume(self, run_id: str, *, call: CallContext | None = None) -> AgentRun:
        """Let a run resume; see the interface."""
        if (loop := self._loops.get(run_id)) is not None:
            loop.may_run.set()
            return loop.run
        found = await self._store.run(run_id)
        if found.run.status is AgentStatus.REPLY:
            raise Conflict(f"the run {run_id} has ended with a reply; give the agent a new message")
        return await self._resume(run_id)

    async def _resume(self, run_id: str) -> AgentRun:
        if (loop := self._loops.get(run_id)) is not None:  # by now
            return loop.run
        if run_id in self._claimed or run_id in self._refused:
            raise Conflict(f"the run {run_id} is being resumed")
        self._claimed.add(run_id)
        try:
            return await self._resumed(run_id)
        finally:
            self._claimed.discard(run_id)

    async def _resumed(self, run_id: str) -> AgentRun:
        if (kept := await self._store.claim(run_id)) is None:
            raise Conflict(f"another host works on the run {run_id}")
        try:
            if kept.entry.is_replay:
                raise Conflict(f"it played a recording ({run_id}); start that again")
            loop = await self._loop_of(kept)
        except TavernError as error:
            await self._writer.give_up(kept.run, error.message)
            if kept.entry.is_replay:
                await self._store.forget(kept.run.conversation_id)
            raise
        self._begin(loop, kept)
        if kept.run.status is AgentStatus.PAUSED:
            loop.may_run.clear()
        return loop.run

    async def _loop_of(self, kept: KeptRun) -> AgentLoop:
        """Return a claimed run as it stood. Raises `TavernError` where its profile or its workflow cannot be used."""
        return await loop_of(self._context, self._store, await self.get(kept.run.profile_id), kept)

    async def resume_abandoned(self) -> None:
        """Resume the runs whose host ended in the middle of them."""
        failed = set[str]()
        for run_id in await self._store.abandoned():
            try:
                if not any(run_id in known for known in (self._loops, self._claimed, self._refused)):  # by now
                    await self._resume(run_id)
            except TavernError as error:
                if run_id not in self._not_resumed:
                    self._context.log.warning("the run %s of an agent cannot be resumed: %s", run_id, error.message)
                failed.add(run_id)
        self._not_resumed = failed

    # --- runs at work -----------------------------------------------------------------------------

    async def runs(self, filter: AgentRunFilter | None = None) -> list[AgentRun]:
        """Return runs, newest first."""
        return [self._live(run) for run in await self._store.runs(filter or AgentRunFilter())]

    async def get_run(self, run_id: str) -> AgentRun:
        """Return a run as it stands. Raises `NotFound`."""
        return self._live((await self._store.run(run_id)).run)

    def _live(self, run: AgentRun) -> AgentRun:
        if (loop := self._loops.get(run.id)) is None:
            return run
        first = len(loop.trace.path) - 1
        asked = {task: one.trace.path[first:] for one in (loop, *self._below(run.id)) for task in one.waiting}
        status = AgentStatus.WAITING if asked and loop.run.status is AgentStatus.RUNNING else loop.run.status
        return loop.run.model_copy(update={"approvals": list(asked), "asked_by": asked, "status": status})

    def _below(self, run_id: str) -> list[AgentLoop]:
        """Return the runs of sub-agents, and theirs."""
        children = [loop for loop in self._loops.values() if loop.run.parent_run_id == run_id]
        return [*children, *(deeper for child in children for deeper in self._below(child.run.id))]

    async def wait(self, run_id: str) -> AgentReply:
        """Return how a run ended, when it has. Raises `NotFound`."""
        task, loop = self._tasks.get(run_id), self._loops.get(run_id)
        if task is not None:
            await asyncio.wait([task])
        else:
            await self._ended_elsewhere(run_id)
        return await reply_of(self._store, run_id, None if loop is None else loop.reply)

    async def _ended_elsewhere(self, run_id: str) -> None:
        while not (await self._store.run(run_id)).run.status.is_final:  # noqa: ASYNC110 another process writes it
            await asyncio.sleep(_LOOK_EVERY)

    async def trace(self, run_id: str, *, after: int = 0) -> list[AgentTrace]:
        """Return the kept steps of a run. Raises `NotFound`."""
        await self._store.run(run_id)
        return await self._store.steps(run_id, after)

    async def read_result(
        self,
        handle: str,
        *,
        offset: int = 0,
        length: int = 8000,
        find: str | None = None,
        call: CallContext | None = None,
    ) -> ResultPart:
        """Return a part of a long result, for the agent that the call belongs to; see the interface."""
        tracer = None if call is None else agent_of(self._context, call)
        if tracer is None:
            raise InvalidInput(f"no agent is at work here that could read on in {handle!r:.100}")
        tools = self._context.services.get(TOOL_MANAGER)
        return await read_part(self._store, tools, tracer.conversation_id, handle, offset, length, find)

    async def send(self, run_id: str, message: str, *, call: CallContext | None = None) -> AgentRun:
        """Say something to an agent at work. Raises `NotFound`, `Conflict`."""
        await self._store.say(run_id, ChatMessage(role="user", content=message))
        if (loop := self._loops.get(run_id)) is not None:
            loop.has_mail = True
        return await self.get_run(run_id)

    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> AgentRun:
        """Stop a run. Raises `NotFound`, `Conflict` where another host works on it."""
        while run_id in self._claimed:  # noqa: ASYNC110 it is being taken up: then there is something to stop
            await asyncio.sleep(_LOOK_EVERY)
        found = (await self._store.run(run_id)).run
        if run_id in self._tasks:
            await self._stop(run_id)
        elif not found.status.is_final and run_id not in self._claimed:
            self._claimed.add(run_id)
            try:
                await self._stop_unbegun(run_id)
            finally:
                self._claimed.discard(run_id)
            for below in await self._store.open_below(run_id):
                await self.interrupt(below, call=call)
        return await self.get_run(run_id)

    async def _stop_unbegun(self, run_id: str) -> None:
        """Stop a run that no host works on."""
        kept = await self._store.claim(run_id)
        if kept is None:
            raise Conflict(f"another host works on the run {run_id}; interrupt it there")
        try:
            await (await self._loop_of(kept)).stop()
        except TavernError:  # its profile is broken: nothing can be said about its calls
            await self._writer.give_up(kept.run, "Stopped on request", AgentStatus.INTERRUPTED)

    async def pause(self, run_id: str, *, call: CallContext | None = None) -> AgentRun:
        """Let a run stop before its next deliberation. Raises `NotFound`, `Conflict`."""
        run = await self.get_run(run_id)
        loop = self._loops.get(run_id)
        if loop is None:
            raise Conflict(f"the run {run_id} is not at work in this host (it stands at {run.status.value})")
        loop.may_run.clear()
        return run

    async def _stop(self, run_id: str) -> None:
        if (task := self._tasks.get(run_id)) is not None:
            self._loops[run_id].is_stopped = True
            task.cancel()
            await asyncio.wait([task], timeout=_PATIENCE)

    async def close(self) -> None:
        """Leave the runs at work to the next host."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- memory and recordings ---------------------------------------------------------------------

    async def memory(
        self, profile_id: str, conversation_id: str, *, branch: str | None = None, leaf: str | None = None
    ) -> AgentMemory:
        """Return the memory of an agent; see the interface."""
        return await self._memories.read(await self.get(profile_id), conversation_id, branch, leaf)

    async def change_memory(
        self,
        profile_id: str,
        conversation_id: str,
        change: MemoryChange,
        *,
        branch: str | None = None,
        revision: int | None = None,
        call: CallContext | None = None,
    ) -> AgentMemory:
        """Change what an agent remembers; see the interface."""
        by = str((call or system_call()).principal)
        return await self._memories.change(
            await self.get(profile_id), conversation_id, change, by, branch=branch, revision=revision
        )

    async def recall(self, *, call: CallContext | None = None) -> AgentMemory:
        """Return the memory of the agent that calls. Raises `InvalidInput` where the caller is no agent."""
        return await self._memories.recall(call or system_call())

    async def remember(
        self,
        *,
        state: dict[str, JsonValue] | None = None,
        goals: list[GoalChange] | None = None,
        note: str | None = None,
        call: CallContext | None = None,
    ) -> AgentMemory:
        """Change what the agent that calls remembers. Raises `InvalidInput`."""
        change = MemoryChange(state=state or {}, goals=goals or [], note=note)
        return await self._memories.remember(change, call or system_call())

    async def recording(self, run_id: str) -> AgentRecording:
        """Return a run as it can be played again; see the interface."""
        profile = await self.get((await self._store.run(run_id)).run.profile_id)
        tools = self._context.services.get(TOOL_MANAGER)
        return await recording_of(self._store, tools, run_id, await tool_ids(tools, profile.inventory))

    async def replay(
        self, recording: AgentRecording, options: ReplayOptions | None = None, *, call: CallContext | None = None
    ) -> AgentReplay:
        """Play a recording; see the interface."""

        async def run(request: AgentRequest, player: Player) -> AgentRun:
            begun = await self._start(request, call or system_call(), player)
            try:
                await self.wait(begun.id)
            except asyncio.CancelledError:
                await self._stop(begun.id)
                raise
            return await self.get_run(begun.id)

        return await play(self._store, recording, options or ReplayOptions(), run)
