"""Collects what happens in a run and passes it on in batches: to the node table, the cache, the journal, and as the
platform's messages to clients.

What happens to a node is one row here; everything that takes longer is done for a whole batch, when the nodes pause.
Nodes that completed without anything special are most of them: their rows are columns, passed on as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from itertools import repeat
from math import isfinite
from typing import Any, NamedTuple

from pydantic import JsonValue

from tavern_engine.cache.cache import SMALL, OutputCache, owned
from tavern_engine.compile.plan import Plan
from tavern_engine.journal.batch_rows import Note
from tavern_engine.journal.journal import RunJournal
from tavern_engine.run.json_values import MESSAGE, See, is_json, json_form, without_large
from tavern_engine.run.node_reports import NodeReports
from tavern_engine.run.node_table import NodeTable, State
from tavern_engine.run.stream_messages import IsRead, Message, Publish, StreamMessages, brief
from tavern_engine.run.streams import KEPT_ITEMS
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import RunStatus
from tavern_workflows.api.dataflow import collected

KEPT = "kept"
"""The journal's name of a result of the run that this one continues."""

STATUS_NAMES = {
    KEPT: RunStatus.COMPLETE,
    "complete": RunStatus.COMPLETE,
    "partial": RunStatus.COMPLETE,
    "bypassed": RunStatus.COMPLETE,
    "error": RunStatus.ERROR,
    "interrupted": RunStatus.INTERRUPTED,
}
"""The journal's names for node outcomes, and the status of each. Rows of loops have others."""

_NAMES = {State.DONE.value: "complete", State.BYPASSED.value: "bypassed", State.FAILED.value: "error"}
_NAMES[State.INTERRUPTED.value] = "interrupted"
PARTIAL = b""
"""Replaces the signature of outputs that are shown and never reused: a stream of which a part is missing."""


class Columns(NamedTuple):
    """Nodes that completed without anything special: what is said of one stands at the same place in each list.

    `unchecked` are the places whose outputs hold more than numbers: they are examined before anybody sees them.
    """

    numbers: list[int]
    began: list[float]
    ended: list[float]
    outputs: list[dict[str, Any]]
    signatures: list[bytes | None]
    unchecked: list[int]


_FIELDS = len(Columns._fields) - 1


class Completions:
    """Collects completions. `rows` has the fields of each, one after another: number, began, ended, outputs, signature.
    So one statement adds a node, and the garbage collector need not visit a tuple for each.
    """

    __slots__ = ("rows", "unchecked")

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.unchecked: list[int] = []

    def __len__(self) -> int:
        return len(self.rows) // _FIELDS

    def add_unchecked(self, row: tuple[int, float, float, dict[str, Any], bytes | None]) -> None:
        """Append a row whose outputs hold more than numbers."""
        self.unchecked.append(len(self))
        self.rows += row

    def columns(self) -> Columns:
        """Return the rows in columns."""
        numbers, began, ended, outputs, signatures = (self.rows[field::_FIELDS] for field in range(_FIELDS))
        return Columns(numbers, began, ended, outputs, signatures, self.unchecked)

    def move_to(self, other: Completions) -> None:
        """Append all rows to another's and drop them here. The lists stay the same: a worker holds on to them."""
        first = len(other)
        other.unchecked += [first + row for row in self.unchecked] if first else self.unchecked
        other.rows += self.rows
        self.rows.clear()
        self.unchecked.clear()


class NodeEvent(NamedTuple):
    """What happened to one node where that is no plain completion; `place` is how many completions came before."""

    place: int
    number: int
    state: int
    began: float
    ended: float
    outputs: dict[str, Any] | None
    signature: bytes | None
    error: ErrorInfo | None


