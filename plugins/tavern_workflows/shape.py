"""Reads a document as a workflow, as far as it is one, and says every place where it is not.

Only the shape: whether the parts fit together is the business of `check.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tavern_host.contracts.documents import canonical, json_type
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.workflows import InterfaceSlot, Workflow, WorkflowEdge, WorkflowNode
from tavern_workflows.api.dataflow import MOST_NODES
from tavern_workflows.api.workflows import WorkflowProblem
from tavern_workflows.report import Finding, quoted, report

M = TypeVar("M", WorkflowNode, WorkflowEdge, InterfaceSlot)

MAX_DEPTH = 100
"""How many levels of a document may lie in one another."""

_MANY = 100_000
"""How many values that JSON does not have are looked for."""

_MOST_ITEMS = {"nodes": MOST_NODES, "edges": 10 * MOST_NODES}
_MOST_OTHERS = 10_000
_COUNTED = frozenset(
    {
        *("referencedWorkflows", "referenced_workflows", "interfaceInputs", "interface_inputs"),
        *("interfaceOutputs", "interface_outputs", "viewport", "position"),
        *("inputConnectionOrders", "input_connection_orders", "matchCategories", "match_categories", "actions"),
    }
)
"""Parts that are looked at piece by piece: how many pieces are allowed, so that a report stays within bounds."""

_MOST_BITS = 14_000
"""Of a whole number: about what Python turns into text."""

_SLOTS = frozenset({"interfaceInputs", "interface_inputs", "interfaceOutputs", "interface_outputs"})
_CONTAINERS = frozenset({dict, list, tuple})
_TEXTS = frozenset({str})

_MESSAGES = {"missing": "is missing", "extra_forbidden": "is not known"}


@dataclass(frozen=True)
class Reading:
    """What could be read of a document.

    `workflow` holds the well-formed parts. `node_places` and `edge_places` say at which index of the
    document each of its nodes and edges stands; `known_ids` are the ids of all nodes, well-formed or not.
    `whole_inputs` and `whole_outputs` say whether no slot of the interface is missing.
    """

    workflow: Workflow
    node_places: list[int] = field(default_factory=list)
    edge_places: list[int] = field(default_factory=list)
    known_ids: frozenset[str] = frozenset()
    whole_inputs: bool = True
    whole_outputs: bool = True
    findings: list[Finding] = field(default_factory=list)


def read(document: Any) -> Reading:
    """Read a document; never raises."""
    if not isinstance(document, dict):
        return Reading(Workflow(), findings=[Finding((), f"expected an object, got {json_type(document)}")])
    crowded = list(_crowded(document))
    if crowded:
        return Reading(Workflow(), findings=crowded)
    findings = _json_findings(document)
    spoilt = {finding.path[:length] for finding in findings for length in range(1, len(finding.path) + 1)}
    shape = _Shape()
    workflow = shape.frame(document)
    nodes, node_places = shape.items(document, "nodes", WorkflowNode)
    edges, edge_places = shape.items(document, "edges", WorkflowEdge)
    findings += [finding for finding in shape.findings if finding.path not in spoilt]
    parts = {"nodes": nodes, "edges": edges}
    ids = (item.get("id") for item in _listed(document.get("nodes")) if isinstance(item, dict))
    return Reading(
        workflow.model_copy(update={key: part for key, part in parts.items() if key in document}),
        node_places,
        edge_places,
        frozenset(i for i in ids if isinstance(i, str)),
        shape.whole_inputs,
        shape.whole_outputs,
        findings,
    )


def whole(workflow: Workflow) -> Reading:
    """Return the reading of a workflow that has no problems of its shape."""
    return Reading(
        workflow,
        list(range(len(workflow.nodes))),
        list(range(len(workflow.edges))),
        frozenset(node.id for node in workflow.nodes),
    )


def parse(document: Any) -> Workflow:
    """Return a document as a workflow. Raises `InvalidInput` with the problems of its shape."""
    reading = read(document)
    if reading.findings:
        raise problems_error("the document is not a workflow", report(reading.findings))
    return reading.workflow


def problems_error(what: str, problems: list[WorkflowProblem]) -> InvalidInput:
    """Return the error that lists `problems`, all of them in its details."""
    shown = "; ".join(str(p) for p in problems[:5])
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return InvalidInput(f"{what}: {shown}{more}", problems=[p.to_json() for p in problems])


class _Shape:
    """The parts of a document that have the form of a workflow's, and findings on the others."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.whole_inputs = True
        self.whole_outputs = True

    def frame(self, document: dict[str, Any]) -> Workflow:
        """Return the workflow without its nodes and edges."""
        frame = {key: value for key, value in document.items() if key not in ("nodes", "edges")}
        beyond = _beyond_reason(frame, ())
        for key in _SLOTS & frame.keys():
            slots = frame[key]
            for name, slot in slots.items() if isinstance(slots, dict) else ():
                beyond += _beyond_reason(slot, (key, str(name)))
        if not beyond:
            try:
                return Workflow.model_validate(frame)
            except ValidationError as error:
                beyond = _shape_findings(_errors(error), document, ())
        self.findings += dict.fromkeys(beyond)
        inputs, self.whole_inputs = _valid_slots(document.get("interfaceInputs", {}))
        outputs, self.whole_outputs = _valid_slots(document.get("interfaceOutputs", {}))
        identifier = document.get("id")
        return Workflow(
            id=identifier if isinstance(identifier, str) and _is_unicode(identifier) else None,
            interface_inputs=inputs,
            interface_outputs=outputs,
        )

    def items(self, document: dict[str, Any], kind: str, model: type[M]) -> tuple[list[M], list[int]]:
        """Return the well-formed items of a list, and at which index each of them stands."""
        values = document.get(kind, [])
        if not isinstance(values, list):
            self.findings.append(Finding((kind,), f"expected a list, got {json_type(values)}"))
            return [], []
        found: dict[int, list[Finding]] = {}
        for place, item in enumerate(values):
            if beyond := _beyond_reason(item, (kind, place)):
                found[place] = beyond
        places = [place for place in range(len(values)) if place not in found]
        try:
            items = _list_of(model).validate_python([values[place] for place in places])
        except ValidationError as error:
            found |= _item_findings(error, values, kind, places)
            places = [place for place in places if place not in found]
            items = _list_of(model).validate_python([values[place] for place in places])
        self.findings += [finding for place in sorted(found) for finding in found[place]]
        return items, places


