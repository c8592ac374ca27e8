"""Runs as rows: what the store writes of a `RunEntry` and a `RunEnd`, and what it reads back.

Times are microseconds since 1970. `entry` is what is never changed after a run was accepted, `state` what every update
replaces, both JSON as bytes. What is asked for stands in columns of its own; `label` and `fault` are case-folded texts
to search in.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ValidationError

from tavern_engine.api.executions import RunFilter, RunSummary
from tavern_engine.api.runs import RunEnd, RunEntry
from tavern_host import clock
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, TavernError

MAX_NAME = 500
"""How many characters the id of a run or the name of a worker may have."""

SEARCHED = 4000
"""How many characters of an error are looked at in a search."""

ENTRY_COLUMNS = (
    "id, status, attempt, submitted, started, finished, owner, lease_until, not_resumable, is_unwanted, entry, state"
)
SUMMARY_COLUMNS = "id, status, workflow_id, workflow_name, submitted, started, finished, error, attempt, not_resumable"

_DAMAGES = (ValidationError, ValueError, TypeError, LookupError, OverflowError, RecursionError)
_FOREVER = 2**62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def text(value: str) -> str:
    """Return a text that any database has; of a NUL or a lone surrogate its code is written out."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def checked(name: Any, what: str) -> str:
    """Return a name that can be kept. Raises `InvalidInput`."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or text(name) != name:
        raise InvalidInput(f"{what} must be a text of 1 to {MAX_NAME} characters, not {name!r:.80}")
    return name


def accepted(entry: RunEntry) -> dict[str, Any]:
    """Return the columns of a new run that no update changes. Raises `InvalidInput` for what cannot be kept."""
    request = entry.request
    kept = {
        "request": request if request.workflow is None else request.model_copy(update={"workflow": None}),
        "workflow": entry.workflow,
        "groups": entry.groups,
        "call": entry.call,
        "workflowId": entry.workflow_id,
        "workflowName": entry.workflow_name,
    }
    return {
        "id": entry.id,
        "priority": entry.request.priority,
        "submitted": _microseconds(entry.submitted_at),
        "workflow_id": _text(entry.workflow_id),
        "workflow_name": _text(entry.workflow_name),
        "label": f"{entry.id}\n{_text(entry.workflow_name) or ''}".casefold(),
        "entry": _json(kept, f"the run {entry.id} cannot be kept"),
    }


def standing(end: RunEntry | RunEnd, run_id: str) -> dict[str, Any]:
    """Return how a run stands, by column; `started` only where it says so. Raises `InvalidInput` for outputs that
    cannot be kept."""
    message = None if end.error is None else text(end.error.message)
    finished = clock.now() if end.finished_at is None and end.status.is_final else end.finished_at
    state = {"outputs": end.outputs, "missing_outputs": end.missing_outputs, "error": end.error}
    stands = {
        "status": end.status.value,
        "is_final": end.status.is_final,
        "attempt": end.attempt,
        "finished": None if finished is None else _microseconds(finished),
        "error": message,
        "fault": (message or "")[:SEARCHED].casefold(),
        "not_resumable": _text(end.not_resumable),
        "state": _json(state, f"the end of the run {run_id} cannot be kept"),
    }
    return stands if end.started_at is None else {**stands, "started": _microseconds(end.started_at)}


def entry(row: tuple[Any, ...]) -> RunEntry:
    """Return the run of a row of `ENTRY_COLUMNS`. Raises `TavernError` for one that cannot be read."""
    columns = dict(zip(ENTRY_COLUMNS.split(", "), row, strict=True))
    try:
        kept, stands = json.loads(columns.pop("entry")), json.loads(columns.pop("state"))
        times = {f"{name}_at": _time(columns.pop(name)) for name in ("submitted", "started", "finished")}
        times["lease_until"] = _time(columns.pop("lease_until"))
        columns["cancel_requested"] = columns.pop("is_unwanted")
        return RunEntry.model_validate({**kept, **stands, **columns, **times}, by_name=True, by_alias=True)
    except _DAMAGES as error:
        raise _damaged(row[0], error) from None


def summary(row: tuple[Any, ...]) -> RunSummary:
    """Return the summary of a row of `SUMMARY_COLUMNS`. Raises `TavernError` for one that cannot be read."""
    columns = dict(zip(SUMMARY_COLUMNS.split(", "), row, strict=True))
    try:
        times = {f"{name}_at": _time(columns.pop(name)) for name in ("submitted", "started", "finished")}
        resumable = columns.pop("not_resumable") is None
        return RunSummary.model_validate({**columns, **times, "resumable": resumable}, by_name=True)
    except _DAMAGES as error:
        raise _damaged(row[0], error) from None


def query(filter: RunFilter) -> tuple[str, list[Any]]:
    """Return the statement that lists the runs of a filter, with a `?` for each of its values."""
    conditions, values = ["1 = 1"], list[Any]()

    def add(condition: str, *more: Any) -> None:
        conditions.append(condition)
        values.extend(more)

    if filter.statuses:
        add(f"status IN ({', '.join('?' * len(filter.statuses))})", *(status.value for status in filter.statuses))
    if filter.workflow_id is not None:
        add("workflow_id = ?", text(filter.workflow_id))
    if filter.since is not None:
        add("submitted >= ?", _microseconds(filter.since))
    if filter.until is not None:
        add("submitted <= ?", _microseconds(filter.until))
    if filter.text:
        sought = text(filter.text).casefold()
        add("(instr(label, ?) > 0 OR instr(fault, ?) > 0)", sought, sought)
    values += [filter.limit, min(filter.offset, _FOREVER)]
    where = " AND ".join(conditions)
    return (
        f"SELECT {SUMMARY_COLUMNS} FROM runs WHERE {where} ORDER BY submitted DESC, seq DESC LIMIT ? OFFSET ?",
        values,
    )


def _text(value: str | None) -> str | None:
    return None if value is None else text(value)


def _time(value: Any) -> datetime | None:
    return None if value is None else _EPOCH + timedelta(microseconds=value)


def _microseconds(moment: datetime) -> int:
    """Return a time as it is kept; one without a zone is UTC."""
    return ((moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment) - _EPOCH) // _MICROSECOND


def lease_length(lease: float) -> int:
    """Return the length of a lease in microseconds. Raises `InvalidInput` for what is none."""
    if not (isinstance(lease, int | float) and lease > 0) or math.isnan(lease):
        raise InvalidInput(f"a lease is some seconds, more than 0, not {lease!r}")
    return int(min(lease, 1e9) * 1_000_000)


def oldest(max_age: float, max_bytes: int) -> int:
    """Return when the runs ended that are just not too old. Raises `InvalidInput` where that, or a size, is below 0."""
    if math.isnan(max_age) or max_age < 0 or max_bytes < 0:
        raise InvalidInput(f"max_age and max_bytes must not be below 0, found {max_age} and {max_bytes}")
    return clock.microseconds() - int(min(max_age, 1e9) * 1_000_000)


def unknown(run_id: str) -> NotFound:
    """Return the error of a run that is not there."""
    return NotFound(f"there is no run {run_id!r:.200}")


def not_own(worker: str, run_id: str, row: tuple[Any, ...] | None) -> Conflict:
    """Return why a worker cannot write to a run, by its row, which begins with the owner; None: it is not there."""
    if row is None:
        return Conflict(f"the run {run_id!r} is not kept any more, so {worker} cannot write to it")
    holder = f"{row[0]}'s" if row[0] else "nobody's"
    return Conflict(f"the run {run_id!r} is {holder} by now, so {worker} cannot write to it")


def _damaged(run_id: Any, error: Exception) -> TavernError:
    detail = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error
    return TavernError(f"the record of the run {run_id} is damaged: {type(error).__name__}: {detail}")


def _json(content: dict[str, Any], what: str) -> bytes:
    try:
        return _encoder.encode(content).encode("utf-8", "surrogatepass")  # a lone surrogate comes back as it was
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what}: {str(error) or type(error).__name__}") from None


def _form(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")


_encoder = json.JSONEncoder(default=_form, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
