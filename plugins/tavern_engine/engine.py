"""The service `executionEngine`: accepts runs, lets a limited number of them go on at a time, keeps what
became of them. How one run is carried out is the business of `execution.py`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from tavern_engine.drain import GRACE
from tavern_engine.execution import Execution
from tavern_engine.plan import compile_plan
from tavern_engine.record import RunRecord
from tavern_engine.registry import NodeRegistry
from tavern_engine.turns import Turn, Turns
from tavern_engine.values import bind_values, interface_values
from tavern_engine.wireform import error_form
from tavern_host import WORKFLOW_MANAGER, CallContext, PluginContext
from tavern_host.contracts.calls import new_id, system_call
from tavern_host.contracts.errors import (
    DeadlineExceeded,
    ErrorInfo,
    Interrupted,
    InvalidInput,
    NotFound,
    TavernError,
)
from tavern_host.contracts.executions import ExecutionEngine, NodeState, Run, RunQueue, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow, WorkflowProblem

KEPT = 500
"""How many finished runs are remembered."""

DEFAULT_LIMIT = 4
"""How many runs go on at a time, unless the setting `maxConcurrentRuns` says otherwise."""


@dataclass(eq=False)
class _Active:
    """A run that is not finished. `turn` is None for a run within a run: it goes on in its parent's turn."""

    record: RunRecord
    execution: Execution
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
        self.execution.stop()


