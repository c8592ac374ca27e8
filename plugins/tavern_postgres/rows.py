"""Runs as rows of the database: what is written of a `RunEntry` and a `RunEnd`, and what is read back."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.executions import RunFilter, RunStatus, RunSummary
from tavern_host.contracts.runs import RunEnd, RunEntry

MAX_NAME = 500
"""How many characters the id of a run or the name of a worker may have."""

SEARCHED = 4000
"""How many characters of an error are looked at in a search."""

ENTRY_COLUMNS = (
    "id, status, attempt, submitted, started, finished, owner, lease_until, not_resumable, is_unwanted, entry, state"
)
SUMMARY_COLUMNS = "id, status, workflow_id, workflow_name, submitted, started, finished, error, attempt, not_resumable"


def text(value: str) -> str:
    """Return a text that PostgreSQL has; of a NUL or a lone surrogate its code is written out."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def checked(name: Any, what: str) -> str:
    """Return a name that can be kept. Raises `InvalidInput`."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or text(name) != name:
        raise InvalidInput(f"{what} must be a text of 1 to {MAX_NAME} characters, not {name!r:.80}")
    return name


def seconds(lease: float) -> float:
    """Return the length of a lease. Raises `InvalidInput` for what is none."""
    if not (isinstance(lease, int | float) and lease > 0) or math.isnan(lease):
        raise InvalidInput(f"a lease is some seconds, more than 0, not {lease!r}")
    return min(lease, 1e9)


def aware(moment: datetime | None) -> datetime | None:
    """Return a time with its zone; one without is UTC."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.utcoffset() is None else moment


def entry_values(entry: RunEntry) -> dict[str, Any]:
    """Return the columns of a new run that no update changes. Raises `InvalidInput` for what cannot be kept."""
    request = entry.request.model_copy(update={"workflow": None})
    kept = {
        "request": request,
        "workflow": entry.workflow,
        "groups": entry.groups,
        "call": entry.call,
        "workflowId": entry.workflow_id,
        "workflowName": entry.workflow_name,
    }
    return {
        "id": entry.id,
        "priority": entry.request.priority,
        "submitted": aware(entry.submitted_at),
        "workflow_id": None if entry.workflow_id is None else text(entry.workflow_id),
        "workflow_name": None if entry.workflow_name is None else text(entry.workflow_name),
        "label": f"{entry.id}\n{text(entry.workflow_name or '')}".casefold(),
        "entry": _json(kept, f"the run {entry.id} cannot be kept"),
    }


def standing(end: RunEntry | RunEnd, run_id: str) -> dict[str, Any]:
    """Return how a run stands, as columns. Raises `InvalidInput` for outputs that cannot be kept."""
    message = None if end.error is None else text(end.error.message)
    finished = aware(end.finished_at)
    return {
        "status": end.status.value,
        "is_final": end.status.is_final,
        "attempt": end.attempt,
        "started": aware(end.started_at),
        "finished": datetime.now(UTC) if finished is None and end.status.is_final else finished,
        "error": message,
        "fault": "" if message is None else message[:SEARCHED].casefold(),
        "not_resumable": None if end.not_resumable is None else text(end.not_resumable),
        "state": _json({"outputs": end.outputs, "error": end.error}, f"the end of the run {run_id} cannot be kept"),
    }


def read_entry(row: tuple[Any, ...]) -> RunEntry:
    """Return the run of a row of `ENTRY_COLUMNS`. Raises `TavernError` for one that cannot be read."""
    columns = dict(zip(ENTRY_COLUMNS.split(", "), row, strict=True))
    try:
        kept, stands = json.loads(columns.pop("entry")), json.loads(columns.pop("state"))
        times = {f"{name}_at": columns.pop(name) for name in ("submitted", "started", "finished")}
        return RunEntry.model_validate({**columns, **kept, **stands, **times}, by_name=True, by_alias=True)
    except (ValidationError, ValueError, TypeError, LookupError, RecursionError) as error:
        detail = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error
        raise TavernError(f"the record of the run {columns['id']} is damaged: {detail}") from None


def read_summary(row: tuple[Any, ...]) -> RunSummary:
    """Return the summary of a row of `SUMMARY_COLUMNS`."""
    run_id, status, workflow_id, workflow_name, submitted, started, finished, error, attempt, not_resumable = row
    return RunSummary(
        id=run_id,
        status=RunStatus(status),
        workflow_id=workflow_id,
        workflow_name=workflow_name,
        submitted_at=submitted,
        started_at=started,
        finished_at=finished,
        error=error,
        attempt=attempt,
        resumable=not_resumable is None,
    )


def query(filter: RunFilter) -> tuple[str, dict[str, Any]]:
    """Return the statement that lists the runs of a filter, and its parameters."""
    conditions: list[str] = ["TRUE"]
    if filter.statuses:
        conditions.append("status = ANY(%(statuses)s)")
    if filter.workflow_id is not None:
        conditions.append("workflow_id = %(workflow_id)s")
    if filter.since is not None:
        conditions.append("submitted >= %(since)s")
    if filter.until is not None:
        conditions.append("submitted <= %(until)s")
    if filter.text:
        conditions.append("(strpos(label, %(text)s) > 0 OR strpos(fault, %(text)s) > 0)")
    values = {
        "statuses": [status.value for status in filter.statuses],
        "workflow_id": text(filter.workflow_id or ""),
        "since": aware(filter.since),
        "until": aware(filter.until),
        "text": text(filter.text or "").casefold(),
        "limit": filter.limit,
        "offset": min(filter.offset, 2**62),
    }
    return (
        f"SELECT {SUMMARY_COLUMNS} FROM runs WHERE {' AND '.join(conditions)}"
        " ORDER BY submitted DESC, seq DESC LIMIT %(limit)s OFFSET %(offset)s",
        values,
    )


def _json(content: dict[str, Any], what: str) -> bytes:
    try:
        return _encoder.encode(content).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what}: {str(error) or type(error).__name__}") from None


def _form(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")


_encoder = json.JSONEncoder(default=_form, allow_nan=False, separators=(",", ":"))
