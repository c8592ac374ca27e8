"""The values of a workflow's interface inputs: those of the request as the types of the slots, else their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.documents import json_path
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.nodes import DataFlowType
from tavern_host.contracts.wire import ImmutableJson, wire_value
from tavern_host.contracts.workflows import InterfaceSlot, Workflow
from tavern_workflows.api.dataflow import coerce
from tavern_workflows.api.workflows import WorkflowProblem


def interface_values(
    workflow: Workflow, inputs: Mapping[str, JsonValue]
) -> tuple[dict[str, Any], list[WorkflowProblem]]:
    """Return the values of the workflow's interface inputs, and everything that is wrong with `inputs`.

    Given values are brought to the type of their slot, those of a stream item by item; null counts as not given;
    defaults fill up.
    """
    slots = workflow.interface_inputs
    values: dict[str, Any] = {}
    problems = []
    for key in inputs:
        if key not in slots:
            known = f"; it has {', '.join(slots)}" if slots else "; it has none"
            hint = did_you_mean(key, slots) or known
            problems.append(_problem(key, f"the workflow has no input {key!r}{hint}"))
    for key, slot in slots.items():
        value = inputs.get(key)
        if value is None:
            if slot.default is not None:
                values[key] = slot.default
            elif slot.required:
                problems.append(_problem(key, f"the input {key!r} is required"))
            continue
        try:
            values[key] = value if _stays(value, slot) else _coerced(slot, wire_value(value))
        except ValueError as error:
            problems.append(_problem(key, f"the input {key!r}: {error}"))
    return values, problems


def _stays(value: Any, slot: InterfaceSlot) -> bool:
    """Return whether a value is an immutable list, and so is what the slot takes."""
    is_list = slot.data_flow_type is DataFlowType.ARRAY and not (slot.multi or slot.is_stream)
    return is_list and isinstance(value, ImmutableJson) and isinstance(value, tuple)


def _coerced(slot: InterfaceSlot, value: JsonValue) -> Any:
    if slot.multi or slot.is_stream:
        return [coerce(slot, item) for item in (value if isinstance(value, list) else [value])]
    return coerce(slot, value)


def _problem(key: str, message: str) -> WorkflowProblem:
    return WorkflowProblem(path=json_path("inputs", key), message=message, slot=key)
