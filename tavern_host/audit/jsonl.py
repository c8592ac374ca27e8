"""Reads older audit logs: lines of JSON, each batch followed by a seal that hashes it and the seal before.

Such a log is verified, and imported into the table, once; nothing writes it any more.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tavern_host.audit.anchor import Mark
from tavern_host.contracts.audit import UnnumberedEntry
from tavern_host.storage.confined_fs import confined_folder, open_file

MAX_LINE = 2**20
"""What is longer is no entry."""

_ENTRY = re.compile(rb'\{"seq":(\d{1,18}),"time":"([^"\\]{1,40})",(.*\})\n', re.DOTALL)
_SEAL = re.compile(
    rb'(\{"seal":(\d{1,18}),"entries":(\d{1,18}),"last":(\d{1,18}),"recovered":(\d{1,18}),"torn":(\d{1,18}))'
    rb',"hash":"([0-9a-f]{64})"\}\n'
)


class JsonlLog:
    """One log. After `read` was followed to its end, the attributes say what was found, as those of `AuditCheck` do;
    `entries` counts those up to the first problem."""

    def __init__(self, path: Path, marks: Sequence[Mark]) -> None:
        self._path = path
        self._marks = marks
        self.entries = self.unsealed = self.recovered = self.torn = 0
        self.seal = Mark(0, "", is_seal=True)
        self.line: int | None = None
        self.problem: str | None = None

    def read(self) -> Iterator[UnnumberedEntry]:
        """Yield all lines that are entries, also after a problem; none where there is no log. Raises `OSError`."""
        unseen, line, torn = set(self._marks), 0, 0
        hasher, first, odd = hashlib.sha256(), 1, None
        for piece, begins_line in self._pieces():
            line += begins_line
            seal = _SEAL.fullmatch(piece) if begins_line else None
            entry = _ENTRY.fullmatch(piece) if begins_line and seal is None else None
            if entry is not None:
                yield entry[2].decode("ascii", "replace"), entry[3]
            if self.problem is not None:
                continue
            if seal is not None:
                hasher.update(seal[1])
                if odd is None and hasher.hexdigest() != seal[7].decode():
                    what = f"lines {first} to {line} are not as they were sealed: something was changed or deleted"
                    odd = first, what
                number, entries, last, recovered, lines = (int(seal[n]) for n in range(2, 7))
                if odd is None and (number, entries, last, lines) != self._expected(torn):
                    odd = line, "the seal is not one for the lines before it"
                if odd is not None:
                    self.line, self.problem = odd
                    continue
                self.seal = Mark(number, seal[7].decode(), is_seal=True)
                unseen.discard(self.seal)
                self.recovered, self.torn = self.recovered + recovered, self.torn + torn
                self.unsealed = torn = 0
                hasher, first = hashlib.sha256(seal[7]), line + 1
                continue
            hasher.update(piece)
            if entry is not None and int(entry[1]) == self.entries + 1:
                self.entries, self.unsealed = self.entries + 1, self.unsealed + 1
            elif begins_line:
                torn += 1
                if entry is not None and odd is None:
                    odd = line, f"entry {int(entry[1])} follows entry {self.entries}"
        self.torn += torn
        if self.problem is None and odd is not None:
            self.line, self.problem = odd
        elif self.problem is None and unseen:
            lacked = next(mark for mark in self._marks if mark in unseen)
            self.line, self.problem = line, lacked.lacking(self.seal.number)

    def _expected(self, torn: int) -> tuple[int, int, int, int]:
        return self.seal.number + 1, self.unsealed, self.entries, torn

    def _pieces(self) -> Iterator[tuple[bytes, bool]]:
        """Yield the lines, in parts where they are too long, and of each part whether a line begins with it."""
        try:
            with confined_folder(self._path.parent, []) as folder:
                descriptor = open_file(folder, self._path.name)
        except FileNotFoundError:
            return
        with os.fdopen(descriptor, "rb") as file:
            begins_line = True
            while piece := file.readline(MAX_LINE):
                yield piece, begins_line
                begins_line = piece.endswith(b"\n")