class Engine(ExecutionEngine):
    """Runs workflows in this process."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._registry = NodeRegistry.of(context)
        self._turns = Turns(self._limit)
        self._active: dict[str, _Active] = {}
        self._finished: dict[str, Run] = {}
        self._order: deque[str] = deque()

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
        return finished if finished is not None else self._find(run_id).record.snapshot()

    async def wait(self, run_id: str) -> Run:
        """Return a run when it is finished. Raises `NotFound`."""
        finished = self._finished.get(run_id)
        if finished is not None:
            return finished
        active = self._find(run_id)
        await active.ended.wait()
        assert active.result is not None
        return active.result

    async def queue(self) -> RunQueue:
        """Return the runs that are running and waiting, in the order in which they came."""
        runs = [active.record.snapshot() for active in self._active.values()]
        return RunQueue(
            running=[run for run in runs if run.status is RunStatus.RUNNING],
            pending=[run for run in runs if run.status is RunStatus.QUEUED],
        )

    async def interrupt(self, run_id: str, *, call: CallContext | None = None) -> bool:
        """Interrupt a run; False if it had finished. Raises `NotFound`."""
        if run_id in self._finished:
            return False
        active = self._find(run_id)
        if active.record.status.is_final:
            return False
        active.interrupt()
        return True

    async def close(self) -> None:
        """Interrupt all runs and wait until they have ended."""
        tasks = []
        for active in self._active.values():
            active.interrupt()
            if active.task is not None:
                tasks.append(active.task)
        if tasks:
            await asyncio.wait(tasks, timeout=2 * GRACE)

    # --- accepting --------------------------------------------------------------------------------

    async def _accept(self, request: RunRequest, call: CallContext | None) -> _Active:
        call = call or system_call(self._context.project.id)
        if call.remaining() == 0:
            raise DeadlineExceeded("the run was not begun: its deadline is over")
        hooks = self._context.hooks
        if hooks.implemented("tavern_before_execute"):
            request = await hooks.filter("tavern_before_execute", request, call=call)
        workflow, name = await self._workflow(request)
        interface = await self._checked_inputs(workflow, request, name)
        plan = compile_plan(workflow, await self._registry.types())
        values = bind_values(plan, workflow, interface)
        run_id = new_id("run")
        run_call = call.child(run_id=run_id)
        record = RunRecord(
            run_id,
            plan,
            self._context.events,
            workflow_id=request.workflow_id or workflow.id,
            name=workflow.name or None,
        )
        execution = Execution(plan, values, run_call, record, self._context.log)
        # A run that waited for a turn while its parent holds one could wait forever.
        turn = None if call.run_id in self._active else self._turns.enter()
        active = _Active(record, execution, call, turn)
        self._active[run_id] = active
        for contribution in plan.contributions:  # their code stays while the run goes on
            why = f"the run was interrupted: {contribution.plugin} was taken out before it ended"
            active.uses.enter_context(contribution.in_use(functools.partial(active.interrupt, why)))
        active.task = self._context.tasks.spawn(self._drive(active), name=run_id, finish=True)
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

    async def _checked_inputs(self, workflow: Workflow, request: RunRequest, name: str) -> dict[str, Any]:
        """Return the interface values. Raises `InvalidInput` with all that is wrong with workflow and inputs."""
        document: dict[str, JsonValue] = workflow.model_dump(mode="json", exclude_unset=True)
        found = await self._context.services.get(WORKFLOW_MANAGER).check(document)
        problems = [p for p in found if p.severity == "error"]
        values, wrong = interface_values(workflow, request.inputs)
        problems += wrong
        if problems:
            raise _refusal(name, problems)
        return values

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
                    await active.execution.run()
        except TimeoutError:
            error = DeadlineExceeded("the run did not end before its deadline").info
        except asyncio.CancelledError:  # the host stops, or takes the plugin away: no time for hooks
            self._end(active, self._result(active, Interrupted("the host stopped the run").info))
            raise
        except Exception as failure:
            self._context.log.exception("run %s failed in the engine", record.id)
            error = error_form(failure)
        try:
            result = await self._after(active, self._result(active, error))
        except asyncio.CancelledError:
            self._end(active, self._result(active, error))
            raise
        self._end(active, result)

    def _never_begun(self, active: _Active) -> None:
        """Settle a run whose task was cancelled before its first step, as happens when the host stops."""
        if not active.ended.is_set():
            self._end(active, self._result(active, Interrupted("the host stopped the run").info))

    def _result(self, active: _Active, error: ErrorInfo | None) -> Run:
        """Return how the run ended; `error` is what stopped it from outside of its nodes."""
        record = active.record
        record.close_nodes()
        if error is not None:
            record.error = error
            status = RunStatus.INTERRUPTED if error.code == Interrupted.code else RunStatus.ERROR
        elif active.interrupted is not None:
            status = RunStatus.INTERRUPTED
            record.error = Interrupted(active.interrupted).info
        else:
            status = RunStatus.ERROR if record.error is not None else RunStatus.COMPLETE
        return record.snapshot(status, active.execution.outputs())

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

    def _end(self, active: _Active, run: Run) -> None:
        """Settle the run for everybody who waits for it, and let the next one begin."""
        del self._active[run.id]
        self._finished[run.id] = run
        self._order.append(run.id)
        while len(self._order) > KEPT:
            del self._finished[self._order.popleft()]
        if active.turn is not None:
            self._turns.leave(active.turn)
        active.uses.close()
        active.result = run
        active.record.announce_end(run)
        active.ended.set()
        self._tell_queue()

    # --- small parts ------------------------------------------------------------------------------

    def _find(self, run_id: str) -> _Active:
        active = self._active.get(run_id)
        if active is None:
            raise NotFound(f"there is no run {run_id!r}; finished runs are kept until {KEPT} others have ended")
        return active

    def _limit(self) -> int:
        value = self._context.settings.get("maxConcurrentRuns", DEFAULT_LIMIT)
        return int(value) if isinstance(value, int | float) and value >= 1 else DEFAULT_LIMIT

    def _tell_queue(self) -> None:
        """Tell clients what runs and what waits."""
        records = [active.record for active in self._active.values()]
        self._context.events.publish(
            "SYSTEM_QUEUE_UPDATE",
            {
                "runningExecutions": [r.summary() for r in records if r.status is RunStatus.RUNNING],
                "pendingExecutions": [r.summary() for r in records if r.status is RunStatus.QUEUED],
            },
        )


def _refusal(name: str, problems: list[WorkflowProblem]) -> InvalidInput:
    shown = "; ".join(str(p) for p in problems[:5])
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return InvalidInput(f"{name} cannot be run: {shown}{more}", problems=[p.to_json() for p in problems])


def _withheld(run: Run, reason: ErrorInfo) -> Run:
    """Return a run without anything of its result: what it did stands, but nobody is told."""
    nodes = {
        node_id: NodeState(status=state.status, error=state.error, started=state.started, finished=state.finished)
        for node_id, state in run.nodes.items()
    }
    return run.model_copy(update={"status": RunStatus.ERROR, "outputs": {}, "nodes": nodes, "error": reason})