@cache
def _list_of(model: type[M]) -> TypeAdapter[list[M]]:
    return TypeAdapter(list[model])  # type: ignore[valid-type]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _valid_slots(slots: Any) -> tuple[dict[str, InterfaceSlot], bool]:
    """Return the well-formed slots, and whether they are all there are."""
    if not isinstance(slots, dict):
        return {}, False
    found = {}
    for key, value in slots.items():
        if not isinstance(key, str) or _beyond_reason(value, ()):
            continue
        try:
            found[key] = InterfaceSlot.model_validate(value)
        except ValidationError:
            continue
    return found, len(found) == len(slots)


# --- what is too large or too deep --------------------------------------------------------------------


def _crowded(document: dict[str, Any]) -> Iterator[Finding]:
    for kind, most in _MOST_ITEMS.items():
        count = len(_listed(document.get(kind)))
        if count > most:
            yield Finding((kind,), f"has {count:,} items, at most {most:,} are allowed")


def _beyond_reason(item: Any, path: tuple[str | int, ...]) -> list[Finding]:
    """Return which parts of an object have too many pieces or lie too deep."""
    findings: list[Finding] = []
    if not isinstance(item, dict):
        return findings
    for key, value in item.items():
        kind = value.__class__
        if kind not in _CONTAINERS or (kind is dict and len(value) <= _MOST_OTHERS and _is_flat(value)):
            continue
        if key in _COUNTED:
            pieces = value.values() if kind is dict else value
            count = len(value) + sum(len(piece) for piece in pieces if piece.__class__ is list)
            if count > _MOST_OTHERS:
                message = f"has {count:,} items, at most {_MOST_OTHERS:,} are allowed"
                findings.append(Finding((*path, key), message))
        if _is_odd(value, MAX_DEPTH - len(path) - 1):
            findings += islice(_not_json(value, (*path, key)), _MANY)
    return findings


