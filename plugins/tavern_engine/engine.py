"""The service `executionEngine`: accepts runs, lets a limited number of them go on at a time, keeps what
became of them. How one run is carried out is the business of `activity.py`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tavern_engine.acting import check_principal
from tavern_engine.cache.cache import DEFAULT_LIMIT as CACHE_LIMIT
from tavern_engine.cache.cache import OutputCache
from tavern_engine.cache.disk.recall import Recall
from tavern_engine.cache.disk.store import DiskCache
from tavern_engine.compile.bound import Bound
from tavern_engine.compile.planner import Planner
from tavern_engine.journal.keeper import Keeper, Kept
from tavern_engine.journal.keys import ProjectKey
from tavern_engine.registry import NodeRegistry
from tavern_engine.run.activity import Activity, Results, check_targets
from tavern_engine.run.execution import GRACE
from tavern_engine.run.feed import Feed
from tavern_engine.run.loopdiary import LoopState
from tavern_engine.run.record import RunRecord, remembered
from tavern_engine.run.scope import Scope
from tavern_engine.run.turns import Turn, Turns
from tavern_engine.run.wireform import error_form
from tavern_engine.run.yields import Message
from tavern_host import TOOL_MANAGER, WORKFLOW_MANAGER, CallContext, PluginContext
from tavern_host.contracts.calls import new_id, system_call
from tavern_host.contracts.errors import (
    Conflict,
    DeadlineExceeded,
    ErrorInfo,
    Interrupted,
    InvalidInput,
    NotFound,
    TavernError,
)
from tavern_host.contracts.executions import (
    ExecutionEngine,
    NodeState,
    Run,
    RunFilter,
    RunQueue,
    RunRequest,
    RunStatus,
    RunSummary,
)
from tavern_host.contracts.runs import RUN_STORE, RunEntry
from tavern_host.contracts.workflows import Workflow

KEPT = 500
"""How many finished runs are remembered."""

KEPT_NODES = 200_000
"""How many nodes the finished runs that are remembered may have altogether."""

DISK_CACHE_LIMIT = 1024 * 2**20
"""How many bytes the outputs on disk may take, unless the setting `cacheDiskMegabytes` says otherwise."""

DEFAULT_LIMIT = 4
"""How many runs go on at a time, unless the setting `maxConcurrentRuns` says otherwise."""

_POLL = 0.2
"""Seconds between two looks at a run that goes on in another process."""

_LOOK_EVERY, _PRUNE_EVERY = 10.0, 3600.0
"""Seconds between two looks for runs that are left over, and for old ones."""

_ATTEMPTS = 5
"""How often a run is begun that ends the host each time."""

DEFAULT_QUEUE = 1000
"""How many runs may wait, unless the setting `maxQueuedRuns` says otherwise."""


@dataclass(eq=False)
class _Active:
    """A run that is not finished. `turn` is None for a run within a run: it goes on in its parent's turn."""

    record: RunRecord
    activity: Activity
    call: CallContext
    turn: Turn | None
    interrupted: str | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    uses: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    task: asyncio.Task[None] | None = None
    result: Run | None = None

    def interrupt(self, why: str = "the run was interrupted") -> None:
        """Give up the place in the line, or stop what runs."""
        self.interrupted = self.interrupted or why
        if self.turn is not None and not self.turn.done():
            self.turn.set_result(False)
        self.activity.stop()


