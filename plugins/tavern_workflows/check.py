"""Checks whether the parts of a workflow fit together: ids, node types, values, slots, edges, groups, loops, policies.

Pure: it takes the node types and stored workflows that exist and finds everything that is wrong; an `error` where a
run cannot succeed, else a `warning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from tavern_host.contracts.documents import json_path
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.plugins import PluginInfo
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_workflows.api.dataflow import coerce, mode_of
from tavern_workflows.api.placeholders import stands_for
from tavern_workflows.api.workflows import GROUP_INPUT, GROUP_OUTPUT, LOOP_ZONE, NODE_GROUP, WorkflowProblem
from tavern_workflows.check_context import CheckContext, CheckedNode, Definitions
from tavern_workflows.edges import crowded_inputs, cycles, edges
from tavern_workflows.groups import Groups
from tavern_workflows.loops import loops, parents
from tavern_workflows.policies import policies
from tavern_workflows.report import Finding, Hints, quoted, report
from tavern_workflows.shape import Reading, whole
from tavern_workflows.store import Entry

OfGroup = Callable[[WorkflowNode, int, Hints], Iterator[Finding]]
_BUILT_IN = frozenset({GROUP_INPUT, GROUP_OUTPUT, NODE_GROUP, LOOP_ZONE})
"""The types that are known without a definition."""


def check(
    reading: Reading,
    definitions: Definitions | None,
    entries: Mapping[str, Entry] | None = None,
    plugins: Sequence[PluginInfo] = (),
) -> list[WorkflowProblem]:
    """Return the problems of a document, those of its shape first.

    Without `definitions` node types are not checked. `entries` are the stored workflows, for the groups;
    `plugins` all plugins, of which some may be withheld.
    """
    hints = Hints(plugins)
    groups = Groups(reading.workflow, entries or {})
    return report(_Check(definitions, groups, hints).findings(reading))


class _Check:
    def __init__(self, definitions: Definitions | None, groups: Groups, hints: Hints) -> None:
        self._definitions = definitions
        self._groups = groups
        self._hints = hints

    def findings(self, reading: Reading) -> Iterator[Finding]:
        """Yield everything that is wrong with a document and with the workflows that its groups stand for."""
        groups = self._groups
        groups.examine(self._own_errors)
        yield from reading.findings
        yield from groups.size(reading.workflow)
        yield from self._own(reading, groups.above)

    def _own_errors(self, workflow: Workflow) -> list[Finding]:
        return [finding for finding in self._own(whole(workflow), self._groups.within) if finding.is_error]

    def _own(self, reading: Reading, of_group: OfGroup) -> Iterator[Finding]:
        context = CheckContext(reading, self._definitions, self._groups.workflows, self._hints)
        yield from duplicate_ids(reading)
        yield from nodes(context)
        for checked in context.nodes.values():
            if checked.node.type == NODE_GROUP:
                yield from of_group(checked.node, checked.place, self._hints)
        yield from parents(context)
        yield from edges(context)
        yield from crowded_inputs(context)
        yield from missing_inputs(context)
        yield from unfed_outputs(context)
        yield from loops(context)
        yield from policies(context)
        yield from cycles(context)


def duplicate_ids(reading: Reading) -> Iterator[Finding]:
    """Ids that several nodes or edges have."""
    workflow = reading.workflow
    for kind, ids, places in (
        ("nodes", [n.id for n in workflow.nodes], reading.node_places),
        ("edges", [e.id for e in workflow.edges], reading.edge_places),
    ):
        first: dict[str, int] = {}
        for identifier, place in zip(ids, places, strict=True):
            if first.setdefault(identifier, place) != place:
                message = f"the id {quoted(identifier)} is taken by {json_path(kind, first[identifier])}"
                yield Finding((kind, place, "id"), message, identifier if kind == "nodes" else None)


def nodes(context: CheckContext) -> Iterator[Finding]:
    """Nodes of unknown types, with ids, modes or values that cannot be."""
    definitions = context.definitions
    groups = {checked.node.id for checked in context.nodes.values() if checked.node.type == NODE_GROUP}
    for checked in context.nodes.values():
        node = checked.node
        if groups and "/" in node.id and (group := _group_in(node.id, groups)) is not None:
            message = f"the id {quoted(node.id)} is that of a node inside the group {quoted(group)}; choose another"
            yield Finding(("nodes", checked.place, "id"), message, node.id)
        if checked.definition is None:
            if definitions is not None and not checked.is_known and node.type not in _BUILT_IN:
                hint = (said := stands_for(node)) and f": {said}"
                hint = hint or context.hints.of_type(node.type, definitions)
                message = f"there is no node type {quoted(node.type)}{hint}"
                yield Finding(("nodes", checked.place, "type"), message, node.id)
        elif checked.definition.modes:
            yield from _mode(context, checked)
        for key, value in node.input_values.items():
            slot = checked.inputs.get(key)
            if slot is not None and value is not None and (problem := _misfit(slot, value)) is not None:
                yield Finding(("nodes", checked.place, "inputValues", key), problem, node.id, key, severity="warning")


def _group_in(identifier: str, groups: set[str]) -> str | None:
    """Return the group that an id has the form of a node inside of: `group/node`."""
    parts = identifier.split("/")[:-1]
    prefixes = ("/".join(parts[:count]) for count in range(1, min(len(parts), 50) + 1))
    return next((prefix for prefix in prefixes if prefix in groups), None)


def _mode(context: CheckContext, checked: CheckedNode) -> Iterator[Finding]:
    definition = checked.definition
    if definition is None or not definition.modes or definition.mode_config_key is None:
        return
    mode = mode_of(definition, checked.node)
    if mode is not None and mode not in definition.modes:
        hint = context.hints(mode, definition.modes)
        path = ("nodes", checked.place, "configValues", definition.mode_config_key)
        message = f"{definition.full_type} has no mode {quoted(mode)}{hint}"
        yield Finding(path, message, checked.node.id, severity="warning")


def _misfit(slot: SlotDefinition, value: JsonValue) -> str | None:
    """Say why a value that a creator wrote down is not of the slot's type, or return None where it is."""
    try:
        for item in value if slot.multi and isinstance(value, list) else [value]:
            coerce(slot, item)
    except ValueError as error:
        return str(error)
    return None


def missing_inputs(context: CheckContext) -> Iterator[Finding]:
    """Required inputs without a value, of nodes that are run."""
    for checked in context.nodes.values():
        if checked.node.type == GROUP_OUTPUT:
            continue
        for key, slot in checked.inputs.items():
            if not slot.required or (checked.node.id, key) in context.fed:
                continue
            if checked.node.input_values.get(key) is None and slot.default is None and not context.is_idle(checked):
                message = f"the required input {quoted(key)} has neither an edge, a value nor a default"
                yield Finding(("nodes", checked.place, "inputValues", key), message, checked.node.id, key)


def unfed_outputs(context: CheckContext) -> Iterator[Finding]:
    """Outputs of the interface that a run cannot give: nothing feeds them, and they have no default. A run without one
    is of use all the same, unless that is `required`."""
    if not context.reading.whole_outputs:
        return
    carriers = [checked.node.id for checked in context.nodes.values() if checked.node.type == GROUP_OUTPUT]
    for key, slot in context.workflow.interface_outputs.items():
        if slot.default is None and not any((carrier, key) in context.fed for carrier in carriers):
            message = f"nothing feeds the interface output {quoted(key)}: draw an edge to it, or remove it"
            severity = "error" if slot.required else "warning"
            yield Finding(("interfaceOutputs", key), message, severity=severity)
