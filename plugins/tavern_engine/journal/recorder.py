"""Records the runs of one engine in the run store, and loads them: for the history, and to resume them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from cachetools import FIFOCache
from pydantic import JsonValue

from tavern_engine.api.runs import RunEnd, RunEntry, RunStore
from tavern_engine.journal.batch_decoder import fetched
from tavern_engine.journal.batch_rows import COMPLETE, Batch, NodeRow
from tavern_engine.journal.claims import Claims
from tavern_engine.journal.documents import documents_of, pack
from tavern_engine.journal.journal import DELAY, Journal, Last, RunJournal, read_results, read_rows
from tavern_engine.journal.leases import LEASE
from tavern_engine.journal.stored_run import StoredRun
from tavern_engine.run.event_batch import KEPT as FROM_BEFORE
from tavern_engine.run.event_batch import STATUS_NAMES, EventBatch, shown
from tavern_engine.run.loop_log import LoopState
from tavern_engine.run.record import RunRecord, run_of
from tavern_engine.run.run_blobs import input_blobs
from tavern_host import PluginContext
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.documents import to_thread_if_large
from tavern_host.contracts.errors import Conflict, Misconfigured, NotFound, ServiceUnavailable, TavernError
from tavern_host.contracts.executions import NodeState, Run, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_host.storage.retried_writes import until_written
from tavern_workflows.api.loops import ITERATIONS

PATIENCE = 5.0
"""Seconds that the end of a run may wait for the store before it is published all the same."""

RETRY_AFTER = 5
"""Seconds after which it is worth asking again for a run that could not be recorded."""

NOT_RECORDED = "it could not be recorded"
"""Why a run cannot be resumed that the store does not have, before the reason."""

KEPT = 1000
"""How many documents are known to be in the store, so that they are not put there again."""


class RunRecorder:
    """The engine's side of the run store. Without such a service runs run and are not recorded. Where it fails, a host
    that serves accepts none, and the others run them all the same."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self.claims = Claims(context)
        self._call = system_call(context.project.id)
        self._journal: Journal | None = None
        self._kept: FIFOCache[str, None] = FIFOCache(KEPT)
        self._starts: dict[str, asyncio.TimerHandle | asyncio.Task[None]] = {}
        self._live: set[str] = set()  # recorded or not; the store knows those that were resumed

    @property
    def _store(self) -> RunStore | None:
        return self.claims.store

    def behind(self) -> float:
        """Return for how many seconds the store has not done a write of results; see `Journal.behind`."""
        return 0.0 if self._journal is None else self._journal.behind()

    # --- a run's life -----------------------------------------------------------------------------

    async def accept(self, record: RunRecord) -> None:
        """Record a new run; when this returns, it survives the end of the process, unless it is inline. Raises
        `NotFound` for a Blob among its inputs that is not there, `Misconfigured` for a store that cannot be used as it
        was set up, `ServiceUnavailable` for one that cannot be written now."""
        self._live.add(record.id)
        try:
            if blobs := input_blobs(record.workflow, record.request.inputs):
                await self._context.blobs.hold(record.id, blobs)
            if not record.is_inline:
                await self._record(record)
        except BaseException:
            self._live.discard(record.id)
            raise

    async def record_ended(self, record: RunRecord, batch: EventBatch) -> None:
        """Record an inline run that has ended, with the states of its nodes; `end` is to follow."""
        try:
            await self._record(record)
        except TavernError as error:
            self._context.log.error("%s", error.message)
            return
        batch.journal = self.begin(record, lambda: None, lambda: None)
        batch.journal_inner([*range(len(record.nodes.states))], 0.0)

    async def _record(self, record: RunRecord) -> None:
        store = self._store
        if store is None or not record.request.keep:
            return
        try:
            for attempt in range(2):
                entry, documents = await self._entry(record)
                new = tuple(content for name, content in documents.items() if name not in self._kept)
                try:
                    await store.accept(entry, worker=self.claims.worker, lease=LEASE, documents=new, call=self._call)
                    self._kept.update(dict.fromkeys(documents))
                    break
                except NotFound:  # an unused document was pruned meanwhile
                    self._kept.clear()
                    if attempt:
                        raise
        except (Misconfigured, Conflict):  # a store that cannot be used waits for no run; its id is another's run
            raise
        except BaseException as error:  # such as a full disk, a database that is away, or a caller that is gone
            self.claims.withdraw(record.id, error)
            if not isinstance(error, Exception):
                raise
            if self._context.serving:  # an accepted run is found again
                message = f"the run {record.id} was not accepted, since {NOT_RECORDED}: {_reason(error)}"
                raise ServiceUnavailable(message, retry_after=RETRY_AFTER, run_id=record.id) from error
            record.not_resumable = self._not_recorded(record, error)  # a command has the result itself
            return
        self.claims.add(record.id)

    def begin(self, record: RunRecord, lost: Callable[[], object], unwanted: Callable[[], object]) -> RunJournal | None:
        """Return the journal of a run that is recorded. `lost` is called when another worker has claimed it, `unwanted`
        when somebody elsewhere asks that it ends."""
        store = self._store
        if record.id not in self.claims.owned or store is None:
            return None
        self._journal = self._journal or Journal(store, self.claims.worker, self._context.log)

        def not_resumable(reason: str) -> None:
            record.not_resumable = record.not_resumable or reason

        self.claims.hold(record.id, lost, unwanted)
        return self._journal.begin(record.id, not_resumable=not_resumable, lost=lost)

    def drop(self, record: RunRecord) -> None:
        """Record nothing of a run that another worker has taken."""
        self._live.discard(record.id)
        self.claims.discard(record.id)
        if self._journal is not None:
            self._journal.drop(record.id)

    async def started(self, record: RunRecord) -> None:
        """Record that a run has started: soon, since most end before. One that was taken up at once, so that its
        attempts are counted although it ends the host."""
        if record.is_resumed:
            await self._update(record, RunStatus.RUNNING, {})
        elif record.id in self.claims.owned:
            self._starts[record.id] = asyncio.get_running_loop().call_later(DELAY, self._write_start, record)

    async def catch_up(self, running: Iterable[RunRecord]) -> None:
        """Record the starts of these runs that are not recorded yet, so that the store says what runs."""
        for record in running:
            start = self._starts.get(record.id)
            if isinstance(start, asyncio.TimerHandle):
                start.cancel()
                self._write_start(record)
        writing = [start for start in self._starts.values() if isinstance(start, asyncio.Task)]
        if writing:
            await asyncio.wait(writing)

    def _write_start(self, record: RunRecord) -> None:
        update = self._update(record, RunStatus.RUNNING, {})
        self._starts[record.id] = asyncio.get_running_loop().create_task(update, name=f"start of {record.id}")

    async def _wait_for_start(self, record: RunRecord) -> None:
        """Return when the start of a run is written, or will not be, since what is written now has it."""
        start = self._starts.pop(record.id, None)
        if isinstance(start, asyncio.TimerHandle):
            start.cancel()
        elif start is not None and not start.done():  # waiting takes a turn, in which a stopping host closes the store
            await asyncio.wait([start])

    async def calls_begin(self, record: RunRecord) -> None:
        """Record that the calls in a run's outputs are made from here on: resumed, the run would make them twice."""
        await self._wait_for_start(record)
        known, record.not_resumable = record.not_resumable, "the calls in its outputs may have been made"
        await self._update(record, RunStatus.RUNNING, {})
        record.not_resumable = known

    async def end(self, record: RunRecord, run: Run) -> None:
        """Flush the journal of a run, and record its end."""
        self._live.discard(record.id)
        if record.id not in self.claims.owned or self._journal is None:
            return
        store = self._store  # where the host stops, it is withdrawn while this is written

        async def write_end(batch: Batch | None) -> None:
            self.claims.unhold(record.id)  # a run that has ended is nobody's: that is no loss
            await self._update(record, run.status, run.outputs, run, store, batch)

        try:
            async with asyncio.timeout(PATIENCE):
                await self._wait_for_start(record)
                if run.status is not RunStatus.COMPLETE:  # whether it can be resumed is known when all is written
                    await self._journal.drain(record.id)
                await self._journal.end(record.id, write_end)
        except Exception as error:  # such as a full disk, or a store that takes long
            self._context.log.error("run %s: its end could not be written yet: %s", record.id, _reason(error))
            late = self._end_later(record, write_end, self._journal)
            self._context.tasks.spawn(late, name=f"end of {record.id}", finish=True)
            return
        self.claims.discard(record.id)  # not where it is cancelled: then it is called once more

    async def _end_later(self, record: RunRecord, write_end: Last, journal: Journal) -> None:
        """Record the end of a run when that is possible; until then the run stays this worker's."""

        async def write() -> None:
            try:
                await write_end(None)
            except TavernError:
                self.claims.hold(record.id, None, lambda: None)
                raise

        def tell(error: TavernError) -> None:
            self._context.log.error("run %s: its end could not be written: %s", record.id, error.message)

        try:
            try:
                await journal.end(record.id, write_end)  # what was begun
            except Exception:
                journal.drop(record.id)
                await until_written(write, tell, self._context.is_stopping)
        except TavernError as error:  # it is written by now, or another worker's, or the host stops
            self._context.log.info("run %s: its end was not written: %s", record.id, error.message)
        finally:
            self.claims.discard(record.id)

    async def detach(self, record: RunRecord) -> None:
        """Flush the journal of a run and leave it as it stands, for the next host to take up."""
        self._live.discard(record.id)
        if record.id in self.claims.owned and self._journal is not None:
            await self.catch_up([record])
            await self._journal.drain(record.id)

    async def close(self) -> None:
        """Flush all journals, and release the leases."""
        if self._journal is not None:
            await self._journal.close()
        await self.claims.close()

    # --- reading ----------------------------------------------------------------------------------

    async def load(self, entry: RunEntry, *, results: bool = True) -> StoredRun:
        """Return the stored parts that resume a run. Raises `NotFound` where a document is gone, `TavernError`."""
        store = self.claims.required_store()
        workflow, groups = await documents_of(entry, store.content)
        if not results:
            return StoredRun(entry, workflow, groups)
        found = await read_results(await store.batches(entry.id), store.content, self._context.log)
        finished: dict[str, tuple[bytes | None, dict[str, Any]]] = {}
        loops: dict[str, tuple[bytes | None, LoopState]] = {}
        for (node_id, iteration), row in found.items():
            if row.outputs is None:
                continue
            if iteration is not None:
                if node_id not in loops or loops[node_id][0] != row.signature:
                    loops[node_id] = (row.signature, LoopState())
                loops[node_id][1].apply(iteration, row.outputs)
            elif row.status in (COMPLETE, FROM_BEFORE):
                finished[node_id] = (row.signature, row.outputs)
        return StoredRun(entry, workflow, groups, finished, loops)

    async def entry(self, run_id: str) -> RunEntry:
        """Return the entry of a run. Raises `NotFound`."""
        return await self.claims.required_store().get(run_id)

    async def run(self, run_id: str, most: int | None = None) -> Run:
        """Return a recorded run with the outputs of its nodes, with placeholders for those of more than `most` bytes.
        Raises `NotFound`."""
        store = self.claims.required_store()
        entry = await store.get(run_id)
        rows = await read_rows(await store.batches(run_id), self._context.log)
        nodes = {
            node_id: NodeState(status=RunStatus.COMPLETE, output=outputs, given=True)
            for node_id, outputs in entry.request.overrides.items()
        }
        for row in rows:
            if row.status == RunStatus.INTERRUPTED and entry.error is None:  # the run was resumed, or will be
                continue
            state = await self._node_state(row, store, most)
            before = nodes.get(row.node_id)
            if state is not None and before is not None and before.iterations is not None:
                count = (state.output or {}).get(ITERATIONS)
                count = count if isinstance(count, int) else before.iterations
                nodes[row.node_id] = state.model_copy(update={"iterations": count})
            elif state is not None:
                nodes[row.node_id] = state
            elif row.iteration is not None:
                status = RunStatus.INTERRUPTED if entry.status.is_final else entry.status
                nodes[row.node_id] = NodeState(status=status, iterations=row.iteration)
        return run_of(entry, entry.status, entry.outputs, nodes)

    async def prune(self, *, max_age: float, max_bytes: int) -> int:
        """Delete old runs; see `RunStore.prune`. The Blobs of those that are gone are released, not those of runs that
        are active here, recorded or not."""
        store = self._store
        if store is None:
            return 0
        count = await store.prune(max_age=max_age, max_bytes=max_bytes)
        for run_id in await self._context.blobs.holders():
            if run_id not in self._live:
                try:
                    await store.get(run_id)
                except NotFound:
                    await self._context.blobs.release(run_id)
        return count

    # --- helpers ----------------------------------------------------------------------------------

    async def _entry(self, record: RunRecord) -> tuple[RunEntry, dict[str, bytes]]:
        """Return the entry that is stored of a run, and by hash the documents that it refers to."""
        content, name = await _document(record.workflow)
        documents, groups = {name: content}, {}
        for key, group in record.groups.items():
            content, groups[key] = await _document(group)
            documents[groups[key]] = content
        request = record.request
        entry = RunEntry.construct(
            id=record.id,
            request=request.model_copy(update={"workflow": None}) if request.workflow is not None else request,
            workflow=name,
            groups=groups,
            call=record.call,
            workflow_id=record.workflow_id,
            workflow_name=record.workflow_name,
            submitted_at=record.submitted_at,
            attempt=record.attempt,
        )
        return entry, documents

    async def _update(
        self,
        record: RunRecord,
        status: RunStatus,
        outputs: dict[str, JsonValue],
        run: Run | None = None,
        store: RunStore | None = None,
        batch: Batch | None = None,
    ) -> None:
        """Write how a run stands, into `store` also where it took too long; a failure is logged, and raised where it is
        the end of a `run`."""
        store = store or (self._store if record.id in self.claims.owned else None)
        if store is None:
            return
        end = RunEnd.construct(
            status=status,
            started_at=record.started_at,
            finished_at=run.finished_at if run is not None else None,
            outputs=outputs,
            missing_outputs=record.missing_outputs,
            error=run.error if run is not None else None,
            attempt=record.attempt,
            not_resumable=record.not_resumable,
        )
        last, large = (batch.content, tuple(batch.large)) if batch is not None else (b"", ())
        try:
            await store.update(self.claims.worker, record.id, end, batch=last, contents=large, call=self._call)
        except Exception as error:
            if run is not None:
                raise
            self._not_recorded(record, error)

    def _not_recorded(self, record: RunRecord, error: Exception) -> str:
        reason = _reason(error)
        self._context.log.error("run %s could not be recorded and runs all the same: %s", record.id, reason)
        return f"{NOT_RECORDED}: {reason}"

    async def _node_state(self, row: NodeRow, store: RunStore, most: int | None) -> NodeState | None:
        status = STATUS_NAMES.get(row.status)
        if status is None:
            return None
        try:
            outputs = await fetched(row, store.content, most)
        except TavernError:
            outputs = None
        is_kept = row.status == FROM_BEFORE
        return NodeState(
            status=status,
            output=shown(outputs) if outputs is not None else None,
            error=row.error,
            started=None if is_kept else round(row.started, 6),
            finished=None if is_kept else round(row.finished, 6),
            cached=is_kept,
            bypassed=row.status == "bypassed",
            attempts=row.attempts,
            remote=row.remote,
        )


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, TavernError) else f"{type(error).__name__}: {error}"


async def _document(workflow: Workflow) -> tuple[bytes, str]:
    """Return a document as it is stored, and its hash; of a large one made in a thread."""
    return await to_thread_if_large(len(workflow.nodes) > 50, _packed, workflow)


def _packed(workflow: Workflow) -> tuple[bytes, str]:
    """Return a document as it is stored, and the hash by which the store finds it."""
    content = pack(workflow)
    return content, hashlib.sha256(content).hexdigest()
