"""A run that is loaded from the run store, to be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from tavern_engine.api.runs import RunEntry
from tavern_engine.cache.cache import copied
from tavern_engine.journal.batch_rows import Note
from tavern_engine.journal.journal import RunJournal
from tavern_engine.run.event_batch import KEPT
from tavern_engine.run.loop_log import LoopState
from tavern_host.contracts.workflows import Workflow

T = TypeVar("T")
_NEVER = (0.0, 0.0)
Signed: TypeAlias = tuple[bytes | None, T]


@dataclass(frozen=True)
class StoredRun:
    """A run with what its nodes gave. `results` are the outputs of nodes that finished, `loops` the states of loops,
    both by node id and with their signatures."""

    entry: RunEntry
    workflow: Workflow
    groups: dict[str, Workflow]
    results: dict[str, Signed[dict[str, Any]]] = field(default_factory=dict)
    loops: dict[str, Signed[LoopState]] = field(default_factory=dict)

    def valid(self, signatures: Mapping[str, bytes | None]) -> StoredRun:
        """Return the run without the results and loops of nodes that have another signature now."""

        def same(found: dict[str, Signed[T]]) -> dict[str, Signed[T]]:
            return {id: kept for id, kept in found.items() if kept[0] and kept[0] == signatures.get(id)}

        return replace(self, results=same(self.results), loops=same(self.loops))

    def finished(self) -> dict[str, dict[str, Any]]:
        """Return `results` without signatures."""
        return {id: outputs for id, (_, outputs) in self.results.items()}

    def states(self) -> dict[str, LoopState]:
        """Return `loops` without signatures."""
        return {id: state for id, (_, state) in self.loops.items()}

    def journal(self, journal: RunJournal) -> None:
        """Write the results into the journal of a run that continues this one, so that it needs this one no more."""
        for id, (signature, outputs) in self.results.items():
            journal.add(id, signature, _NEVER, copied(outputs), Note(KEPT))
        for id, (signature, state) in self.loops.items():
            row = {"from": 0, "state": copied(state.carried), "each": copied(state.each)}
            journal.add(id, signature, _NEVER, row, Note("iteration", iteration=state.index))
