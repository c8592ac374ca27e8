"""The runs that ended last, in memory: encoded as the journal encodes results, and bounded by their bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from math import isnan, nan
from typing import Any

from tavern_engine.cache.cache import size_of
from tavern_engine.journal.batch_decoder import decode_rows, fetched
from tavern_engine.journal.batch_encoder import encode_rows
from tavern_engine.journal.batch_rows import COMPLETE, FEW, SHORT, NodeRow, Note, Rows
from tavern_host.contracts.documents import to_thread_if_large
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.executions import NodeState, Run, RunStatus

_VALUES = ("inputs", "outputs", "metadata")
"""What of a run is encoded as the outputs of a node are, before its nodes."""

_RUN = 4096
"""About how many bytes a run takes beside what is encoded of it."""


@dataclass
class _Kept:
    """A run without its values and nodes, these as the journal has them, and by hash the large ones among them. Where a
    value has no codec, the run is whole and `content` None. `size` is in bytes, without the large values."""

    run: Run
    content: bytes | None
    size: int
    large: dict[str, bytes] = field(default_factory=dict)


class FinishedRuns:
    """The last runs, as many as fit into `limit()` bytes; a large value that several have is kept once. One that is
    larger is not remembered."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._ended: dict[str, Run] = {}
        self._kept: dict[str, _Kept] = {}
        self._large: dict[str, tuple[bytes, int]] = {}
        """By hash the large values, and how many runs have each."""
        self.size = 0
        """How many bytes the encoded runs take."""

    def runs(self) -> Iterable[Run]:
        """Return the runs, the oldest first; most without their values and nodes."""
        return [*(kept.run for kept in self._kept.values()), *self._ended.values()]

    async def get(self, run_id: str, most: int | None = None) -> Run | None:
        """Return a run, if it is remembered, with placeholders for large values of more than `most` bytes."""
        kept = self._kept.get(run_id)
        if kept is None or kept.content is None:
            return self._ended.get(run_id) if kept is None else kept.run
        rows = await to_thread_if_large(kept.size > SHORT * FEW, decode_rows, [kept.content], _damaged)

        async def content(name: str) -> bytes:
            return kept.large[name]

        outputs = [await fetched(row, content, most) for row in rows]
        count = len(_VALUES)
        states = {row.node_id: _state(row, output) for row, output in zip(rows[count:], outputs[count:], strict=True)}
        return kept.run.model_copy(update={**dict(zip(_VALUES, outputs, strict=False)), "nodes": states})

    def add(self, run: Run) -> None:
        """Remember a run that ended, as it is until `encode`."""
        self.forget(run.id)
        self._ended[run.id] = run

    async def encode(self, run_id: str) -> None:
        """Encode a run that was added, and forget the oldest for it; off the event loop where it is large."""
        run = self._ended[run_id]
        kept = await to_thread_if_large(not _is_small(run), _encoded, run)
        if self._ended.get(run_id) is not run:  # it was resumed meanwhile
            return
        del self._ended[run_id]
        limit = self._limit()
        if kept.size + sum(map(len, kept.large.values())) > limit:
            return
        for name, content in kept.large.items():
            known, holders = self._large.get(name, (content, 0))
            kept.large[name] = known
            self._large[name] = known, holders + 1
            self.size += 0 if holders else len(known)
        self._kept[run_id] = kept
        self.size += kept.size
        while self.size > limit:
            self.forget(next(iter(self._kept)))

    def forget(self, run_id: str) -> None:
        """Forget a run, if it is remembered."""
        self._ended.pop(run_id, None)
        kept = self._kept.pop(run_id, None)
        if kept is None:
            return
        self.size -= kept.size
        for name in kept.large:
            content, holders = self._large.pop(name)
            if holders > 1:
                self._large[name] = content, holders - 1
            else:
                self.size -= len(content)


def _is_small(run: Run) -> bool:
    """Return whether encoding a run takes less than handing it to a thread."""
    if len(run.nodes) > FEW:
        return False
    values = [run.inputs, run.outputs, run.metadata, *(state.output for state in run.nodes.values())]
    size = size_of(values, items=FEW * FEW)
    return size is not None and size < FEW * SHORT


def _encoded(run: Run) -> _Kept:
    values = [(name, None, nan, nan, getattr(run, name), None) for name in _VALUES]
    rows = Rows([*chain.from_iterable(values), *chain.from_iterable(map(_row, run.nodes.items()))])
    contents: list[bytes] = []
    large: dict[str, bytes] = {}
    done = 0
    while done < len(rows):
        batch = encode_rows(rows, done)
        if batch.lacking:
            return _Kept(run, None, _RUN + (size_of(rows.fields, items=10**9) or 0))
        contents.append(batch.content)
        large |= batch.large
        done += batch.rows
    bare: dict[str, Any] = {name: {} for name in (*_VALUES, "nodes")}
    content = b"".join(contents)
    return _Kept(run.model_copy(update=bare), content, _RUN + len(content), large)


def _row(node: tuple[str, NodeState]) -> tuple[Any, ...]:
    """Return a node as a row of the journal, with NaN for a missing time, and what it is besides complete as its
    status."""
    node_id, state = node
    flags = ("cached" * state.cached, "given" * state.given, "bypassed" * state.bypassed)
    status = "".join(flags) or state.status.value
    note = Note(status, state.error, state.attempts, state.iterations, state.remote)
    times = (nan if time is None else time for time in (state.started, state.finished))
    return node_id, None, *times, state.output, None if note == _DONE else note


_DONE = Note(COMPLETE)


def _state(row: NodeRow, output: dict[str, Any] | None) -> NodeState:
    is_flag = row.status in ("cached", "given", "bypassed")
    return NodeState.construct(
        status=RunStatus.COMPLETE if is_flag else RunStatus(row.status),
        output=output,
        error=row.error,
        started=None if isnan(row.started) else row.started,
        finished=None if isnan(row.finished) else row.finished,
        cached=row.status == "cached",
        given=row.status == "given",
        bypassed=row.status == "bypassed",
        attempts=row.attempts,
        iterations=row.iteration,
        remote=row.remote,
    )


def _damaged(problem: str) -> None:
    raise TavernError(f"a finished run in memory {problem}")
