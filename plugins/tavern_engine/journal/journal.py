"""Writes the node results of running workflows to the run store, in batches and off the event loop; and reads them.

Knows nothing of how runs are resumed; the engine does that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

from tavern_engine.api.runs import RunStore
from tavern_engine.journal.batch_decoder import decode_rows, fetched
from tavern_engine.journal.batch_encoder import encode_rows
from tavern_engine.journal.batch_rows import Batch, NodeRow, Note, Rows
from tavern_host.contracts.errors import Conflict, TavernError, describe

DELAY = 0.025
"""Seconds that results wait for others, to be written in one batch; writing them takes its time too."""

MAX_WAITING = 50_000
"""How many results of one run may wait while others are written."""

MAX_BEHIND = 1.0
"""How many seconds the store may be busy with a batch before the run should wait for it."""

CLOSE_SECONDS = 10.0
"""How long closing waits for what is not written yet."""

Last = Callable[[Batch | None], Awaitable[None]]
"""Writes the end of a run together with its last batch, or raises; without a batch it never raises."""

# The window: what is lost when the process ends. A result waits for the write in progress, if there is one, and then
# `DELAY` for others. Of one run one write is in progress at a time, so its batches are in the store in the order in
# which the rows were added. What was not written is run again when the run is resumed.
# The end of a run is written in one transaction with its last batch, or after it: who reads in the store that a run has
# ended finds there all of its results that could be written. Where some could not be, the run continues, and
# `not_resumable` gets the reason; where another worker has the run (`Conflict`), no more of it is written here, and
# `lost` is called. A slow store holds nobody up who adds rows before `is_full`; then the run waits between two time
# slices.


class Journal:
    """Writes the results of one worker's runs. Made on the event loop, and closed by its owner."""

    def __init__(self, store: RunStore, worker: str, log: logging.Logger) -> None:
        self.store = store
        self.worker = worker
        self.log = log
        self._runs: dict[str, RunJournal] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._is_reported = False

    def begin(
        self,
        run_id: str,
        *,
        not_resumable: Callable[[str], object] = lambda reason: None,
        lost: Callable[[], object] = lambda: None,
    ) -> RunJournal:
        """Return the journal of a run that the worker has claimed.

        `not_resumable` is called at most once, with the reason why the run cannot be resumed after the end of the
        process; `lost` when the run is another worker's by now. Both are called on the event loop.
        """
        run = self._runs[run_id] = RunJournal(self, run_id, not_resumable, lost)
        return run

    def behind(self) -> float:
        """Return for how many seconds the slowest write that is not done has taken; 0 where nothing is written."""
        return max((run.behind() for run in self._runs.values()), default=0.0)

    async def drain(self, run_id: str) -> None:
        """Return when everything that was added to a run before is written, or could not be."""
        run = self._runs.get(run_id)
        if run is not None:
            await run.drain()

    async def end(self, run_id: str, last: Last) -> None:
        """Flush a run, and let `last` write its last batch, so that the store writes both at once; drop its journal."""
        run = self._runs.get(run_id)
        await (run.end(last) if run is not None else last(None))
        self._runs.pop(run_id, None)

    def drop(self, run_id: str) -> None:
        """Drop the journal of a run that has not begun."""
        self._runs.pop(run_id, None)

    async def close(self) -> None:
        """Flush all runs, for some seconds at most."""
        runs = [asyncio.ensure_future(run.drain()) for run in self._runs.values()]
        if runs:
            _, late = await asyncio.wait(runs, timeout=CLOSE_SECONDS)
            for run in late:
                run.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for journal in self._runs.values():
            journal.stop()
        self._runs.clear()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def encode(self, rows: Rows, first: int) -> Batch:
        """Return rows from `first` on as a batch, made on a thread unless they are few and short."""
        if rows.are_short():
            return encode_rows(rows, first)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        return await asyncio.get_running_loop().run_in_executor(self._thread, encode_rows, rows, first)

    def log_failure(self, run_id: str, error: Exception) -> str:
        """Log that the store fails, once until it works again; return the reason."""
        reason = error.message if isinstance(error, TavernError) else describe(error)
        if not self._is_reported:
            self.log.error("the results of the run %s could not be written; the run continues: %s", run_id, reason)
        self._is_reported = True
        return reason

    def record_success(self) -> None:
        """The next failure is logged again."""
        self._is_reported = False