class Engine(ExecutionEngine):
    """Runs workflows in this process."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._planner = Planner(context, NodeRegistry.of(context))
        self.cache = OutputCache(self._cache_limit())
        key = ProjectKey(context.operator_dir)
        self.disk_cache = DiskCache(context.project.private / "cache", context.log, self._disk_cache_limit, key)
        self._turns = Turns(self._limit)
        self._processes = Turns(self._process_limit)
        self._accepting = 0
        self._resuming: set[str] = set()
        self._keeper = Keeper(context)
        self._endings: set[asyncio.Task[None]] = set()
        self._active: dict[str, _Active] = {}
        self._finished: dict[str, Run] = {}
        self._order: deque[str] = deque()
        context.state["engine"] = self

    async def submit(self, request: RunRequest, *, call: CallContext | None = None) -> str:
        """Check and accept a run; it goes on by itself."""
        return (await self._accept(request, call)).record.id

    async def run(self, request: RunRequest, *, call: CallContext | None = None) -> Run:
        """Submit a run and return it when it is finished; cancelling interrupts it and waits for its end."""
        active = await self._accept(request, call)
        try:
            await active.ended.wait()
        except asyncio.CancelledError:
            active.interrupt()
            if active.task is not None:
                await asyncio.wait([active.task], timeout=2 * GRACE)
            raise
        assert active.result is not None
        return active.result

    async def get(self, run_id: str) -> Run:
        """Return a run as it stands. Raises `NotFound`."""
        finished = self._finished.get(run_id)
        if finished is not None:
            return finished
        active = self._active.get(run_id)
        return active.record.snapshot() if active is not None else await self._kept_run(run_id)

    async def wait(self, run_id: str) -> Run:
        """Return a run when it is finished. Raises `NotFound`."""
        active = self._active.get(run_id)
        if active is not None:
            await active.ended.wait()
            assert active.result is not None
            return active.result
        finished = self._finished.get(run_id)
        while finished is None or not finished.status.is_final:  # another process works on it
            finished = await self._kept_run(run_id)
            if not finished.status.is_final:
                await asyncio.sleep(_POLL)
        return finished

    async def queue(self) -> RunQueue:
        """Return the runs that are running and waiting, in the order in which they came."""
        runs = [active.record.snapshot() for active in self._active.values()]
        return RunQueue(
            running=[run for run in runs if run.status is RunStatus.RUNNING],
            pending=[run for run in runs if run.status is RunStatus.QUEUED],
        )

    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Interrupt a run; False if it had finished. Raises `NotFound`."""
        active = self._active.get(run_id)
        if active is None:
            run = await self.get(run_id)
            if run.status.is_final:
                return False
            raise Conflict(f"the run {run_id} goes on in another process, or waits to be resumed; nothing runs here")
        if active.record.status.is_final:
            return False
        active.interrupt()
        return True

    async def history(self, filter: RunFilter | None = None) -> list[RunSummary]:
        """Return runs, those that go on among them, newest first."""
        if self._context.services.has(RUN_STORE):
            return await self._context.services.get(RUN_STORE).list_runs(filter or RunFilter())
        return remembered(self._finished.values(), [a.record for a in self._active.values()], filter or RunFilter())

    async def resume(self, run_id: str, *, call: CallContext | None = None) -> str:
        """Go on with a run that failed or was interrupted, from where it ended."""
        if run_id in self._active or run_id in self._resuming:
            raise Conflict(f"the run {run_id} goes on already")
        self._resuming.add(run_id)
        try:
            await self._resume(run_id, call)
        finally:
            self._resuming.discard(run_id)
        return run_id

    async def _resume(self, run_id: str, call: CallContext | None) -> None:
        before = await self._keeper.entry(run_id)
        if before.status is RunStatus.COMPLETE:
            raise Conflict(f"the run {run_id} is complete; run it again with `rerun`")
        if before.not_resumable is not None:
            raise Conflict(f"the run {run_id} cannot be resumed: {before.not_resumable}; run it again with `rerun`")
        if call is not None:
            check_principal(before.request.actions, call.principal)
        entry = await self._keeper.claim(run_id)
        if entry is None:
            raise Conflict(f"the run {run_id} goes on in another process")
        try:
            await self._go_on(await self._keeper.kept(entry), call)
        except BaseException:
            await self._keeper.give_back(entry, entry.status if entry.status.is_final else RunStatus.INTERRUPTED)
            raise

    async def rerun(self, run_id: str, *, call: CallContext | None = None) -> str:
        """Run a run's workflow, as it was then, once more with the same inputs."""
        kept = await self._keeper.kept(await self._keeper.entry(run_id), results=False)
        request = kept.entry.request.model_copy(update={"workflow": kept.workflow})
        return await self.submit(request, call=call)

    async def close(self) -> None:
        """Interrupt all runs and wait until they have ended."""
        tasks: list[asyncio.Task[None]] = []
        for active in self._active.values():
            active.interrupt("the host stopped the run")
            if active.task is not None:
                tasks.append(active.task)
        if tasks:
            await asyncio.wait(tasks, timeout=2 * GRACE)
        if self._endings:
            await asyncio.wait(self._endings, timeout=2 * GRACE)
        await self._keeper.close()
        await self.disk_cache.close()

    # --- runs that are left over ------------------------------------------------------------------

    def look_after_runs(self) -> None:
        """Take up runs that a host left when it was killed, and forget old ones, from now on again and again.

        For when all plugins are there: a run that needs one of them could not go on without it.
        """
        self._context.tasks.spawn(self._look_after_runs(), name="look after runs")

    async def _look_after_runs(self) -> None:
        next_pruning = 0.0
        while True:
            try:
                await self._take_up()
                if (now := asyncio.get_running_loop().time()) >= next_pruning:
                    next_pruning = now + _PRUNE_EVERY
                    days = self._number("keepRunsDays", 30, least=0)
                    size = self._number("keepRunsMegabytes", 1024, least=0)
                    await self._keeper.prune(max_age=days * 86400.0, max_bytes=size * 2**20)
            except TavernError as error:
                if error.info.code != DeadlineExceeded.code:  # that is a store that is busy, or a host that stops
                    self._context.log.error("the run store cannot be looked after: %s", error.message)
            await asyncio.sleep(_LOOK_EVERY)

    async def _take_up(self) -> None:
        """Go on with the runs that nobody works on, or say that they were interrupted."""
        while (entry := await self._keeper.claim()) is not None:
            if entry.id in self._active:
                continue
            why = self._why_not(entry)
            if why is None:
                try:
                    await self._go_on(await self._keeper.kept(entry), entry.call)
                    continue
                except Exception as error:  # a plugin that it needs may be gone
                    info = error_form(error)
                    why = f"the host ended in the middle of it, and it cannot go on: {info.message}"
            self._context.log.warning("run %s: %s", entry.id, why)
            await self._keeper.give_back(entry, RunStatus.INTERRUPTED, why)

    def _why_not(self, entry: RunEntry) -> str | None:
        """Return why a run that is left over is not taken up."""
        ended = "the host ended in the middle of it"
        if entry.not_resumable is not None:
            return f"{ended}, and it cannot go on: {entry.not_resumable}"
        if entry.attempt >= _ATTEMPTS:
            return f"{ended} {entry.attempt} times; it is not tried again"
        if self._context.settings.get("onRestart", "resume") == "interrupt":
            return ended
        return None

    async def _go_on(self, kept: Kept, call: CallContext | None) -> None:
        """Begin a run that was claimed from where it ended."""
        entry = kept.entry
        request = entry.request
        name = entry.workflow_name or entry.workflow_id or "the workflow"
        bound = await self._planner.bind(kept.workflow, kept.groups, request.inputs, name)
        call = (call or entry.call).model_copy(update={"deadline": call.deadline if call is not None else None})
        record = RunRecord(
            entry.id,
            request,
            kept.workflow,
            kept.groups,
            bound.plan,
            call,
            self._publish,
            submitted_at=entry.submitted_at,
            attempt=entry.attempt + 1,
        )
        self._finished.pop(entry.id, None)
        self._keeper.taken_over(record)
        known = _signatures(bound)
        finished = {
            node_id: outputs
            for node_id, (signature, outputs) in kept.results.items()
            if signature is None or signature == known.get(node_id)
        }
        loops = {
            node_id: state
            for node_id, (signature, state) in kept.loops.items()
            if signature is None or signature == known.get(node_id)
        }
        self._begin(record, bound, finished, loops)

    # --- accepting --------------------------------------------------------------------------------

    async def _accept(self, request: RunRequest, call: CallContext | None) -> _Active:
        call = call or system_call(self._context.project.id)
        if call.remaining() == 0:
            raise DeadlineExceeded("the run was not begun: its deadline is over")
        hooks = self._context.hooks
        if hooks.implemented("tavern_before_execute"):
            request = await hooks.filter("tavern_before_execute", request, call=call)
        check_principal(request.actions, call.principal)
        waiting = self._turns.waiting + self._accepting
        if call.run_id not in self._active and waiting >= self._queue_limit() + self._turns.free:
            raise Conflict(f"the run was not accepted: {self._turns.waiting} runs wait already; try again later")
        self._accepting += 1
        try:
            workflow, name = await self._workflow(request)
            groups = await self._planner.groups(workflow)
            bound = await self._planner.bind(workflow, groups, request.inputs, name)
            record = RunRecord(new_id("run"), request, workflow, groups, bound.plan, call, self._publish)
            check_targets(bound, request.targets)
            with contextlib.ExitStack() as uses:  # no code of the plan goes while the run is written down
                for contribution in bound.plan.contributions:
                    uses.enter_context(contribution.in_use())
                await self._keeper.accept(record)
                return self._begin(record, bound)
        finally:
            self._accepting -= 1

    def _begin(
        self,
        record: RunRecord,
        bound: Bound,
        finished: Results | None = None,
        loops: Mapping[str, LoopState] | None = None,
    ) -> _Active:
        """Let a run that was accepted go on by itself."""
        request, call = record.request, record.call
        cache = self.cache if request.use_cache and self._cache_limit() else None
        self.cache.on_kept = self.disk_cache.keep if self.keeps_on_disk else None
        recall = Recall(self.disk_cache, cache) if cache is not None and self.keeps_on_disk else None
        feed = Feed(record.id, bound.plan, record.account, self._publish, cache=cache)
        within = call.child(run_id=record.id)
        scope = Scope(record.id, within, feed, self._context.log, loops=loops or {}, processes=self._processes)
        activity = Activity(bound, scope, cache=cache, recall=recall, finished=finished, targets=request.targets)
        record.streams = activity.streams
        # A run that waited for a turn while its parent holds one could wait forever.
        turn = None if call.run_id in self._active else self._turns.enter(request.priority)
        active = _Active(record, activity, call, turn)
        feed.journal = self._keeper.begin(record, active.interrupt)
        self._active[record.id] = active
        for contribution in bound.plan.contributions:  # their code stays while the run goes on
            why = f"the run was interrupted: {contribution.plugin} was unloaded before it ended"
            active.uses.enter_context(contribution.in_use(functools.partial(active.interrupt, why)))
        active.task = self._context.tasks.spawn(self._drive(active), name=record.id, finish=True)
        active.task.add_done_callback(lambda _: self._never_begun(active))
        return active

    async def _workflow(self, request: RunRequest) -> tuple[Workflow, str]:
        """Return the workflow that is asked for, and what errors call it."""
        if request.workflow is not None:
            return request.workflow, request.workflow.name or request.workflow_id or "the workflow"
        if request.workflow_id is None:
            raise InvalidInput("a run needs a workflow: give the id of a stored one, or a document")
        stored = await self._context.services.get(WORKFLOW_MANAGER).get(request.workflow_id)
        return stored.workflow, request.workflow_id

    # --- carrying out -----------------------------------------------------------------------------

    async def _drive(self, active: _Active) -> None:
        """Take one run from its place in the line to its end."""
        record, error = active.record, None
        try:
            async with asyncio.timeout(active.call.remaining()):
                if active.turn is not None and not active.turn.done():
                    record.queued()
                    self._tell_queue()
                if active.turn is None or await active.turn:
                    record.started()
                    self._tell_queue()
                    await self._keeper.started(record)
                    await active.activity.run()
        except TimeoutError:
            error = DeadlineExceeded("the run did not end before its deadline").info
        except asyncio.CancelledError:  # the host stops, or takes the plugin away: no time for hooks
            self._end_soon(active, self._result(active, Interrupted("the host stopped the run").info))
            raise
        except Exception as failure:
            self._context.log.exception("run %s failed in the engine", record.id)
            error = error_form(failure)
        result = self._result(active, error)
        try:
            result = await self._after(active, await self._acted(active, result))
            await self._keeper.end(record, result)
        except asyncio.CancelledError:
            self._end_soon(active, result)
            raise
        # What cannot be kept is known when all of it is written.
        self._end(active, result.model_copy(update={"not_resumable": record.not_resumable}))

    def _never_begun(self, active: _Active) -> None:
        """Settle a run whose task was cancelled before its first step, as happens when the host stops."""
        if not active.ended.is_set():
            self._end_soon(active, self._result(active, Interrupted("the host stopped the run").info))

    def _end_soon(self, active: _Active, run: Run) -> None:
        """Settle a run at once, and keep how it ended in a task of its own, which closing waits for."""
        if active.ended.is_set():
            return
        task = asyncio.get_running_loop().create_task(self._keeper.end(active.record, run), name=f"end of {run.id}")
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        self._end(active, run)

    def _result(self, active: _Active, error: ErrorInfo | None) -> Run:
        """Return how the run ended; `error` is what stopped it from outside of its nodes."""
        record = active.record
        record.account.close()
        record.error = active.activity.error
        if error is not None:
            record.error = error
            status = RunStatus.INTERRUPTED if error.code == Interrupted.code else RunStatus.ERROR
        elif active.interrupted is not None:
            status = RunStatus.INTERRUPTED
            record.error = Interrupted(active.interrupted).info
        else:
            status = RunStatus.ERROR if record.error is not None else RunStatus.COMPLETE
        return record.snapshot(status, active.activity.outputs())

    async def _after(self, active: _Active, run: Run) -> Run:
        """Return the run as the hooks leave it: their outputs count, a refusal withholds all of them."""
        hooks = self._context.hooks
        if not hooks.implemented("tavern_after_execute"):
            return run
        try:
            changed = await hooks.filter("tavern_after_execute", run, call=active.call)
        except TavernError as refused:
            return _withheld(run, refused.info)
        return run.model_copy(update={"outputs": changed.outputs})

    async def _acted(self, active: _Active, run: Run) -> Run:
        """Return a run that was submitted with `actions` with what came of the calls in its outputs."""
        services = self._context.services
        actions = run.actions
        if actions is None or run.status is not RunStatus.COMPLETE or not services.has(TOOL_MANAGER):
            return run
        call = active.call.child(run_id=run.id, principal=actions.principal)
        try:
            tools = services.get(TOOL_MANAGER)
            outputs = await tools.call_outputs(run.outputs, protocols=actions.protocols, call=call)
        except TavernError as error:
            self._context.log.warning("run %s: the calls in its outputs were not made: %s", run.id, error.message)
            return run
        return run.model_copy(update={"outputs": outputs})

    def _end(self, active: _Active, run: Run) -> None:
        """Settle the run for everybody who waits for it, and let the next one begin."""
        del self._active[run.id]
        self._remember(run)
        if active.turn is not None:
            self._turns.leave(active.turn)
        active.uses.close()
        active.result = run
        active.record.announce_end(run)
        active.ended.set()
        self._tell_queue()

    def _remember(self, run: Run) -> None:
        self._finished[run.id] = run
        self._order.append(run.id)
        nodes = sum(len(kept.nodes) for kept in self._finished.values())
        while len(self._order) > KEPT or (nodes > KEPT_NODES and len(self._order) > 1):
            nodes -= len(self._finished.pop(self._order.popleft()).nodes)

    # --- small parts ------------------------------------------------------------------------------

    @property
    def keeps_on_disk(self) -> bool:
        """Whether outputs are kept on disk, and looked for there."""
        return self._context.settings.get("cacheOnDisk", False) is True

    async def _kept_run(self, run_id: str) -> Run:
        """Return a run of the store. Raises `NotFound`."""
        try:
            return await self._keeper.run(run_id)
        except NotFound:
            raise NotFound(f"there is no run {run_id!r}") from None

    def _limit(self) -> int:
        return self._number("maxConcurrentRuns", DEFAULT_LIMIT, least=1)

    def _process_limit(self) -> int:
        return self._number("maxIsolatedProcesses", 0, least=0) or os.cpu_count() or 1

    def _queue_limit(self) -> int:
        return self._number("maxQueuedRuns", DEFAULT_QUEUE, least=1)

    def _cache_limit(self) -> int:
        return self._number("cacheMegabytes", CACHE_LIMIT // 2**20, least=0) * 2**20

    def _disk_cache_limit(self) -> int:
        return self._number("cacheDiskMegabytes", DISK_CACHE_LIMIT // 2**20, least=1) * 2**20

    def _number(self, key: str, default: int, *, least: int) -> int:
        value = self._context.settings.get(key, default)
        return int(value) if isinstance(value, int | float) and value >= least else default

    def _publish(self, messages: Iterable[Message]) -> None:
        self._context.events.publish_all(messages)

    def _tell_queue(self) -> None:
        """Tell clients what runs and what waits."""
        records = [active.record for active in self._active.values()]
        update = {
            "runningExecutions": [r.summary() for r in records if r.status is RunStatus.RUNNING],
            "pendingExecutions": [r.summary() for r in records if r.status is RunStatus.QUEUED],
        }
        self._context.events.publish("SYSTEM_QUEUE_UPDATE", update)


def _signatures(bound: Bound) -> dict[str, bytes | None]:
    """Return by id what stands for what a node gives: its signature, else for what code it comes from."""
    lineages = bound.plan.lineages
    nodes = zip(bound.plan.level.nodes, bound.signatures, strict=True)
    return {node.id: signature or lineages.get(node.number) for node, signature in nodes}


def _withheld(run: Run, reason: ErrorInfo) -> Run:
    """Return a run without anything of its result: what it did stands, but nobody is told."""
    nodes = {
        node_id: NodeState(status=state.status, error=state.error, started=state.started, finished=state.finished)
        for node_id, state in run.nodes.items()
    }
    return run.model_copy(update={"status": RunStatus.ERROR, "outputs": {}, "nodes": nodes, "error": reason})
