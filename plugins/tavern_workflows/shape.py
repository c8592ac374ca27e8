"""Reads a document as a workflow, as far as it is one, and says every place where it is not.

Only the shape: whether the parts fit together is the business of `check.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from tavern_host.contracts.documents import canonical, json_path, json_type
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.workflows import InterfaceSlot, Workflow, WorkflowEdge, WorkflowNode, WorkflowProblem

M = TypeVar("M", WorkflowNode, WorkflowEdge, InterfaceSlot)

_MESSAGES = {"missing": "is missing", "extra_forbidden": "is not known"}


@dataclass(frozen=True)
class Reading:
    """What could be read of a document.

    `workflow` holds the well-formed parts. `node_places` and `edge_places` say at which index of the
    document each of its nodes and edges stands; `known_ids` are the ids of all nodes, well-formed or not.
    """

    workflow: Workflow
    node_places: list[int]
    edge_places: list[int]
    known_ids: frozenset[str]
    problems: list[WorkflowProblem] = field(default_factory=list)


def read(document: Any) -> Reading:
    """Read a document; never raises."""
    problems = _json_problems(document)
    if not problems:
        try:
            return _whole(Workflow.model_validate(document))
        except ValidationError as error:
            problems = _shape_problems(error, document)
    return _partial(document, problems)


def parse(document: Any) -> Workflow:
    """Return a document as a workflow. Raises `InvalidInput` with all problems of its shape."""
    reading = read(document)
    if reading.problems:
        raise problems_error("the document is not a workflow", reading.problems)
    return reading.workflow


def problems_error(what: str, problems: list[WorkflowProblem]) -> InvalidInput:
    """Return the error that lists `problems`, all of them in its details."""
    shown = "; ".join(str(p) for p in problems[:5])
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return InvalidInput(f"{what}: {shown}{more}", problems=[p.to_json() for p in problems])


def _whole(workflow: Workflow) -> Reading:
    return Reading(
        workflow,
        list(range(len(workflow.nodes))),
        list(range(len(workflow.edges))),
        frozenset(node.id for node in workflow.nodes),
    )


def _partial(document: Any, problems: list[WorkflowProblem]) -> Reading:
    if not isinstance(document, dict):
        return Reading(Workflow(), [], [], frozenset(), problems)
    nodes, node_places = _valid_items(document.get("nodes"), WorkflowNode.model_validate)
    edges, edge_places = _valid_items(document.get("edges"), WorkflowEdge.model_validate)
    items = document.get("nodes")
    ids = [item.get("id") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    workflow = Workflow(
        nodes=nodes,
        edges=edges,
        interface_inputs=_valid_slots(document.get("interfaceInputs")),
        interface_outputs=_valid_slots(document.get("interfaceOutputs")),
    )
    return Reading(workflow, node_places, edge_places, frozenset(i for i in ids if isinstance(i, str)), problems)


def _valid_items(items: Any, validate: Callable[[Any], M]) -> tuple[list[M], list[int]]:
    found: list[M] = []
    places: list[int] = []
    for place, item in enumerate(items if isinstance(items, list) else []):
        try:
            found.append(validate(item))
        except ValidationError:
            continue
        places.append(place)
    return found, places


def _valid_slots(slots: Any) -> dict[str, InterfaceSlot]:
    if not isinstance(slots, dict):
        return {}
    found = {}
    for key, value in slots.items():
        items, _ = _valid_items([value], InterfaceSlot.model_validate)
        if items and isinstance(key, str):
            found[key] = items[0]
    return found


def _json_problems(document: Any) -> list[WorkflowProblem]:
    """Return where the document is not JSON at all."""
    if not isinstance(document, dict):
        return [WorkflowProblem(path="$", message=f"expected an object, got {json_type(document)}")]
    try:
        canonical(document)
    except ValueError as error:
        found = [WorkflowProblem(path=json_path(*path), message=message) for path, message in _not_json(document)]
        return found or [WorkflowProblem(path="$", message=f"is not JSON: {error}")]
    return []


def _not_json(document: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path and reason of each value that JSON does not have. Bounded in depth."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict) and len(path) < 100:
            waiting.extend(((*path, str(key)), item) for key, item in reversed(value.items()))
        elif isinstance(value, list | tuple) and len(path) < 100:
            waiting.extend(((*path, place), item) for place, item in reversed(list(enumerate(value))))
        elif isinstance(value, float) and not math.isfinite(value):
            yield path, f"{value} is not a JSON number"
        elif isinstance(value, str) and not _is_unicode(value):
            yield path, "the text holds half of a surrogate pair, which is not Unicode"
        elif not (value is None or isinstance(value, bool | int | float | str | dict | list)):
            yield path, f"{type(value).__name__} is not a JSON value"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shape_problems(error: ValidationError, document: Any) -> list[WorkflowProblem]:
    """Return pydantic's findings, one per place in the document."""
    messages: dict[str, list[str]] = {}
    for finding in error.errors(include_url=False, include_context=False):
        parts, value = _place(finding["loc"], document, missing=finding["type"] == "missing")
        message = _MESSAGES.get(finding["type"])
        if message is None:
            message = _lower(finding["msg"].partition(", unable to")[0])
            message = (
                f"{message}, got {json_type(value)}" if not isinstance(value, str) else f"{message}, got {value!r}"
            )
        known = messages.setdefault(json_path(*parts), [])
        if message not in known:
            known.append(message)
    return [WorkflowProblem(path=path, message=" or ".join(found)) for path, found in messages.items()]


def _place(location: tuple[str | int, ...], document: Any, *, missing: bool) -> tuple[list[str | int], Any]:
    """Return the path of a finding, without pydantic's names for the branches of a union, and what is there."""
    parts: list[str | int] = []
    value = document
    for part in location:
        inside = (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if inside:
            value = value[part]
        elif not missing or part != location[-1]:
            break
        parts.append(part)
    return parts, value


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
