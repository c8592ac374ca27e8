"""The service `executionEngine`: accepts runs, executes a limited number of them at a time, and remembers their
results. One run is executed by `run_execution.py`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Coroutine
from typing import Any

from tavern_engine import EngineState
from tavern_engine.api.executions import ExecutionEngine, Resumed, RunFilter, RunQueue, RunSummary
from tavern_engine.api.runs import RUN_STORE
from tavern_engine.cache.cache import OutputCache
from tavern_engine.cache.disk.lookup import CacheLookup
from tavern_engine.cache.disk.store import DiskCache
from tavern_engine.compile.bound import BoundPlan
from tavern_engine.compile.planner import Planner
from tavern_engine.engine_settings import EngineSettings
from tavern_engine.handover import POLL, Handover
from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.recorder import RunRecorder
from tavern_engine.journal.stored_run import StoredRun
from tavern_engine.recovery import Recovery
from tavern_engine.resuming import changed_request, claimed, leave_to
from tavern_engine.run.active_run import INTERRUPTED, ActiveRun
from tavern_engine.run.bounded import bounded, output_of
from tavern_engine.run.event_batch import EventBatch
from tavern_engine.run.finished_runs import FinishedRuns
from tavern_engine.run.inline_runs import is_forgotten, published_where_read, shows_no_nodes
from tavern_engine.run.json_values import LARGE, error_form
from tavern_engine.run.output_calls import check_principal, filtered, with_call_results
from tavern_engine.run.priority_semaphore import PrioritySemaphore
from tavern_engine.run.queue_messages import QueueMessages
from tavern_engine.run.record import RunRecord, list_in_memory
from tavern_engine.run.run_blobs import RunBlobs
from tavern_engine.run.run_execution import RunExecution, places_of
from tavern_engine.run.scheduler import GRACE
from tavern_engine.run.scope import Scope
from tavern_engine.run.submitted_once import submitted_once
from tavern_host import Blob, CallContext, PluginContext
from tavern_host.common.log_context import logged_with
from tavern_host.contracts.accounts import require_admitted
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.errors import DeadlineExceeded, ErrorInfo, Forbidden, Interrupted
from tavern_host.contracts.executions import NodeState, Run, RunRequest, RunStatus
from tavern_host.contracts.services import takes_shared

_STOPPED = "the host stopped the run"


class Engine(ExecutionEngine):
    """Runs workflows in this process."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._state = context.own(EngineState)
        self._publish = context.events.publish_all
        self._publish_read = published_where_read(context.events)
        self._settings = EngineSettings(context)
        self._planner = Planner(context, self._state.types)
        self.cache = OutputCache(self._settings.cache_bytes())
        place, key = context.project.private / "cache", ProjectKey(context.operator_dir)
        self.disk_cache = DiskCache(place, context.log, self._settings.disk_cache_bytes, key)
        self._run_slots = PrioritySemaphore(self._settings.concurrent_runs)
        self._process_slots = PrioritySemaphore(self._settings.isolated_processes)
        self.active: dict[str, ActiveRun] = {}
        self._accepting = 0
        self.recorder = RunRecorder(context)
        self._handover = Handover(context, self._settings, self.recorder, self._run_slots)
        self._recovery = Recovery(context, self._settings, self.recorder, self._run_slots, self._continue)
        self._endings: set[asyncio.Task[None]] = set()
        self._finished = FinishedRuns(self._settings.remembered_bytes)
        self._queue_messages = QueueMessages(self._publish, self._listed)
        self._state.engine = self

    async def submit(self, request: RunRequest, *, call: CallContext | None = None) -> str:
        """Check and accept a run, which then runs in the background."""
        return await submitted_once(call, lambda: self._accept(request, call), self.get)

    @takes_shared
    async def run(self, request: RunRequest, *, call: CallContext | None = None) -> Run:
        """Submit a run and return it when it is finished; cancelling interrupts it and waits for its end."""
        active = await self._accept(request, call, is_awaited=True)
        if active.record.is_inline:
            with logged_with(run=active.record.id, principal=str(active.call.principal)):
                await self._drive(active)
            await asyncio.sleep(0)  # the loop drops the workers, and with them the context that nodes were given
        try:
            return await active.outcome()
        except asyncio.CancelledError:
            active.cancel_requested = not self._context.is_stopping()
            active.interrupt()
            if active.task is not None:
                await asyncio.wait([active.task], timeout=2 * GRACE)
            raise

    async def get(self, run_id: str) -> Run:
        """Return a run in its present state. Raises `NotFound`."""
        return await self._present(run_id)

    async def show(self, run_id: str) -> Run:
        """Return a run in its present state, without its large values."""
        return bounded(await self._present(run_id, most=LARGE))

    async def output(
        self, run_id: str, key: str, *, node_id: str | None = None, call: CallContext | None = None
    ) -> Blob:
        """Return an output of a run, or of one of its nodes, as a Blob."""
        return await output_of(await self._present(run_id), key, node_id, self._context.blobs)

    async def wait(self, run_id: str) -> Run:
        """Return a run when it is finished. Raises `NotFound`."""
        if (active := self.active.get(run_id)) is not None:
            return await active.outcome()
        run = await self._finished.get(run_id) or await self.recorder.run(run_id)
        while not run.status.is_final:  # another process runs it
            await asyncio.sleep(POLL)
            run = await self.recorder.run(run_id)
        return run

    async def queue(self) -> RunQueue:
        """Return the runs that are running and waiting, in the order in which they came."""
        runs = [await record.present() for record in self._listed()]
        return RunQueue(
            running=[run for run in runs if run.status is RunStatus.RUNNING],
            pending=[run for run in runs if run.status is RunStatus.QUEUED],
        )

    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Interrupt a run; False if it had finished. Raises `NotFound`."""
        active = self.active.get(run_id)
        if active is None:
            is_open = not (await self.get(run_id)).status.is_final
            return is_open and await self.recorder.claims.interrupt(run_id)
        if is_open := not active.record.status.is_final:
            active.stop()
        return is_open

    async def history(self, filter: RunFilter | None = None) -> list[RunSummary]:
        """Return runs, active ones included, newest first."""
        if self._context.services.has(RUN_STORE):
            await self.recorder.catch_up(self._listed())
            return await self._context.services.get(RUN_STORE).list_runs(filter or RunFilter())
        return list_in_memory(self._finished.runs(), self._listed(), filter or RunFilter())

    async def resume(
        self, run_id: str, *, changed: RunRequest | None = None, call: CallContext | None = None
    ) -> Resumed:
        """Resume a run that failed or was interrupted, from where it ended. Raises `NotFound`, `Conflict`."""
        async with claimed(self.recorder, run_id, call) as stored:
            if changed is None or not changed.model_fields_set:
                await self.recorder.claims.reopen(stored.entry)
                return await self._continue(stored, call)
            request = await changed_request(stored, changed, self._context)
            active = await self._accept(request, call, stored)
            await leave_to(self.recorder, stored.entry, active.record.id)
            self._finished.forget(run_id)
        return Resumed(run_id=active.record.id, kept=active.kept)

    async def rerun(self, run_id: str, *, call: CallContext | None = None) -> str:
        """Run a run's workflow, as it was then, once more with the same inputs."""
        kept = await self.recorder.load(await self.recorder.entry(run_id), results=False)
        request = kept.entry.request.model_copy(update={"workflow": kept.workflow})
        return await self.submit(request, call=call)

    async def close(self) -> None:
        """Interrupt all runs and wait until they have ended."""
        runs = list(self.active.values())
        for active in runs:
            active.interrupt(_STOPPED)
        if runs:
            ended = [asyncio.ensure_future(active.task or active.outcome()) for active in runs]
            await asyncio.wait(ended, timeout=2 * GRACE)
        if self._endings:
            await asyncio.wait(self._endings, timeout=2 * GRACE)
        self._queue_messages.close()
        await self.recorder.close()
        await self.disk_cache.close()

    # --- recovery ---------------------------------------------------------------------------------

    def recover_runs(self) -> None:
        """Resume runs that a crashed host left behind, take those that wait at a busy one, and delete old ones,
        periodically from now on.

        To be called when all plugins are loaded: a run may need any of them.
        """
        self._context.tasks.spawn(self._recovery.run(), name="recover runs")
        hearing = self._handover.hear(self.active, self._recovery)
        self._context.tasks.spawn(hearing, name="hear of runs of other hosts")

    async def _continue(self, stored: StoredRun, call: CallContext | None) -> Resumed:
        """Start a claimed run from where it ended."""
        entry = stored.entry
        request = entry.request
        name = entry.workflow_name or entry.workflow_id or "the workflow"
        bound = await self._planner.bind(stored.workflow, stored.groups, request, name)
        call = (call or entry.call).model_copy(update={"deadline": call.deadline if call is not None else None})
        attempt = entry.attempt + (entry.started_at is not None)  # else it has only waited
        facts = (entry.id, request, stored.workflow, stored.groups, bound.plan, call, self._publish)
        record = RunRecord(*facts, submitted_at=entry.submitted_at, attempt=attempt)
        self._finished.forget(entry.id)
        return Resumed(run_id=entry.id, kept=self._begin(record, bound, stored).kept)

    # --- accepting --------------------------------------------------------------------------------

    async def _accept(
        self,
        request: RunRequest,
        call: CallContext | None,
        before: StoredRun | None = None,
        *,
        is_awaited: bool = False,
    ) -> ActiveRun:
        """Check and accept a run, and begin it, with what is valid of one `before` that it continues. One that may be
        inline, since it `is_awaited`, is left to its caller to drive."""
        call = call or system_call(self._context.project.id)
        if call.remaining() == 0:
            raise DeadlineExceeded("the run was not started: its deadline has passed")
        hooks = self._context.hooks
        if hooks.implemented("tavern_before_execute"):
            request = await hooks.filter("tavern_before_execute", request, call=call)
        request = request.owned() if request.keep else request
        check_principal(request.actions, call.principal)
        parent = self.active.get(call.run_id or "")
        recover = request.recover and (parent is None or parent.record.request.recover)
        request = request.model_copy(update={"continues": before and before.entry.id, "recover": recover})
        is_inline = request.inline and is_awaited
        if not (is_inline or (parent is not None and parent.has_slot)):
            self._run_slots.check_room(self._accepting, self._settings.queued_runs())
        self._accepting += 1
        try:
            workflow, name = await self._planner.workflow(request)
            groups = await self._planner.groups(workflow)
            bound = await self._planner.bind(workflow, groups, request, name)
            facts = (call.id_of("run"), request, workflow, groups, bound.plan, call)
            record = RunRecord(*facts, self._publish_read if is_inline else self._publish, is_inline=is_inline)
            if request.targets:
                places_of(bound, request.targets)  # raises for one that is none
            with contextlib.ExitStack() as in_flight:  # the code of the plan must stay loaded while the run is recorded
                for contribution in bound.plan.contributions:
                    in_flight.enter_context(contribution.in_use())
                await self.recorder.accept(record)
                return self._begin(record, bound, before)
        finally:
            self._accepting -= 1

    def _begin(self, record: RunRecord, bound: BoundPlan, before: StoredRun | None = None) -> ActiveRun:
        """Start an accepted run in the background, once it has a slot, from what is valid of `before`. An inline one is
        left to its caller."""
        request, call = record.request, record.call
        cache = self.cache if request.use_cache and request.keep and self._settings.cache_bytes() else None
        if cache is not None:
            cache.on_kept = self.disk_cache.keep if self.caches_on_disk else None
        lookup = CacheLookup(self.disk_cache, cache) if cache is not None and cache.on_kept is not None else None
        blobs = RunBlobs(record.id, self._context.blobs, self._context.log)
        made: dict[str, Any] = {"cache": cache, "see": blobs.see, "digests": bound.digests}
        made |= {"is_read": self._context.events.is_read} if record.is_inline else {}
        events = EventBatch(record.id, bound.plan, record.nodes, record.publish, **made)
        valid = before and before.valid(bound.signatures_by_id())
        finished, loops = (valid.finished(), valid.states()) if valid is not None else ({}, {})
        within = call.child(run_id=record.id)
        scope = Scope(record.id, within, events, self._context.log, blobs, loops=loops, processes=self._process_slots)
        execution = RunExecution(bound, scope, cache=cache, lookup=lookup, finished=finished, targets=request.targets)
        record.streams = execution.streams
        # A run that waits for a slot while its parent holds one could wait forever.
        shares = (parent := self.active.get(call.run_id or "")) is not None and parent.has_slot
        ticket = None if shares or record.is_inline else self._run_slots.enter(request.priority)
        unrecorded = events if record.is_inline else None
        active = ActiveRun(record, execution, call, ticket, shares or ticket is not None, blobs, unrecorded)
        active.kept = sorted(finished)
        events.journal = self.recorder.begin(record, active.leave_to_claimant, active.stop)
        if valid is not None and events.journal is not None and not record.is_resumed:
            valid.journal(events.journal)
            blobs.see_all([*finished.values(), *(vars(state) for state in loops.values())])
        self.active[record.id] = active
        for contribution in bound.plan.contributions:  # their code stays loaded while the run runs
            why = f"the run was interrupted: {contribution.plugin} was unloaded before it ended"
            active.in_flight.enter_context(contribution.in_use(functools.partial(active.interrupt, why)))
        if record.is_inline:
            return active
        with logged_with(run=record.id, principal=str(call.principal)):
            active.task = self._context.tasks.spawn(self._drive(active), name=record.id, finish=True)
        active.task.add_done_callback(lambda _: self._finish_unstarted(active))
        return active

    # --- execution --------------------------------------------------------------------------------

    async def _drive(self, active: ActiveRun) -> None:
        """Drive one run from the queue to its end; an inline one in the task of its caller."""
        record, error, nodes = active.record, None, None
        has_slot: bool | None = False
        try:
            async with asyncio.timeout(active.call.remaining()):
                if active.ticket is not None and not active.ticket.done():
                    record.queued()
                    self._queue_messages.changed()
                if has_slot := await self._handover.slot(active):
                    await require_admitted(self._context.services, active.call)
                    record.started()
                    if not active.record.is_inline:
                        self._queue_messages.changed()
                        await self.recorder.started(record)
                    await active.execution.run(self._context.services)
                    record.nodes.close()
                    hides_nodes = record.is_inline and shows_no_nodes(active, self._context.hooks)
                    nodes = {} if hides_nodes else await record.nodes.all_states()
        except TimeoutError:
            error = DeadlineExceeded("the run did not end before its deadline").info
        except asyncio.CancelledError:
            if active.record.is_inline and not self._context.is_stopping():
                await self._conclude_apart(active)
            else:  # the host stops, or unloads this plugin: no time for hooks
                self._finish_now(active, self._result(active, Interrupted(_STOPPED).info))
            raise
        except Forbidden as refused:  # whoever began it may not any more
            error = refused.info
        except Exception as failure:
            self._context.log.exception("run %s failed in the engine", record.id)
            error = error_form(failure)
        if has_slot is None:
            await self._follow(active)
            return
        await self._conclude(active, self._result(active, error, nodes))

    async def _conclude(self, active: ActiveRun, result: Run) -> None:
        """Do what comes after the last node: the calls in the outputs, hooks, the record of the end."""
        record = active.record
        try:
            if result.actions is not None and result.status is RunStatus.COMPLETE:
                await self.recorder.calls_begin(record)
            result = await with_call_results(result, active.call, self._context)
            result = await filtered(result, active.call, self._context)
            if result.status is RunStatus.COMPLETE and not result.targets:
                record.missing_outputs = [key for key in record.workflow.interface_outputs if key not in result.outputs]
            await self._end(active, result)
        except asyncio.CancelledError:
            self._finish_now(active, result)
            raise
        # Whether the run can be resumed is known when its journal is written.
        known = {"not_resumable": record.not_resumable, "missing_outputs": record.missing_outputs}
        self._finish(active, result.model_copy(update=known))
        if record.id in self._finished.ended:
            await self._finished.encode(record.id)

    async def _follow(self, active: ActiveRun) -> None:
        """Leave a run to the host that has taken it; as it ends there, it ends for its callers here."""
        record = active.record
        self.recorder.drop(record)
        self._leave(active)
        record.error = Interrupted(_STOPPED).info
        run = record.snapshot(RunStatus.INTERRUPTED)
        try:
            run = await self._handover.end(active) or run
        finally:
            self._answer(active, run)

    async def _conclude_apart(self, active: ActiveRun) -> None:
        """Conclude an inline run whose caller is cancelled, in a task of its own."""
        active.interrupted = active.interrupted or INTERRUPTED
        await asyncio.wait([self._apart(self._conclude(active, self._result(active, None)))], timeout=2 * GRACE)

    def _apart(self, ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Return the task of what is left of a run, which closing waits for."""
        task = asyncio.get_running_loop().create_task(ending, name="end of a run")
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    def _finish_unstarted(self, active: ActiveRun) -> None:
        """Finish a run whose task was cancelled before its first step, as happens when the host stops."""
        if not active.ended.is_set():
            self._finish_now(active, self._result(active, Interrupted(_STOPPED).info))

    def _finish_now(self, active: ActiveRun, run: Run) -> None:
        """Finish a run at once, and record its end in a task of its own."""
        if active.ended.is_set():
            return
        task = self._apart(self._end(active, run))
        held = active.in_flight.pop_all()  # so that the host waits for the end before it takes the store away
        task.add_done_callback(lambda _: held.close())
        self._finish(active, run)

    async def _end(self, active: ActiveRun, run: Run) -> None:
        """Record the end of a run; one that the host cuts off because it stops is left to the next host."""
        record, context = active.record, self._context
        is_cut_off = run.status is RunStatus.INTERRUPTED and context.is_stopping() and not active.cancel_requested
        is_left = is_cut_off and self._handover.can_be_left(record)
        if active.unrecorded is not None and not is_forgotten(active, run):
            await self.recorder.record_ended(record, active.unrecorded)
        await (self.recorder.detach(record) if is_left else self.recorder.end(record, run))

    def _result(self, active: ActiveRun, error: ErrorInfo | None, nodes: dict[str, NodeState] | None = None) -> Run:
        """Return the finished run; `error` is a failure outside of its nodes, which are `nodes` if that is known."""
        record = active.record
        record.nodes.close()
        record.error = active.execution.error
        if error is not None:
            record.error = error
            status = RunStatus.INTERRUPTED if error.code == Interrupted.code else RunStatus.ERROR
        elif active.interrupted is not None:
            status = RunStatus.INTERRUPTED
            record.error = Interrupted(active.interrupted).info
        else:
            status = RunStatus.ERROR if record.error is not None else RunStatus.COMPLETE
        return record.snapshot(status, active.execution.outputs(), nodes)

    def _finish(self, active: ActiveRun, run: Run) -> None:
        """Finish a run: wake its waiters, release its slot, publish its end."""
        active.count(self._state, run.status)
        if not active.record.is_inline or run.status is not RunStatus.COMPLETE:
            self._finished.add(run)
        self._leave(active)
        active.record.announce_end(run)
        self._answer(active, run)

    def _leave(self, active: ActiveRun) -> None:
        """Remove a run that has ended, or that another host has."""
        del self.active[active.record.id]
        if active.ticket is not None:
            self._run_slots.leave(active.ticket)
            self._recovery.has_room()
        active.in_flight.close()
        if not active.record.is_inline:
            self._queue_messages.changed()

    def _answer(self, active: ActiveRun, run: Run) -> None:
        active.result = run
        active.ended.set()
        del active.execution  # with the context that nodes were given: what they keep of it is worth nothing now

    # --- helpers ----------------------------------------------------------------------------------

    def _listed(self) -> list[RunRecord]:
        """Return the runs that have not ended and are no part of other work."""
        return [active.record for active in self.active.values() if not active.record.is_inline]

    @property
    def caches_on_disk(self) -> bool:
        """Whether outputs are written to and read from the disk cache."""
        return self._settings.caches_on_disk()

    async def _present(self, run_id: str, most: int | None = None) -> Run:
        """Return a run in its present state; one that ended as `RunRecorder.run` does. Raises `NotFound`."""
        active = self.active.get(run_id)
        if active is not None:
            return await active.record.present()
        return await self._finished.get(run_id, most) or await self.recorder.run(run_id, most)
