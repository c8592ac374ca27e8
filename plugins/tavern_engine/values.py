"""The values of one run: what the creator wrote down, defaults, configuration, interface inputs.

They are laid over a plan by index, so that the plan itself needs no change from run to run.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from tavern_engine.plan import Input, Plan
from tavern_host.contracts.dataflow import coerce, config_of, literal_converter
from tavern_host.contracts.documents import json_path
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.workflows import Workflow, WorkflowNode, WorkflowProblem


@dataclass(frozen=True, slots=True)
class Values:
    """By node index: what an input has where no edge brings a value, and the configuration. By interface
    key: the workflow's inputs."""

    literals: tuple[dict[str, Any], ...]
    configs: tuple[dict[str, Any], ...]
    interface: dict[str, Any]


def bind_values(plan: Plan, workflow: Workflow, interface: dict[str, Any]) -> Values:
    """Return the values of a workflow for its plan. Nothing in them is shared with definitions."""
    literals = []
    configs = []
    for planned, node in zip(plan.nodes, workflow.nodes, strict=True):
        literals.append(_literals(planned.inputs, node))
        node_type = planned.node_type
        configs.append(config_of(node_type.definition, node) if node_type else dict(node.config_values))
    return Values(tuple(literals), tuple(configs), interface)


def _literals(inputs: tuple[Input, ...], node: WorkflowNode) -> dict[str, Any]:
    """Return the written value of each input that has one, else its default; null is no value."""
    found: dict[str, Any] = {}
    for item in inputs:
        value = node.input_values.get(item.key)
        if value is None and item.slot.has_default:
            value = item.slot.default
        if value is None:
            continue
        value = copy.deepcopy(value)
        if item.slot.multi and not isinstance(value, list):
            value = [value]
        found[item.key] = _converted(item, value)
    return found


def _converted(item: Input, value: Any) -> Any:
    convert = literal_converter(item.slot)
    if convert is None:
        return value
    try:
        return [convert(each) for each in value] if item.slot.multi else convert(value)
    except (OverflowError, ValueError):  # a number that has no such form is passed as it was written
        return value


def interface_values(
    workflow: Workflow, given: Mapping[str, JsonValue]
) -> tuple[dict[str, Any], list[WorkflowProblem]]:
    """Return the values of the workflow's interface inputs, and everything that is wrong with `given`.

    Given values are brought to the type of their slot; null counts as not given; defaults fill up.
    """
    slots = workflow.interface_inputs
    values: dict[str, Any] = {}
    problems = []
    for key in given:
        if key not in slots:
            known = f"; it has {', '.join(slots)}" if slots else "; it has none"
            hint = did_you_mean(key, slots) or known
            problems.append(_problem(key, f"the workflow has no input {key!r}{hint}"))
    for key, slot in slots.items():
        value = given.get(key)
        if value is None:
            if slot.default is not None:
                values[key] = copy.deepcopy(slot.default)
            elif slot.required:
                problems.append(_problem(key, f"the input {key!r} is required"))
            continue
        try:
            if slot.multi:
                values[key] = [coerce(slot, item) for item in (value if isinstance(value, list) else [value])]
            else:
                values[key] = copy.deepcopy(coerce(slot, value))
        except ValueError as error:
            problems.append(_problem(key, f"the input {key!r}: {error}"))
    return values, problems


def _problem(key: str, message: str) -> WorkflowProblem:
    return WorkflowProblem(path=json_path("inputs", key), message=message, slot=key)
