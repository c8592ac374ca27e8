"""A run that is loaded from the run store, to be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tavern_engine.run.loop_log import LoopState
from tavern_host.contracts.runs import RunEntry
from tavern_host.contracts.workflows import Workflow

T = TypeVar("T")


@dataclass(frozen=True)
class StoredRun:
    """A run with what its nodes gave. `results` are the outputs of nodes that finished, `loops` the states of loops,
    both by node id and with their signatures."""

    entry: RunEntry
    workflow: Workflow
    groups: dict[str, Workflow]
    results: dict[str, tuple[bytes | None, dict[str, Any]]] = field(default_factory=dict)
    loops: dict[str, tuple[bytes | None, LoopState]] = field(default_factory=dict)

    def valid(self, signatures: Mapping[str, bytes | None]) -> tuple[dict[str, dict[str, Any]], dict[str, LoopState]]:
        """Return `results` and `loops` without those of nodes that have another signature now."""

        def same(found: dict[str, tuple[bytes | None, T]]) -> dict[str, T]:
            return {id: kept for id, (signature, kept) in found.items() if signature in (None, signatures.get(id))}

        return same(self.results), same(self.loops)