def _is_flat(value: dict[Any, Any]) -> bool:
    """Return whether an object holds nothing that holds something, and has keys that are text."""
    return _CONTAINERS.isdisjoint(map(type, value.values())) and _TEXTS.issuperset(map(type, value))


def _is_odd(value: Any, most: int) -> bool:
    """Return whether a part lies too deep, or is made of what JSON has only nearly: tuples, keys that are no text."""
    level: list[Any] = [value]
    for _ in range(most):
        for container in level:
            kind = container.__class__
            if kind is tuple or (kind is dict and not all(isinstance(key, str) for key in container)):
                return True
        level = [
            part
            for container in level
            for part in (container.values() if container.__class__ is dict else container)
            if part.__class__ in _CONTAINERS
        ]
        if not level:
            return False
        if len(level) > _MANY:  # parts that are there several times, or that hold themselves, count once
            level = list({id(part): part for part in level}.values())
    return True


# --- what is no JSON ----------------------------------------------------------------------------------


def _json_findings(document: dict[str, Any]) -> list[Finding]:
    """Return where the document is not JSON at all."""
    try:
        canonical(document)
    except ValueError as error:
        return list(islice(_not_json(document, ()), _MANY)) or [Finding((), f"is not JSON: {error}")]
    return []


def _not_json(document: Any, where: tuple[str | int, ...]) -> Iterator[Finding]:
    """Yield the path and reason of each value that JSON does not have, or that lies too deep; of parts that are
    there several times, the first."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [(where, document)]
    seen: set[int] = set()
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict | list):
            if id(value) in seen:
                continue
            seen.add(id(value))
            if len(path) >= MAX_DEPTH:
                yield Finding(path, f"is nested deeper than {MAX_DEPTH} levels")
            elif isinstance(value, dict):
                for key in value:
                    if not isinstance(key, str):
                        yield Finding(path, f"a key is {json_type(key)}, keys are text in JSON")
                waiting.extend(((*path, str(key)), item) for key, item in reversed(value.items()))
            else:
                waiting.extend(((*path, place), item) for place, item in reversed(list(enumerate(value))))
        elif isinstance(value, float) and not math.isfinite(value):
            yield Finding(path, f"{value} is not a JSON number")
        elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
            yield Finding(path, "the number has more digits than can be written")
        elif isinstance(value, str) and not _is_unicode(value):
            yield Finding(path, "the text holds half of a surrogate pair, which is not Unicode")
        elif not (value is None or isinstance(value, bool | int | float | str)):
            yield Finding(path, f"{type(value).__name__} is not a JSON value")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- what has another form ----------------------------------------------------------------------------


def _errors(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_context=False, include_input=False)


def _item_findings(error: ValidationError, values: list[Any], kind: str, places: list[int]) -> dict[int, list[Finding]]:
    """Return pydantic's findings on the items of a list, of which those at `places` were read, by their places."""
    problems: dict[int, list[ErrorDetails]] = {}
    for found in _errors(error):
        place = places[int(found["loc"][0])]
        problems.setdefault(place, []).append({**found, "loc": found["loc"][1:]})
    return {place: _shape_findings(found, values[place], (kind, place)) for place, found in problems.items()}


def _shape_findings(problems: list[ErrorDetails], item: Any, path: tuple[str | int, ...]) -> list[Finding]:
    """Return pydantic's findings on an item, one per place in it."""
    messages: dict[tuple[str | int, ...], list[str]] = {}
    for found in problems:
        parts, value = _place(found["loc"], item, missing=found["type"] == "missing")
        message = _MESSAGES.get(found["type"])
        if message is None:
            message = _lower(found["msg"].partition(", unable to")[0])
            message = f"{message}, got {quoted(value) if isinstance(value, str) else json_type(value)}"
        known = messages.setdefault((*path, *parts), [])
        if message not in known:
            known.append(message)
    return [Finding(place, " or ".join(found)) for place, found in messages.items()]


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
