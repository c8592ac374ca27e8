"""The runs that ended last, in memory: encoded as the journal encodes results, and bounded by their bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from math import isnan, nan
from typing import Any

from tavern_engine.cache.cache import size_of
from tavern_engine.journal.batch_decoder import decode_rows, fetched
from tavern_engine.journal.batch_encoder import encode_rows
from tavern_engine.journal.batch_rows import COMPLETE, FEW, NodeRow, Note, Rows
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.executions import NodeState, Run, RunStatus

_VALUES = ("inputs", "outputs", "metadata")
"""What of a run is encoded as the outputs of a node are, before its nodes."""

_RUN, _NODE = 4096, 1024
"""About how many bytes a run takes, and each node that is not encoded, beside their values."""

_SMALL = 64 * 1024
"""How many bytes a run may have that is kept as it is: encoding it would take longer than the run."""


@dataclass
class Kept:
    """A run without its values and nodes, these as the journal has them, and by hash the large ones among them. A small
    run is whole, and `content` None; so is one with a value that has no codec. `size` is in bytes, without the large
    values."""

    run: Run
    content: bytes | None
    size: int
    large: dict[str, bytes] = field(default_factory=dict)


class FinishedRuns:
    """The last runs, as many as fit into `limit()` bytes; a large value that several have is kept once. One that is
    larger is not remembered."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self.ended: dict[str, Run] = {}
        """Those that are to be encoded."""
        self._kept: dict[str, Kept] = {}
        self._large: dict[str, tuple[bytes, int]] = {}
        """By hash the large values, and how many runs have each."""
        self.size = 0
        """How many bytes the runs take."""

    def runs(self) -> Iterable[Run]:
        """Return the runs, the oldest first; large ones without their values and nodes."""
        return [*(kept.run for kept in self._kept.values()), *self.ended.values()]

    async def get(self, run_id: str, most: int | None = None) -> Run | None:
        """Return a run, if it is remembered, with placeholders for large values of more than `most` bytes."""
        kept = self._kept.get(run_id)
        return self.ended.get(run_id) if kept is None else await decoded(kept, most)

    async def encode(self, run_id: str) -> None:
        """Encode one of `ended`, off the event loop."""
        run = self.ended[run_id]
        kept = await asyncio.to_thread(encoded, run)
        if self.ended.get(run_id) is run:  # else it was resumed meanwhile
            self.add(run, kept)

    def add(self, run: Run, kept: Kept | None = None) -> None:
        """Remember a run that ended, and forget the oldest for it. A large one without `kept` is one of `ended`."""
        self.forget(run.id)
        if kept is None:
            size = _size(run, items=FEW * FEW) if len(run.nodes) <= FEW else None
            if size is None or size > _SMALL:
                self.ended[run.id] = run
                return
            kept = Kept(run, None, size)
        limit = self._limit()
        if kept.size + sum(map(len, kept.large.values())) > limit:
            return
        for name, content in kept.large.items():
            known, holders = self._large.get(name, (content, 0))
            kept.large[name] = known
            self._large[name] = known, holders + 1
            self.size += 0 if holders else len(known)
        self._kept[run.id] = kept
        self.size += kept.size
        while self.size > limit:
            self.forget(next(iter(self._kept)))

    def forget(self, run_id: str) -> None:
        """Forget a run, if it is remembered."""
        self.ended.pop(run_id, None)
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


def _size(run: Run, items: int) -> int | None:
    """Return how many bytes a run takes as it is; None where its values have more than so many items."""
    values = [run.inputs, run.outputs, run.metadata, *(state.output for state in run.nodes.values())]
    size = size_of(values, items=items)
    return None if size is None else size + _RUN + len(run.nodes) * _NODE


def encoded(run: Run) -> Kept:
    """Return a run as it is kept: whole, where a value has no codec."""
    values = [(name, None, nan, nan, getattr(run, name), None) for name in _VALUES]
    rows = Rows([*chain.from_iterable(values), *chain.from_iterable(map(_row, run.nodes.items()))])
    contents: list[bytes] = []
    large: dict[str, bytes] = {}
    done = 0
    while done < len(rows):
        batch = encode_rows(rows, done)
        if batch.lacking:
            return Kept(run, None, _size(run, items=10**9) or 0)
        contents.append(batch.content)
        large |= batch.large
        done += batch.rows
    bare: dict[str, Any] = {name: {} for name in (*_VALUES, "nodes")}
    content = b"".join(contents)
    return Kept(run.model_copy(update=bare), content, _RUN + len(content), large)


async def decoded(kept: Kept, most: int | None = None) -> Run:
    """Return a run that is kept, with placeholders for large values of more than `most` bytes."""
    if kept.content is None:
        return kept.run
    rows = await asyncio.to_thread(decode_rows, [kept.content], _damaged)

    async def content(name: str) -> bytes:
        return kept.large[name]

    outputs = [await fetched(row, content, most) for row in rows]
    count = len(_VALUES)
    states = {row.node_id: _state(row, output) for row, output in zip(rows[count:], outputs[count:], strict=True)}
    return kept.run.model_copy(update={**dict(zip(_VALUES, outputs, strict=False)), "nodes": states})


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