class RunJournal:
    """The journal of one run. On the event loop; made by `Journal.begin`."""

    def __init__(
        self, journal: Journal, run_id: str, not_resumable: Callable[[str], object], lost: Callable[[], object]
    ) -> None:
        self._journal = journal
        self._run_id = run_id
        self._not_resumable = not_resumable
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._rows = Rows()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._writing_since = 0.0
        self._last: Last | None = None
        self._ending: asyncio.Future[None] | None = None
        self._kept: set[str] = set()
        self._is_reported = self._is_lost = False

    def add(
        self,
        node_id: str,
        signature: bytes | None,
        times: tuple[float, float],
        outputs: dict[str, Any] | None,
        note: Note,
    ) -> None:
        """Add a node result; it is written soon. Times are seconds since the run began.

        The values of `outputs` must not be changed afterwards.
        """
        self._rows.fields += (node_id, signature, *times, outputs, None if note == Note() else note)
        self._schedule()

    def add_complete(
        self,
        node_ids: Sequence[str],
        signatures: Sequence[bytes | None],
        started: Sequence[float],
        finished: Sequence[float],
        outputs: Sequence[dict[str, Any] | None],
    ) -> None:
        """Add the results of several nodes that completed at the first attempt, by column."""
        rows = zip(node_ids, signatures, started, finished, outputs, repeat(None))  # the last may be longer
        self._rows.fields.extend(chain.from_iterable(rows))
        self._schedule()

    @property
    def is_full(self) -> bool:
        """Whether the store is too far behind: then the run should `await room()`: back-pressure.

        To be asked now and then, such as once in a time slice.
        """
        return self._writing is not None and (len(self._rows) >= MAX_WAITING or self.behind() > MAX_BEHIND)

    def behind(self) -> float:
        """Return for how many seconds the write in progress has taken; 0 where there is none."""
        return 0.0 if self._writing is None else self._loop.time() - self._writing_since

    async def drain(self) -> None:
        """Return when everything that was added before is written, or could not be."""
        for _ in range(2):  # the write in progress, then what was queued since
            if self._writing is None and self._rows.fields:
                self._begin()
            if self._writing is not None:
                await asyncio.wait([self._writing])

    async def end(self, last: Last) -> None:
        """Write what was added before, the last batch of it by `last`."""
        self._last = last
        await self.drain()
        if self._last is not None:  # there was nothing to write, or that could not be written
            self._last = None
            if self._ending is None:  # a caller that is cancelled here calls again, while this continues
                self._ending = asyncio.ensure_future(last(None))
            await asyncio.shield(self._ending)

    def stop(self) -> None:
        """Discard what is not written."""
        self._is_lost = True
        self._rows = Rows()
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()

    # --- writing ----------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Schedule a write for soon, so that more rows share it."""
        if self._timer is None:
            self._timer = self._loop.call_later(DELAY, self._begin)

    def _begin(self) -> None:
        """Write the rows so far, unless a write is in progress; `_timer` stays set until it is done."""
        if self._writing is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._writing_since = self._loop.time()
        self._writing = self._loop.create_task(self._write(), name=f"journal of {self._run_id}")
        self._writing.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        self._timer = self._loop.call_later(DELAY, self._begin) if self._rows.fields else None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error if isinstance(error, Exception) else RuntimeError(describe(error)))

    async def _write(self) -> None:
        rows, self._rows = self._rows, Rows()
        done = 0
        while done < len(rows) and not self._is_lost:
            batch = await self._journal.encode(rows, done)
            done += batch.rows
            for reason in batch.lacking[:1]:
                self._tell(reason)
            try:
                await self._keep(batch, is_last=done == len(rows))
                self._journal.record_success()
            except Exception as error:  # whatever the store does, the run continues
                if isinstance(error, TavernError) and error.info.code == Conflict.code:
                    self._is_lost = True
                    self._journal.log.error("%s", error.message)
                    self._lost()
                else:
                    self._failed(error)

    async def _keep(self, batch: Batch, *, is_last: bool) -> None:
        store = self._journal.store
        for name, content in batch.large.items():
            if name not in self._kept:
                await store.put(content)
        if is_last and not self._rows.fields and self._last is not None:  # others may come while large values are put
            await self._last(batch)
            self._last = None
        else:
            await store.append(self._journal.worker, self._run_id, batch.content, contents=tuple(batch.large))
        self._kept.update(batch.large)

    def _failed(self, error: Exception) -> None:
        reason = self._journal.log_failure(self._run_id, error)
        self._tell(f"its results could not be written: {reason}")

    def _tell(self, reason: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._not_resumable(reason)


# --- reading ------------------------------------------------------------------------------------------

Key = tuple[str, int | None]
"""A node, and in a loop which of its iterations."""


async def read_rows(batches: list[bytes], log: logging.Logger) -> list[NodeRow]:
    """Return the rows of a run, in order, off the event loop; large values of theirs are `Stored`.

    What cannot be read is left out, which the log says.
    """
    return await asyncio.to_thread(decode_rows, batches, lambda problem: log.warning("%s", problem))


async def read_results(
    batches: list[bytes], content: Callable[[str], Awaitable[bytes]], log: logging.Logger
) -> dict[Key, NodeRow]:
    """Return by node and iteration the last result of each node that has outputs, to resume a run.

    Large values are read with `content` (`RunStore.content`); a node of which one is gone counts as not run. Whether
    a result may be reused depends on its signature.
    """
    results: dict[Key, NodeRow] = {}
    for row in await read_rows(batches, log):
        key = row.node_id, row.iteration
        results.pop(key, None)
        if row.outputs is not None:
            results[key] = row
    for key, row in list(results.items()):
        try:
            outputs = await fetched(row, content)
        except TavernError as error:
            log.warning("%s: the node %s counts as not run", error.message, row.node_id)
            del results[key]
        else:
            results[key] = replace(row, outputs=outputs)
    return results
