"""Runs as rows of SQLite: times are microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tavern_engine.api.run_rows import RunRows, lease_seconds
from tavern_engine.api.runs import RunEnd, RunEntry
from tavern_host.contracts.errors import Interrupted
from tavern_host.contracts.executions import RunStatus

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def text(value: str) -> str:
    """Return a text that UTF-8 has; of a lone surrogate its code is written out."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


ROWS = RunRows(
    text=text,
    moment=lambda moment: (moment - _EPOCH) // _MICROSECOND,
    time=lambda value: _EPOCH + timedelta(microseconds=value),
    find="instr",
)


def lease_end(now: int, lease: float) -> int:
    """Return when a lease of some seconds is over. Raises `InvalidInput` for what is no length of time."""
    return now + int(lease_seconds(lease) * 1_000_000)


def begun_elsewhere(entry: RunEntry) -> RunEnd:
    """Return the end of a run that is not resumed here."""
    advice = f"`tavern runs resume {entry.id}` resumes it"
    if entry.not_resumable is not None:
        advice = f"it cannot be resumed: {entry.not_resumable}"
    message = f"it was started elsewhere, or before the project was moved, and was not resumed here; {advice}"
    return RunEnd(
        status=RunStatus.INTERRUPTED,
        outputs=entry.outputs,
        error=Interrupted(message).info,
        attempt=entry.attempt,
        not_resumable=entry.not_resumable,
    )
