"""The anchor of an audit log: a small file in the operator's own folder that remembers the log's newest hash.

The log itself lies with the project. The anchor shows that its end was cut off, or that it was replaced as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tavern_host.storage.files import make_folder, write_atomic

MARKS = 16
"""How many marks an anchor keeps: the newest, and each older one that the log was found to lack."""

_MAX_BYTES = 2**16


@dataclass(frozen=True)
class Mark:
    """An entry of the log by number and hash."""

    number: int
    hash: str

    def lacking(self, last: int) -> str:
        """Return the reason why a log whose newest entry is `last` lacks this one."""
        if self.number > last:
            return f"the end was cut off: it has {last} entries, and the operator's anchor knows entry {self.number}"
        return f"it was replaced: its entry {self.number} is not the one that the operator's anchor knows"


class AnchorProblem(Exception):
    """An anchor cannot be read or written; the text names it."""


def read_anchor(path: Path | None) -> list[Mark]:
    """Return the marks of an anchor, oldest first; none where there is none. Raises `AnchorProblem`."""
    if path is None:
        return []
    try:
        with path.open("rb") as file:
            marks = json.loads(file.read(_MAX_BYTES))["marks"]
        return [Mark(int(m["entry"]), str(m["hash"])) for m in marks]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise AnchorProblem(f"{path} cannot be used: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise AnchorProblem(f"{path} is damaged; if that is no loss, remove it") from None


def write_anchor(path: Path, marks: Sequence[Mark]) -> None:
    """Replace the marks of an anchor. Raises `AnchorProblem`."""
    content = {"marks": [{"entry": mark.number, "hash": mark.hash} for mark in marks]}
    try:
        make_folder(path.parent)
        write_atomic(path, json.dumps(content).encode() + b"\n", mode=0o600)
    except OSError as error:
        raise AnchorProblem(f"{path} cannot be used: {error.strerror}") from None
