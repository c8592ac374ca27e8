"""Calls that outlive the request for them: asynchronous ones, and those that wait for an approval.

Each is in the task store before the request for it is answered, and its result before its end is published. How a call
is made, and who may approve it, is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

from pydantic import JsonValue

from tavern_host import clock
from tavern_host.common.redaction import unmasked
from tavern_host.context import PluginContext
from tavern_host.contracts.accounts import SettledWork
from tavern_host.contracts.calls import CallContext, Principal, new_id, system_call
from tavern_host.contracts.errors import NotFound, PermissionDenied, TavernError, describe
from tavern_host.storage.databases import shared_database
from tavern_host.storage.retried_writes import Withdrawals
from tavern_tools.api.tasks import NewTask, TaskEntry, TaskRow, TaskStore
from tavern_tools.api.toolcalls import (
    TaskFilter,
    TaskStatus,
    ToolApproval,
    ToolCallRequest,
    ToolErrorType,
    ToolScope,
    ToolTask,
)
from tavern_tools.calls.questions import ANSWER, check_answer
from tavern_tools.catalog.catalog import Tool
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.tasks.approvals import answered, audit_details, check_decision, decided, why_not
from tavern_tools.tasks.callbacks import Callbacks
from tavern_tools.tasks.execution import GRACE, Calls, TaskExecution, TaskRun
from tavern_tools.tasks.notifications import Notifier, approval_payload, update_payload
from tavern_tools.tasks.rows import shown
from tavern_tools.tasks.schema import TASKS
from tavern_tools.tasks.store import SqliteTaskStore

IsMeant = Callable[[str, CallContext], Awaitable[bool]]
"""Returns whether the call of a tool is to end that was asked for with a context."""

ToolTasks = list[ToolTask]

_OPEN = (TaskStatus.AWAITING_APPROVAL, TaskStatus.PENDING, TaskStatus.RUNNING)
"""How tasks stand that have not ended, those that wait first: none takes the place of one that was stopped."""

POLL = 0.4
"""How many seconds pass until a host sees what another process changed."""

_PRUNE_EVERY = 600.0
_CLOSE_SECONDS = 3.0


class Tasks:
    """The tasks of a project, as one host of it carries them out."""

    def __init__(self, context: PluginContext, calls: Calls) -> None:
        self._context = context
        self._calls = calls
        folder = context.operator_dir / "tasks"
        shared = shared_database(context.services, "tasks", folder / TASKS.file, TASKS.migrations)
        self._store: TaskStore = SqliteTaskStore(folder, new_id("host"), context.log, shared)
        self._execution = TaskExecution(
            self._store,
            calls,
            self._notice,
            context.log,
            result_bytes=lambda: self._number("maxTaskResultKilobytes", 4096) * 1024,
            is_stopping=lambda: self._is_stopping,
        )
        self._callbacks = Callbacks(context.settings, context.http)
        self._notifier = Notifier(self._store, self._callbacks, context.log)
        self._waiting: dict[str, None] = {}
        self._running: dict[str, TaskRun] = {}
        self._works: set[asyncio.Task[None]] = set()
        self._refused = Withdrawals(context.tasks.spawn, lambda: self._is_stopping)
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._wake = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_closed = False

    # --- what the manager asks for ----------------------------------------------------------------

    async def submit(
        self,
        request: ToolCallRequest,
        tool: Tool,
        call: CallContext,
        scope: ToolScope | None,
        approval: ToolApproval | None = None,
    ) -> ToolTask:
        """Accept a call that runs in the background, or, with an `approval`, waits until somebody decides about it.

        It is on disk when this returns; the `callback` of the scope is notified of its end. Raises `ToolFailure` where
        too many tasks are open, `InvalidInput` and `PermissionDenied` for the callback, `TavernError` where it cannot
        be stored.
        """
        callback = scope.callback if scope is not None else None
        told = None if callback is None else self._callbacks.accept(callback)
        definition = tool.definition
        entry = TaskEntry(
            request=request,
            call=call.model_copy(update={"deadline": None}),  # it was that of the request for the task
            scope=scope,
            hidden=sorted(tool.parameters.secrets),
            callback=callback,
        )
        task = NewTask(new_id("task"), definition.id, entry, definition.idempotent, approval, told)
        try:
            row = await self._store.add(task, self._number("maxOpenTasks", 1000))
        except BaseException as error:
            self._refused.add(task.id, error, lambda: self._store.cancel(task.id, call.principal))
            raise
        if row is None:
            message = "too many tasks have not ended yet; try again when some have"
            raise ToolFailure(ToolErrorType.RESOURCE, message, limit=self._number("maxOpenTasks", 1000))
        self._notice(row)
        self._begin_to_watch()
        return shown(row, self._keep())

    async def list(self, filter: TaskFilter | None, call: CallContext) -> ToolTasks:
        """Return tasks, newest first, without large results; agents and plugins see their own."""
        only = None if _sees_all(call.principal) else call.principal
        rows = await self._store.find(filter or TaskFilter(), only, self._kept_since())
        return [shown(row, self._keep()) for row in rows]

    async def get(self, task_id: str, wait: float, call: CallContext) -> ToolTask:
        """Return a task as it stands, or as soon as it has ended within `wait` seconds. Raises `NotFound`."""
        remaining = call.remaining()
        ends = clock.monotonic() + max(0.0, wait if remaining is None else min(wait, remaining))
        changed = asyncio.Event()
        self._waiters.setdefault(task_id, set()).add(changed)
        try:
            while True:
                row = await self._visible(task_id, call)
                left = ends - clock.monotonic()
                if row.is_final or left <= 0:
                    return shown(row, self._keep())
                changed.clear()
                with contextlib.suppress(TimeoutError):  # another process may have changed it
                    async with asyncio.timeout(min(left, POLL)):
                        await changed.wait()
        finally:
            waiters = self._waiters.get(task_id, set())
            waiters.discard(changed)
            if not waiters:
                self._waiters.pop(task_id, None)

    async def cancel(self, task_id: str, call: CallContext) -> ToolTask:
        """Cancel a task and return how it stands then; one that has ended stays as it is. Raises `NotFound`."""
        before = await self._visible(task_id, call)
        row = await self._store.cancel(task_id, call.principal)
        if row is None:
            raise _unknown(task_id)
        if row.changed == before.changed:
            return shown(row, self._keep())
        self._note_cancelled(row, call)
        return await self.get(task_id, 2 * GRACE + POLL, call)

    def _note_cancelled(self, row: TaskRow, call: CallContext) -> None:
        self._audit("toolTask.cancelled", row, {"caller": str(row.entry.call.principal)}, call)
        self._notice(row)

    async def end_work(self, is_meant: IsMeant, by: CallContext) -> SettledWork:
        """Cancel the tasks that are meant, wherever they run; return how many waited, and how many had begun."""
        ended = Counter[bool]()
        found = [row for status in _OPEN for row in await self._store.find(_all_of(status), None, 0)]
        for row in found:
            if await is_meant(row.tool_id, row.entry.call):
                after = await self._store.cancel(row.id, by.principal)
                if after is not None and after.changed != row.changed and after.cancelled_by is not None:
                    ended[row.status is TaskStatus.RUNNING] += 1
                    self._note_cancelled(after, by)
        return SettledWork(kind="tasks", cancelled=ended[False], stopped=ended[True])

    async def decide(
        self,
        task_id: str,
        decision: str,
        arguments: dict[str, JsonValue] | None,
        comment: str,
        call: CallContext,
    ) -> ToolTask:
        """Approve or refuse a call; see the interface."""
        principal = call.principal
        row = await self._kept(task_id)
        if not await self._calls.may_decide(principal, row.tool_id, None):
            await self._visible(task_id, call)
            raise PermissionDenied(f"{principal} may not decide about calls of {row.tool_id}")
        wanted = check_decision(decision, arguments)
        if row.status is not TaskStatus.AWAITING_APPROVAL:
            raise why_not(row)
        if principal.kind in ("agent", "plugin") and principal == row.entry.call.principal:
            raise PermissionDenied(f"{principal} may not decide about a call of its own")
        changed = await self._edited(row, answered(row, wanted, arguments))
        effective = row.entry.request.arguments if changed is None else changed
        if wanted == "approve" and not await self._calls.may_decide(principal, row.tool_id, effective):
            raise PermissionDenied(f"{principal} may not call {row.tool_id} with these arguments, nor approve it")

        assert row.approval is not None
        approval = decided(row.approval, wanted, call, comment, edited=changed is not None)
        after, outcome = await self._store.decide(task_id, approval, changed)
        if after is None:
            raise _unknown(task_id)
        if outcome != "late":
            await self._record_decision(after)
            self._notice(after)
        if outcome != "decided":
            raise why_not(after)
        return shown(after, self._keep())

    async def _edited(self, row: TaskRow, arguments: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        """Return the arguments that a call is approved with in place of its own, as its tool gets them; None where they
        are its own. Raises `InvalidInput` for what the tool does not allow."""
        own = row.entry.request.arguments
        if arguments is None or (changed := unmasked(arguments, own, row.entry.hidden)) == own:
            return None
        changed = await self._calls.bind(row.tool_id, changed)
        if row.approval is not None and (question := row.approval.question) is not None:
            files = self._context.project.folder("files")
            changed[ANSWER] = await asyncio.to_thread(check_answer, question, changed[ANSWER], files)
        return None if changed == own else changed

    async def adopt_tasks(self) -> None:
        """Look after what is left over from before, from now on, in a host that serves."""
        if self._context.serving:
            self._begin_to_watch()

    async def close(self) -> None:
        """Ask what runs to end, store how it ended, and leave the rest to the next host; once."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop()
        own = [task for task in (self._watch, self._telling) if task is not None and not task.done()]
        for task in own:
            task.cancel()
        if own or self._works:
            await asyncio.wait([*own, *self._works], timeout=_CLOSE_SECONDS)
        try:
            await self._store.release()
        except TavernError as error:
            self._context.log.error("tasks could not be left to the next host: %s", error.message)
        await self._store.close()

    # --- looking after the store ------------------------------------------------------------------

    def _begin_to_watch(self) -> None:
        if self._watch is None or self._watch.done():
            self._watch = self._context.tasks.spawn(self._watch_store(), name="look after tasks of tools")

    async def _watch_store(self) -> None:
        told = ""
        next_pruning = 0.0
        while not self._is_stopping:
            try:
                await self._look()
                if self._context.serving and clock.monotonic() >= next_pruning:
                    next_pruning = clock.monotonic() + _PRUNE_EVERY
                    await self._store.prune(self._kept_since(), self._number("keepTasksMegabytes", 256) * 2**20)
                told = ""
            except Exception as error:  # whatever is wrong with the store, the next time may go well
                reason = error.message if isinstance(error, TavernError) else describe(error)
                if reason != told:
                    self._context.log.error("the tasks of tools cannot be looked after: %s", reason)
                told = reason
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await self._wake.wait()

    async def _look(self) -> None:
        """Take over tasks without an owner, expire decisions, and see what other hosts changed."""
        seen = await self._store.look(takes_up=self._context.serving and not self._is_stopping)
        for row in seen.unaudited:
            await self._record_decision(row)
        for row in seen.rows:
            self._notice(row)
        if seen.tells:
            self._begin_to_tell()
        self._waiting |= dict.fromkeys(one for one in seen.pending if one not in self._running)
        self._fill()

    def _notice(self, row: TaskRow) -> None:
        """Do what the state of a task asks for, and publish it."""
        if row.owner == self._store.host and row.status is TaskStatus.PENDING:
            if row.id not in self._running:
                self._waiting[row.id] = None
        elif row.status is not TaskStatus.PENDING:
            self._waiting.pop(row.id, None)
        if row.cancelled_by is not None and row.id in self._running:
            self._running[row.id].end("cancelled", row.cancelled_by)
        self._publish(row)
        if row.owner == self._store.host and row.callback_due is not None:
            self._begin_to_tell()
        for waiter in self._waiters.get(row.id, ()):
            waiter.set()
        self._fill()

    def _fill(self) -> None:
        """Start as many tasks as may run at once."""
        while self._waiting and not self._is_stopping and len(self._running) < self._number("maxRunningTasks", 8):
            task_id = next(iter(self._waiting))
            run = TaskRun()
            try:
                self._context.tasks.spawn(self._supervise(task_id, run), name=f"the task {task_id}", finish=True)
            except PermissionDenied:  # the plugin is being unloaded
                self._is_stopping = True
                return
            del self._waiting[task_id]
            self._running[task_id] = run

    def _stop(self) -> None:
        self._is_stopping = True
        for run in self._running.values():
            run.end("stopped")

    # --- carrying out -----------------------------------------------------------------------------

    async def _supervise(self, task_id: str, run: TaskRun) -> None:
        """Carry a task out in a task of its own, which ends in order also where this one is cancelled."""
        work = asyncio.create_task(self._carry(task_id, run), name=f"carry out {task_id}")
        self._works.add(work)
        work.add_done_callback(self._works.discard)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self._stop()  # the host stops, or the plugin is unloaded
            await asyncio.wait([work])
            raise

    async def _carry(self, task_id: str, run: TaskRun) -> None:
        try:
            row = None if task_id in self._refused else await self._store.get(task_id)
            if row is not None and row.owner == self._store.host and row.status is TaskStatus.PENDING:
                await self._execution.call(row, run)
        except TavernError as error:
            self._context.log.error("the task %s could not be read, or its end be written: %s", task_id, error.message)
        finally:
            self._running.pop(task_id, None)
            self._fill()

    # --- notifying ----------------------------------------------------------------------------------

    def _publish(self, row: TaskRow) -> None:
        """Publish how a task stands to the host's pages and plugins."""
        try:
            self._context.events.publish("TOOL_CALL_UPDATE", update_payload(row))
            if row.status is TaskStatus.AWAITING_APPROVAL:
                self._context.events.publish("APPROVAL_REQUEST", approval_payload(row))
        except TavernError as error:
            self._context.log.debug("a change of the task %s was not told: %s", row.id, error.message)

    def _begin_to_tell(self) -> None:
        """Deliver the callbacks that are due."""
        if self._is_stopping or (self._telling is not None and not self._telling.done()):
            return
        with contextlib.suppress(PermissionDenied):  # the plugin is being unloaded
            self._telling = self._context.tasks.spawn(self._notifier.tell(self._keep()), name="tell callbacks of tasks")

    async def _record_decision(self, row: TaskRow) -> None:
        """Put a decision into the audit log; the call continues only after that."""
        approval = row.approval
        if approval is None or approval.decision is None:
            return
        project, trace = self._context.project.id, row.entry.call.trace_id
        call = system_call(project)
        if approval.decided_by is not None:
            by, via = approval.decided_by, approval.decided_via
            call = CallContext(principal=by, project=project, trace_id=trace, via=via)
        self._audit(f"toolApproval.{approval.decision}", row, audit_details(row), call)
        await self._store.audited(row.id)

    def _audit(self, action: str, row: TaskRow, details: dict[str, JsonValue], call: CallContext) -> None:
        details = {"by": str(call.principal), "tool": row.tool_id, **details}
        self._context.audit.record(action, subject=row.id, details=details, call=call)

    # --- small parts ------------------------------------------------------------------------------

    async def _kept(self, task_id: str) -> TaskRow:
        row = await self._store.get(task_id)
        if row is None or (row.finished is not None and row.finished < self._kept_since()):
            raise _unknown(task_id)
        return row

    async def _visible(self, task_id: str, call: CallContext) -> TaskRow:
        row = await self._kept(task_id)
        if not _sees_all(call.principal) and row.entry.call.principal != call.principal:
            raise _unknown(task_id)
        return row

    def _keep(self) -> timedelta:
        return timedelta(days=self._number("keepTasksDays", 7))

    def _kept_since(self) -> int:
        """Return since when tasks have ended that are kept, in microseconds since 1970."""
        return clock.microseconds() - int(self._keep().total_seconds() * 1e6)

    def _number(self, key: str, default: int) -> int:
        value = self._context.settings.get(key, default)
        return int(value) if isinstance(value, int | float) else default


def _all_of(status: TaskStatus) -> TaskFilter:
    return TaskFilter(statuses=[status], limit=1000)


def _sees_all(principal: Principal) -> bool:
    return principal.kind in ("user", "system")


def _unknown(task_id: str) -> NotFound:
    return NotFound(f"there is no task {task_id!r:.80}")
