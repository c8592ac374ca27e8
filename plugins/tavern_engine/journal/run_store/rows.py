"""Runs as rows of the database: what is written of a `RunEntry` and a `RunEnd`, and what is read back."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from tavern_host.contracts.errors import Interrupted, InvalidInput, TavernError
from tavern_host.contracts.executions import RunFilter, RunRequest, RunStatus, RunSummary
from tavern_host.contracts.runs import RunEnd, RunEntry

MAX_NAME = 500
"""How many characters the id of a run or the name of a worker may have."""

SEARCHED = 4000
"""How many characters of an error are looked at in a search."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FOREVER = 2**62
"""A moment that never comes."""


class Standing(NamedTuple):
    """What an update writes, by column."""

    status: str
    is_final: int
    attempt: int
    started: int | None
    finished: int | None
    error: str | None
    fault: str
    not_resumable: str | None
    state: bytes


def micros(moment: datetime) -> int:
    """Return a time as the database has it; one without a time zone is taken as UTC."""
    if moment.utcoffset() is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def moment(value: int | None) -> datetime | None:
    """Return a time of the database. Raises `OverflowError` for one out of range."""
    return None if value is None else _EPOCH + timedelta(microseconds=value)


def lease_end(now: int, lease: float) -> int:
    """Return when a lease of some seconds is over. Raises `InvalidInput` for what is no length of time."""
    if not (isinstance(lease, int | float) and lease > 0) or math.isnan(lease):
        raise InvalidInput(f"a lease is some seconds, more than 0, not {lease!r}")
    return now + int(min(lease, 1e9) * 1_000_000)


def checked(name: Any, what: str) -> str:
    """Return a name that can be kept. Raises `InvalidInput`."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or text(name) != name:
        raise InvalidInput(f"{what} must be a text of 1 to {MAX_NAME} characters, not {name!r:.80}")
    return name


def text(value: str) -> str:
    """Return a text that UTF-8 has; of a lone surrogate its code is written out."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


# --- writing ------------------------------------------------------------------------------------------


def entry_blob(entry: RunEntry) -> bytes:
    """Return the immutable part of a run. Raises `InvalidInput` for what cannot be kept, such as NaN."""
    return _blob(
        {
            "request": entry.request
            if entry.request.workflow is None
            else entry.request.model_copy(update={"workflow": None}),
            "workflow": entry.workflow,
            "groups": entry.groups,
            "call": entry.call,
            "workflowId": entry.workflow_id,
            "workflowName": entry.workflow_name,
        },
        f"the run {entry.id} cannot be kept",
    )


def standing(entry: RunEntry | RunEnd, run_id: str, now: int) -> Standing:
    """Return how a run stands, as columns. Raises `InvalidInput` for outputs that cannot be kept."""
    error = entry.error
    message = None if error is None else text(error.message)
    finished = None if entry.finished_at is None else micros(entry.finished_at)
    return Standing(
        status=entry.status.value,
        is_final=int(entry.status.is_final),
        attempt=entry.attempt,
        started=None if entry.started_at is None else micros(entry.started_at),
        finished=now if finished is None and entry.status.is_final else finished,
        error=message,
        fault="" if message is None else message[:SEARCHED].casefold(),
        not_resumable=None if entry.not_resumable is None else text(entry.not_resumable),
        state=_blob({"outputs": entry.outputs, "error": error}, f"the end of the run {run_id} cannot be kept"),
    )


def label(entry: RunEntry) -> str:
    """Return what a search finds a run by, its error apart."""
    return f"{entry.id}\n{text(entry.workflow_name or '')}".casefold()


def _blob(content: dict[str, Any], what: str) -> bytes:
    try:
        return _encoder.encode(content).encode("utf-8", "surrogatepass")  # a lone surrogate comes back as it was
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what}: {str(error) or type(error).__name__}") from None


def _form(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")


_encoder = json.JSONEncoder(default=_form, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# --- reading ------------------------------------------------------------------------------------------

ENTRY_COLUMNS = (
    "id, status, attempt, submitted, started, finished, owner, lease_until, not_resumable, is_unwanted, entry, state"
)
SUMMARY_COLUMNS = "id, status, workflow_id, workflow_name, submitted, started, finished, error, attempt, not_resumable"


def read_entry(row: tuple[Any, ...]) -> RunEntry:
    """Return the run of a row of `ENTRY_COLUMNS`. Raises `TavernError` for one that cannot be read."""
    run_id, status, attempt, submitted, started, finished, *more = row
    owner, lease_until, not_resumable, is_unwanted, entry, state = more
    try:
        kept, stands = json.loads(entry), json.loads(state)
        return RunEntry.model_validate(
            {
                "id": run_id,
                "status": status,
                "request": RunRequest.model_validate(kept["request"]),
                "workflow": kept["workflow"],
                "groups": kept["groups"],
                "call": kept["call"],
                "workflow_id": kept["workflowId"],
                "workflow_name": kept["workflowName"],
                "submitted_at": moment(submitted),
                "started_at": moment(started),
                "finished_at": moment(finished),
                "outputs": stands["outputs"],
                "error": stands["error"],
                "attempt": attempt,
                "not_resumable": not_resumable,
                "owner": owner,
                "lease_until": moment(lease_until),
                "is_unwanted": is_unwanted,
            },
            by_name=True,
            by_alias=True,
        )
    except (ValidationError, ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise _damaged(run_id, error) from None


def read_summary(row: tuple[Any, ...]) -> RunSummary:
    """Return the summary of a row of `SUMMARY_COLUMNS`. Raises `TavernError` for one that cannot be read."""
    run_id, status, workflow_id, workflow_name, submitted, started, finished, error, attempt, not_resumable = row
    try:
        return RunSummary(
            id=run_id,
            status=RunStatus(status),
            workflow_id=workflow_id,
            workflow_name=workflow_name,
            submitted_at=_EPOCH + timedelta(microseconds=submitted),
            started_at=moment(started),
            finished_at=moment(finished),
            error=error,
            attempt=attempt,
            resumable=not_resumable is None,
        )
    except (ValidationError, ValueError, TypeError, OverflowError) as wrong:
        raise _damaged(run_id, wrong) from None


def _damaged(run_id: Any, error: Exception) -> TavernError:
    detail = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error
    return TavernError(f"the record of the run {run_id} is damaged: {type(error).__name__}: {detail}")


def query(filter: RunFilter) -> tuple[str, list[Any]]:
    """Return the statement that lists the runs of a filter, and its parameters."""
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *given: Any) -> None:
        conditions.append(condition)
        values.extend(given)

    if filter.statuses:
        add(f"status IN ({', '.join('?' * len(filter.statuses))})", *(status.value for status in filter.statuses))
    if filter.workflow_id is not None:
        add("workflow_id = ?", text(filter.workflow_id))
    if filter.since is not None:
        add("submitted >= ?", micros(filter.since))
    if filter.until is not None:
        add("submitted <= ?", micros(filter.until))
    if filter.text:
        sought = text(filter.text).casefold()
        add("(instr(label, ?) > 0 OR instr(fault, ?) > 0)", sought, sought)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    values += [filter.limit, min(filter.offset, _FOREVER)]
    return f"SELECT {SUMMARY_COLUMNS} FROM runs{where} ORDER BY submitted DESC, seq DESC LIMIT ? OFFSET ?", values


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
