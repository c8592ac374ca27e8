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
    """An entry of the log by number and hash; with `is_seal` a seal of a log of lines, see `audit.jsonl`."""

    number: int
    hash: str
    is_seal: bool = False

    def lacking(self, last: int) -> str:
        """Return what it means that a log whose newest entry or seal is `last` lacks this one."""
        kind, kinds = ("seal", "seals") if self.is_seal else ("entry", "entries")
        if self.number > last:
            return f"the end was cut off: it has {last} {kinds}, and the operator's anchor knows {kind} {self.number}"
        return f"it was replaced: its {kind} {self.number} is not the one that the operator's anchor knows"


class AnchorProblem(Exception):
    """An anchor cannot be read or written; the text names it."""


def read_anchor(path: Path | None) -> list[Mark]:
    """Return the marks of an anchor, oldest first; none where there is none. Raises `AnchorProblem`."""
    if path is None:
        return []
    try:
        with path.open("rb") as file:
            marks = json.loads(file.read(_MAX_BYTES))["marks"]
        return [Mark(int(m["seal" if "seal" in m else "entry"]), str(m["hash"]), "seal" in m) for m in marks]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise AnchorProblem(f"{path} cannot be used: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise AnchorProblem(f"{path} is damaged; if that is no loss, remove it") from None


def write_anchor(path: Path, marks: Sequence[Mark]) -> None:
    """Replace the marks of an anchor. Raises `AnchorProblem`."""
    content = {"marks": [{"seal" if mark.is_seal else "entry": mark.number, "hash": mark.hash} for mark in marks]}
    try:
        make_folder(path.parent)
        write_atomic(path, json.dumps(content).encode() + b"\n", mode=0o600)
    except OSError as error:
        raise AnchorProblem(f"{path} cannot be used: {error.strerror}") from None
