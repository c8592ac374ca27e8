"""Converts any value of a run to JSON, and runs to the shapes that the platform's clients know."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from datetime import datetime
from sys import getsizeof
from typing import Any

from pydantic import BaseModel, JsonValue

from tavern_engine.api.executions import RunQueue
from tavern_engine.cache.cache import size_of
from tavern_host import Blob
from tavern_host.contracts.errors import ErrorInfo, OutputError, describe, error_info
from tavern_host.contracts.executions import Run
from tavern_host.contracts.wire import LIMIT, MAX_LEVELS, WireError, wire_value, without_surrogates

See = Callable[[Blob], None]

_PLAIN = frozenset((int, bool, type(None)))
_ATOMS = frozenset((bool, type(None)))
_JSON = frozenset((str, int, float, bool, type(None)))

INTERFACE_OUTPUTS = "__WORKFLOW_INTERFACE_OUTPUTS__"
"""Used instead of a node's id in the message that brings the outputs of the whole workflow."""


def carried_outputs(outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of a node as every wire can carry them. Raises `OutputError` that says what cannot be."""
    for value in outputs.values():
        if not ((kind := value.__class__) in _ATOMS or (kind is str and value.isascii())):
            break
    else:
        return outputs
    return {key: carried_output(key, value) for key, value in outputs.items()}


def carried_output(key: str, value: Any) -> Any:
    """Return one output of a node, or one item of a stream, as `carried_outputs` does."""
    try:
        return wire_value(value)
    except WireError as error:
        raise not_carried(key, error) from None


def not_carried(key: str, error: WireError) -> OutputError:
    """Return the error for an output, or an item of a stream, that no wire can carry."""
    return OutputError(f"the output {key!r}{error.place}: {error.reason}", output=key)


def is_json(value: Any) -> bool:
    """Return whether a value that was `carried` is JSON as it is, and nothing of it a class of its own."""
    level = [value]
    while level:
        deeper: list[Any] = []
        for item in level:
            kind = item.__class__
            if kind is dict or kind is list:
                items = item if kind is list else item.values()
                if not _JSON.issuperset(map(type, items)):  # there may be very many
                    deeper.extend(items)
            elif kind not in _JSON:
                return False
        level = deeper
    return True


def json_form(value: Any, see: See | None = None) -> JsonValue:
    """Return a value as JSON, sharing nothing with it; `see` is called with each Blob in it. Never raises.

    What has no JSON form, NaN and infinities among it, becomes `{"type": "opaque", "python": "module.Class"}`.
    """
    try:
        return _form(value, 0, see)
    except Exception:  # a node's value may do anything while it is looked at
        return opaque(value)


def _form(value: Any, depth: int, see: See | None) -> JsonValue:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return _form(value.value, depth, see)
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int):
        return int(value) if -LIMIT <= value < LIMIT else opaque(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else opaque(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Blob):
        if see is not None:
            see(value)
        return value.to_json()
    if depth < MAX_LEVELS:
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {clean(key): _form(item, depth + 1, see) for key, item in value.items()}
        if isinstance(value, list | tuple):
            kinds = set(map(type, value))
            if kinds <= _PLAIN or (kinds == {str} and all(map(str.isascii, value))):
                return list(value)
            return [_form(item, depth + 1, see) for item in value]
        if isinstance(value, BaseModel):
            return _form(value.model_dump(), depth + 1, see)
    return opaque(value)


def opaque(value: Any) -> JsonValue:
    """Return the placeholder of a value that has no JSON form."""
    kind = type(value)
    return {"type": "opaque", "python": f"{kind.__module__}.{kind.__qualname__}"}


def clean(text: str) -> str:
    """Return text that UTF-8 has: a lone surrogate becomes U+FFFD."""
    return text if type(text) is str and text.isascii() else without_surrogates(str(text))


def error_form(error: BaseException, plugin: str | None = None) -> ErrorInfo:
    """Return any exception as data, however strange it is."""
    try:
        info = error_info(error, plugin=plugin)
    except Exception:  # a third-party exception class may lack what ours have
        info = ErrorInfo(code="plugin_error", message=describe(error), plugin=plugin)
    return info.model_copy(update={"message": clean(info.message)})


def prompt_form(run: Run) -> dict[str, JsonValue]:
    """Return a run as `GET /api/prompt/{promptId}` shows it."""
    nodes: dict[str, JsonValue] = {}
    for node_id, state in run.nodes.items():
        nodes[node_id] = _present(
            status=state.status.value, output=state.output, error=state.error.to_json() if state.error else None
        )
    return {
        **summary_form(run),
        **_present(
            nodeStatus=nodes,
            outputs=run.outputs,
            errorInfo=run.error.to_json() if run.error else None,
            finishedAt=run.finished_at.isoformat() if run.finished_at else None,
        ),
    }


def queue_form(queue: RunQueue) -> dict[str, JsonValue]:
    """Return the queue as `GET /api/executions` shows it."""
    return {
        "running": [summary_form(run) for run in queue.running],
        "pending": [summary_form(run) for run in queue.pending],
    }


def summary_form(run: Run) -> dict[str, JsonValue]:
    """Return a run as a list of runs shows it."""
    return _present(
        promptId=run.id,
        status=run.status.value,
        workflowId=run.workflow_id,
        workflowName=run.workflow_name,
        submittedAt=run.submitted_at.isoformat(),
    )


def _present(**values: JsonValue) -> dict[str, JsonValue]:
    return {key: value for key, value in values.items() if value is not None}


LARGE = 256 * 1024
"""How many bytes a value has at most that is shown with its run."""

MESSAGE = 2**20
"""How many bytes a value has at most that a message brings."""

TEXT, JSON = "text/plain; charset=utf-8", "application/json"
_SMALL = 1024


def large(media_type: str, length: int) -> dict[str, JsonValue]:
    """Return the placeholder of a large value; the length is in bytes, roughly."""
    return {"type": "large", "mediaType": media_type, "length": length}


def without_large(
    values: dict[str, JsonValue], left: list[int] | None = None, most: int = LARGE
) -> dict[str, JsonValue]:
    """Return values with a placeholder for each that has more than `most` bytes, or that is not small where less than
    that is `left`, which is counted down."""
    found = values
    for key, value in values.items():
        if value is None or value.__class__ in (bool, int, float):
            continue
        size = (len(value) if value.isascii() else getsizeof(value)) if isinstance(value, str) else size_of(value)
        if size is None or size > most or (left is not None and size > _SMALL and size > left[0]):
            found = found if found is not values else dict(values)
            found[key] = large(TEXT if isinstance(value, str) else JSON, size if size is not None else -1)
        elif left is not None:
            left[0] -= size
    return found
