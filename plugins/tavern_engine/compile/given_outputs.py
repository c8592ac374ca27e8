"""Outputs of nodes that are given with a run, such as pinned or edited ones: checked against the slots of their nodes
and brought to their types. A node whose outputs are given counts as done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from tavern_engine.cache.cache import copied
from tavern_engine.compile.plan import VALUE, Level, Plan, PlanNode, Role
from tavern_host.contracts.documents import json_path
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.wire import wire_value
from tavern_workflows.api.dataflow import coerce
from tavern_workflows.api.workflows import WorkflowProblem

Given = dict[int, dict[str, Any]]
"""Outputs by node of the top level."""

_REFUSED = {
    Role.INPUT: "brings the workflow's inputs in; give those",
    Role.OUTPUT: "has no outputs",
    Role.BYPASSED: "is bypassed",
}


def given_outputs(plan: Plan, overrides: Mapping[str, Mapping[str, JsonValue]]) -> tuple[Given, list[WorkflowProblem]]:
    """Return the overridden outputs by node, and everything that is wrong with them. Of a group's instance the nodes
    are those that pass its outputs on, and the one that shows it."""
    found: Given = {}
    problems: list[WorkflowProblem] = []
    for name, outputs in overrides.items():

        def add(message: str, *keys: str, name: str = name) -> None:
            path = json_path("overrides", name, *keys)
            problems.append(WorkflowProblem(path=path, message=message, node=name, slot=keys[0] if keys else None))

        index = plan.targets.get(name)
        node = None if index is None else plan.level.nodes[index]
        if index is None or node is None:
            add(f"there is no node {name!r}{did_you_mean(name, plan.targets)}")
            continue
        if node.id != name or node.role in _REFUSED:
            why = _REFUSED[node.role] if node.id == name else f"is inside the loop {node.id!r}; give the loop's outputs"
            add(f"outputs of the node {name!r} cannot be given: it {why}")
            continue
        slots = _slots(node)
        values: dict[str, Any] = {}
        for key, value in outputs.items():
            if key not in slots:
                add(f"the node {name!r} has no output {key!r}{did_you_mean(key, slots)}", key)
                continue
            try:
                values[key] = _fitting(slots[key], wire_value(value))
            except ValueError as error:
                add(f"the output {key!r} of {name!r}: {error}", key)
        for key in sorted(_read(plan.level, index, node) - outputs.keys()):
            if key not in slots or not slots[key].is_branch:
                add(f"the output {key!r} of {name!r} is read and not given", key)
        found[index] = values
        if node.role is Role.GROUP:
            for key, source, item in _passed_on(node, values):
                if plan.level.nodes[source].role is Role.RELAY:
                    found[source] = {VALUE: item}
                else:
                    inside = plan.level.nodes[source].id
                    add(f"the output {key!r} of {name!r} is a stream of {inside!r}; give the outputs of that", key)
    return found, problems


def _slots(node: PlanNode) -> Mapping[str, SlotDefinition]:
    if node.role is Role.GROUP:
        return {item.key: item.slot for item in node.inputs}
    return node.outputs if node.kind is None else node.kind.outputs


def _fitting(slot: SlotDefinition, value: JsonValue) -> Any:
    if slot.is_stream:
        return [copied(coerce(slot, item)) for item in (value if isinstance(value, list) else [value])]
    return copied(coerce(slot, value))


def _read(level: Level, index: int, node: PlanNode) -> set[str]:
    """Return the outputs of a node that others read; of a group's instance, all of those that it shows."""
    if node.role is Role.GROUP:
        return {item.key for item in node.inputs if item.edges}
    followers = {*level.followers[index], *level.early.get(index, ())}
    inputs = [item for follower in followers for item in level.nodes[follower].inputs]
    return {edge.key for item in inputs for edge in item.edges if edge.source == index}


def _passed_on(node: PlanNode, values: dict[str, Any]) -> list[tuple[str, int, Any]]:
    """Return of each output of a group's instance its key, the node that it comes from, and its value."""
    shown = [item for item in node.inputs if item.key in values]
    return [(item.key, edge.source, values[item.key]) for item in shown for edge in item.edges]
