"""The outcomes of the nodes of a run: rows as they are written in batches, and as they are read.

A batch is a sequence of frames. A frame is a head in JSON, then the times of its rows, the beginnings before the ends,
the signatures, and the values that are not in the head. The head has lists of ids, of the lengths of signatures (-1 for
none; one number where all are alike) and of outputs; what is said of some rows alone, by row: status, error, attempts,
iteration and what a cluster did; and the values that are apart: row, output, kind, and where.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import RemoteWork

COMPLETE = "complete"
"""The status of a node that gave its outputs."""

MAGIC = b"TVB3"
"""What each frame begins with."""

HEADER = struct.Struct("<4sIII")
"""Magic, CRC-32 of what follows the header, its length, the length of the head in it."""

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


class Rows:
    """Outcomes of nodes: of each its id, signature, beginning, end, outputs and, where there is more to say, a
    `Note`, one after another in one list: the garbage collector need not visit a tuple for each."""

    __slots__ = ("fields",)
    WIDTH = 6

    def __init__(self, fields: list[Any] | None = None) -> None:
        self.fields = fields or []

    def __len__(self) -> int:
        return len(self.fields) // self.WIDTH

    def column(self, place: int) -> list[Any]:
        """Return one of the fields of all rows."""
        return self.fields[place :: self.WIDTH]

    def part(self, first: int, count: int) -> Rows:
        """Return some of the rows."""
        return Rows(self.fields[first * self.WIDTH : (first + count) * self.WIDTH])

    def are_short(self) -> bool:
        """Return whether these are few rows, of numbers and short texts."""
        values = [v for outputs in self.column(4)[: FEW + 1] if outputs is not None for v in outputs.values()]
        are_short = all(type(each) in _NUMBERS or (type(each) is str and len(each) <= SHORT) for each in values)
        return len(self) <= FEW and are_short


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
