"""What became of the nodes of a run: rows as they are written in batches, and as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import RemoteWork

COMPLETE = "complete"
"""The status of a node that gave its outputs."""

FEW, SHORT = 20, 2000
"""How many rows, and characters of a value, are encoded on the event loop: less than handing them to a thread takes."""

_NUMBERS = frozenset({type(None), bool, int, float})

Outputs = dict[str, Any] | None


class Note(NamedTuple):
    """What became of a node that did not simply give its outputs when it was run once."""

    status: str = COMPLETE
    error: ErrorInfo | None = None
    attempts: int = 1
    iteration: int | None = None
    remote: RemoteWork | None = None


_USUAL = Note()


class Rows:
    """What became of nodes, in columns. `notes` are those of the rows that have one."""

    __slots__ = ("finished", "ids", "notes", "outputs", "signatures", "started")

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.signatures: list[bytes | None] = []
        self.started: list[float] = []
        self.finished: list[float] = []
        self.outputs: list[Outputs] = []
        self.notes: dict[int, Note] = {}

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def are_short(self) -> bool:
        """Whether these are few rows, of numbers and short texts."""
        if len(self) > FEW:
            return False
        values = [value for outputs in self.outputs if outputs is not None for value in outputs.values()]
        return all(type(each) in _NUMBERS or (type(each) is str and len(each) <= SHORT) for each in values)

    def add(
        self,
        ids: Sequence[str],
        signatures: Sequence[bytes | None],
        started: Sequence[float],
        finished: Sequence[float],
        outputs: Sequence[Outputs],
        note: Note = _USUAL,
    ) -> None:
        """Take several rows, by column."""
        if note != _USUAL:
            self.notes.update(dict.fromkeys(range(len(self.ids), len(self.ids) + len(ids)), note))
        self.ids += ids
        self.signatures += signatures
        self.started += started
        self.finished += finished
        self.outputs += outputs

    def part(self, first: int, count: int) -> Rows:
        """Return some of the rows."""
        found, last = Rows(), first + count
        found.ids, found.signatures = self.ids[first:last], self.signatures[first:last]
        found.started, found.finished = self.started[first:last], self.finished[first:last]
        found.outputs = self.outputs[first:last]
        if self.notes:
            found.notes = {row: self.notes[first + row] for row in range(len(found)) if first + row in self.notes}
        return found


@dataclass(frozen=True)
class Batch:
    """Encoded rows. `large` are the values to be stored by themselves, by hash; `lacking` says of each value that has
    no codec where it was and what it is."""

    content: bytes
    rows: int
    large: dict[str, bytes]
    lacking: tuple[str, ...]


class Stored(NamedTuple):
    """Stands for a large value that is stored by itself; `kind` says what its content is."""

    hash: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class NodeRow:
    """What became of a node. A large value of `outputs` is `Stored`; `fetched` puts it in.

    `lacking` says why the outputs of a node that gave some are None: a value among them has no codec.
    """

    node_id: str
    signature: bytes | None
    status: str
    started: float
    finished: float
    outputs: dict[str, Any] | None
    error: ErrorInfo | None = None
    attempts: int = 1
    iteration: int | None = None
    remote: RemoteWork | None = None
    lacking: str | None = None