class EventBatch:
    """What happened in one run since the last flush. Times are those of `time.perf_counter`.

    Clients receive `NODE_EXECUTING` for a node that suspends; for one that begins and ends within one step of the
    event loop they receive its completion only.
    """

    def __init__(
        self,
        run_id: str,
        plan: Plan,
        table: NodeTable,
        publish: Publish,
        *,
        cache: OutputCache | None = None,
        journal: RunJournal | None = None,
        see: See | None = None,
        digests: Callable[[], dict[int, bytes]] = dict,
        is_read: IsRead = lambda type: True,
    ) -> None:
        self._see = see
        self._make_digests = digests
        self._completed = Completions()
        self._rows: list[NodeEvent] = []
        self.stream_messages = StreamMessages(run_id, plan.ids, publish, is_read)
        self.reports = NodeReports(run_id, plan.ids, table, publish)
        self.table = table
        self.journal = journal
        self.cache = cache
        self._run_id = run_id
        self._plan = plan
        self._publish = publish
        self._base = time.perf_counter()
        self._is_inner = False

    @cached_property
    def _digests(self) -> dict[int, bytes]:
        """By number what is journaled in the place of a signature; see `BoundPlan.digests`."""
        return self._make_digests()

    def begin(self) -> None:
        """Count times from here."""
        self._base = self.table.base = time.perf_counter()

    def for_loop_body(self) -> EventBatch:
        """Return the batch for the body of a loop: its events are published and neither cached nor journaled."""
        batch = EventBatch(self._run_id, self._plan, self.table, self._publish, see=self._see)
        batch.stream_messages, batch.reports = self.stream_messages, self.reports
        batch._base = self._base
        batch._is_inner = True
        return batch

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._base

    def taken(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Return a node's outputs as an event shows them, owned by the event; empty where outputs are not shown."""
        return owned(outputs) if self.table.shows_outputs else {}

    def add_completed(self, completed: Completions) -> None:
        """Take over completions, and leave none there."""
        completed.move_to(self._completed)

    def add(
        self,
        number: int,
        state: int,
        outputs: dict[str, Any] | None = None,
        *,
        began: float = 0.0,
        ended: float = 0.0,
        signature: bytes | None = None,
        error: ErrorInfo | None = None,
    ) -> None:
        """Add what happened to a node; for a stream, its outputs have the list of its items."""
        place = len(self._completed)
        self._rows.append(NodeEvent(place, number, state, began, ended, outputs, signature, error))

    def executing(self, numbers: list[int]) -> None:
        """Publish that nodes are suspended in the middle of their work."""
        shown, run_id = self._plan.ids, self._run_id
        self.table.start(numbers, time.perf_counter())
        self._publish([("NODE_EXECUTING", {"promptId": run_id, "nodeId": shown[number]}) for number in numbers])

    def journal_iteration(
        self, number: int, signature: bytes | None, index: int, state: dict[str, Any], numbers: list[int], since: float
    ) -> None:
        """Write the state from which a loop resumes after `index` iterations, and, to be shown, the nodes inside of it:
        those of `numbers` that ended after `since`."""
        if self.journal is None:
            return
        now = self.now()
        known = signature or self._digests.get(number)
        self.journal.add(self._plan.ids[number], known, (now, now), state, Note("iteration", iteration=index))
        self.journal_inner(numbers, since)

    def journal_inner(self, numbers: list[int], since: float) -> None:
        """Write, to be shown, what became last of nodes, of a loop say, that ended after `since`."""
        if self.journal is None:
            return
        table = self.table
        for number in numbers:
            name = _NAMES.get(table.states[number])
            if name is not None and table.finished[number] >= since:
                times = (table.started[number] - self._base, table.finished[number] - self._base)
                attempts, remote = table.attempts.get(number, 1), table.remote.get(number)
                note = Note(name, table.errors.get(number), attempts, remote=remote)
                self.journal.add(self._plan.ids[number], None, times, table.outputs[number], note)

    def close(self) -> None:
        """Pass on the rest, and write which nodes still run, to be shown: they are interrupted."""
        self.flush()
        self.journal_inner(self.table.close(), 0.0)

    def reused(self, found: Iterable[tuple[int, dict[str, Any]]], *, are_given: bool = False) -> None:
        """Add nodes whose outputs of an earlier run are valid and read by others, or were given with this one."""
        state, mark = (State.GIVEN, "given") if are_given else (State.CACHED, "cached")
        streaming, ids, run_id, put = self._plan.streaming, self._plan.ids, self._run_id, self.table.put
        messages: list[Message] = []
        for number, outputs in found:
            streams = streaming.get(number, ())
            is_plain = not streams and plain_characters(outputs) is not None
            display = outputs if is_plain else shown(outputs, streams, self._see)
            put(number, state, display, None, None)
            brought = display if is_plain else without_large(display, most=MESSAGE)
            about = {"promptId": run_id, "nodeId": ids[number], "output": brought, mark: True}
            messages.append(("NODE_COMPLETE", about))
        if messages:
            self._publish(messages)

    def reused_unread(self, numbers: list[int]) -> None:
        """Add nodes whose outputs of an earlier run are valid and that are not read in this one."""
        self.table.mark(numbers, State.CACHED)
        if numbers:
            ids = list(map(self._plan.ids.__getitem__, numbers))
            self._publish([("NODE_CACHED", {"promptId": self._run_id, "nodeIds": ids})])

    def flush(self) -> None:
        """Pass on what was added since the last time."""
        if not self._completed.rows and not self._rows:
            return
        completed, self._completed = self._completed.columns(), Completions()
        rows, self._rows = self._rows, []
        if not self._plan.is_current():
            self.cache = None  # the nodes may have read settings that their signatures do not name
        payloads = self._pass_on(completed)
        if not rows:
            self._publish(zip(repeat("NODE_COMPLETE"), payloads))
        elif messages := self._merged(payloads, rows, completed.numbers):
            self._publish(messages)

    def _pass_on(self, done: Columns) -> list[dict[str, Any]]:
        """Pass completions on to the journal, the cache and the node table; return the payload of each message."""
        numbers, outputs, table = done.numbers, done.outputs, self.table
        ids = list(map(self._plan.ids.__getitem__, numbers))
        if self._is_inner:
            table.count_iteration(numbers)
        if self.journal is not None:
            self._journal_completed(self.journal, done, ids)
        cacheable = dict(zip(done.signatures, outputs, strict=True))
        lengths: dict[bytes | None, int] = {}
        brought: dict[int, dict[str, JsonValue]] = {}
        if done.unchecked:
            outputs = outputs.copy()
        for place in done.unchecked:
            output, signature = outputs[place], done.signatures[place]
            characters = plain_characters(output)
            if characters is not None:
                lengths[signature] = characters
                continue
            outputs[place] = display = output if is_json(output) else shown(output, see=self._see)
            brought[place] = without_large(display, most=MESSAGE)
            cacheable.pop(signature, None)
            if signature and self.cache is not None:
                self.cache.put(signature, output, is_owned=True)
        for unused in (None, PARTIAL):
            cacheable.pop(unused, None)
            lengths.pop(unused, None)
        if cacheable and self.cache is not None:
            self.cache.put_plain(cacheable, sum(lengths.values()))  # type: ignore[arg-type]  # None is no longer in it
        table.complete(numbers, done.began, done.ended, outputs)
        run_id = self._run_id
        payloads: list[dict[str, Any]] = [
            {"promptId": run_id, "nodeId": node_id, "output": output}
            for node_id, output in zip(ids, outputs, strict=True)
        ]
        for place, display in brought.items():
            payloads[place]["output"] = display
        return payloads

    def _journal_completed(self, journal: RunJournal, done: Columns, ids: list[str]) -> None:
        signatures, digests, base = done.signatures, self._digests, self._base
        if PARTIAL in signatures:
            columns = (done.numbers, done.began, done.ended, done.outputs, signatures)
            for number, began, ended, output, signature in zip(*columns, strict=True):
                self._journal_event(journal, NodeEvent(0, number, State.DONE, began, ended, output, signature, None))
            return
        if None in signatures:
            signatures = [s or digests.get(number) for s, number in zip(signatures, done.numbers, strict=True)]
        times = [t - base for t in done.began], [t - base for t in done.ended]
        journal.add_complete(ids, signatures, *times, done.outputs)

    def _merged(self, payloads: list[dict[str, Any]], rows: list[NodeEvent], numbers: list[int]) -> list[Message]:
        """Pass the other events on; return the messages of all events, in the order in which they happened."""
        messages = [("NODE_COMPLETE", payload) for payload in payloads]
        latest = {number: place for place, number in enumerate(numbers)} if self._is_inner else {}
        found: list[Message] = []
        start = 0
        for row in rows:
            found += messages[start : row.place]
            start = row.place
            message = self._pass_event(row, is_superseded=latest.get(row.number, -1) >= start)
            if message is not None:
                found.append(message)
        return found + messages[start:]

    def _pass_event(self, row: NodeEvent, *, is_superseded: bool) -> Message | None:
        """Pass one event on; return its message. `is_superseded`: the node completed in a later iteration of its
        loop since, so the table has that already."""
        _, number, state, began, ended, output, signature, error = row
        streams = self._plan.streaming.get(number, ())
        characters = plain_characters(output) if output is not None and not streams else None
        display = output
        if output is not None and characters is None and (streams or not is_json(output)):
            display = shown(output, streams, self._see)
        is_timed = state != State.SKIPPED
        if is_timed and self._is_inner and number not in self._plan.loops:  # a loop counts its own iterations
            self.table.count_iteration((number,))
        if is_timed and self.journal is not None:
            self._journal_event(self.journal, row)
        if not is_superseded:
            self.table.put(number, state, display, error, (began, ended) if is_timed else None)
        about: dict[str, Any] = {"promptId": self._run_id, "nodeId": self._plan.ids[number]}
        if number in self.table.remote:
            about["remote"] = self.table.remote[number].to_json()
        if state == State.FAILED and error is not None:
            return "NODE_ERROR", {**about, "errorDetails": error.to_json()}
        if state == State.BYPASSED:
            return "NODE_BYPASSED", {**about, "pseudoOutputs": display or {}}
        if state != State.DONE or output is None or display is None:
            return None
        if signature and self.cache is not None:
            if characters is not None:
                self.cache.put_plain({signature: output}, characters)
            else:
                self.cache.put(signature, output, is_owned=True)
        if streams:
            display = brief(display, streams)
        if characters is None:
            display = without_large(display, most=MESSAGE)
        return "NODE_COMPLETE", {**about, "output": display}

    def _journal_event(self, journal: RunJournal, row: NodeEvent) -> None:
        _, number, state, began, ended, output, signature, error = row
        name = _NAMES[state]
        if signature == PARTIAL and output is not None:
            name, output = "partial", shown(output, self._plan.streaming.get(number, ()))
        known, times = signature or self._digests.get(number), (began - self._base, ended - self._base)
        note = Note(name, error, self.table.attempts.get(number, 1), remote=self.table.remote.get(number))
        journal.add(self._plan.ids[number], known, times, output, note)

    async def wait_for_journal(self) -> None:
        """Wait where the journal is too far behind: back-pressure on the run."""
        if self.journal is not None and self.journal.is_full:
            await self.journal.drain()


def shown(outputs: dict[str, Any], streams: Collection[str] = (), see: See | None = None) -> dict[str, JsonValue]:
    """Return outputs as a run shows them; `streams` are those that are lists of a stream's items, of which very many
    are cut. `see` is called with each Blob."""
    return {str(key): json_form(_of_stream(v) if key in streams else v, see) for key, v in outputs.items()}


def _of_stream(items: list[Any]) -> Any:
    """Return all text of a stream of texts, else the first items."""
    return collected(items if items and isinstance(items[0], str) else items[:KEPT_ITEMS])


def plain_characters(outputs: dict[str, Any]) -> int | None:
    """Return how many characters are in outputs that hold nothing but numbers and short ASCII texts, so that they are
    shown and cached as they are; None for others."""
    count = 0
    for value in outputs.values():
        kind = value.__class__
        if kind is str and value.isascii():
            count += len(value)
        elif kind is not int and kind is not bool and value is not None and (kind is not float or not isfinite(value)):
            return None
    return count if count <= SMALL else None
