"""Encodes workflow documents for the run store, which addresses them by the hash of their content."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from pydantic import ValidationError

from tavern_engine.api.runs import RunEntry
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.workflows import Workflow

Content = Callable[[str], Awaitable[bytes]]
"""Returns the content with a hash: `RunStore.content`."""


PARTS = ("nodes", "edges")
"""What a large document has very much of, so that it is treated one by one: no single step keeps others waiting."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def document_of(workflow: Workflow, mode: Literal["json", "python"] = "json") -> dict[str, Any]:
    """Return a document: what was set in it and nothing else, unknown keys included. Slow for a large one."""
    document = workflow.model_dump(mode=mode, exclude_unset=True, exclude=set(PARTS))
    for key in PARTS:
        if key in workflow.model_fields_set:
            document[key] = [part.model_dump(mode=mode, exclude_unset=True) for part in getattr(workflow, key)]
    return document


def pack(workflow: Workflow) -> bytes:
    """Encode a document: what was set in it and nothing else, unknown keys included; the same document gives the same
    bytes. Slow for a large one. Raises `InvalidInput` for what is not JSON, such as NaN."""
    try:
        parts = [
            f"{_encode(key)}:[{','.join(map(_encode, value))}]" if key in PARTS else f"{_encode(key)}:{_encode(value)}"
            for key, value in document_of(workflow, "python").items()
        ]
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the workflow {workflow.name or workflow.id or ''} cannot be stored: {error}") from None
    return f"{{{','.join(parts)}}}".encode("utf-8", "surrogatepass")  # a lone surrogate comes back as it was


def unpack(content: bytes) -> Workflow:
    """Decode a document. Raises `TavernError` where the bytes are none."""
    try:
        return Workflow.model_validate(json.loads(content))
    except (ValidationError, ValueError, RecursionError) as error:
        raise TavernError(f"a stored workflow cannot be read: {type(error).__name__}") from None


async def documents_of(entry: RunEntry, content: Content) -> tuple[Workflow, dict[str, Workflow]]:
    """Return the workflow of a run and, by the id that refers to each, its groups. Raises `NotFound`, `TavernError`."""
    known: dict[str, Workflow] = {}
    for name in {entry.workflow, *entry.groups.values()}:
        known[name] = unpack(await content(name))
    return known[entry.workflow], {key: known[name] for key, name in entry.groups.items()}
