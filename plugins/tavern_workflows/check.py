"""Checks whether the parts of a workflow fit together: ids, node types, slots, edges, cycles.

Pure: it takes the node types that exist and returns every problem; `error` where a run cannot succeed,
else `warning`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tavern_host.contracts.dataflow import Slots, coerce, compatible, config_of, find_slot, slots_of
from tavern_host.contracts.documents import json_path
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.nodes import NodeDefinition, SlotDefinition
from tavern_host.contracts.workflows import GROUP_INPUT, GROUP_OUTPUT, WorkflowNode, WorkflowProblem
from tavern_workflows.shape import Reading

Definitions = Mapping[str, NodeDefinition]


def check(reading: Reading, definitions: Definitions | None) -> list[WorkflowProblem]:
    """Return the problems of a reading's well-formed parts. Without `definitions` node types are not checked."""
    state = _Check(reading, definitions)
    return [
        *state.duplicate_ids(),
        *state.nodes(),
        *state.edges(),
        *state.crowded_inputs(),
        *state.missing_inputs(),
        *state.cycles(),
    ]


@dataclass(frozen=True)
class _Site:
    """A node with its index in the document and the slots that are in force."""

    node: WorkflowNode
    place: int
    definition: NodeDefinition | None
    inputs: Slots
    outputs: Slots
    dynamic: bool

    @property
    def is_known(self) -> bool:
        """Whether it is certain which slots the node has."""
        return self.definition is not None or self.node.type in (GROUP_INPUT, GROUP_OUTPUT)


@dataclass
class _Check:
    reading: Reading
    definitions: Definitions | None
    sites: dict[str, _Site] = field(init=False, default_factory=dict)
    fed: dict[tuple[str, str], list[int]] = field(init=False, default_factory=lambda: defaultdict(list))
    """By node and input key, the edges that arrive there, by their places in the document."""

    def __post_init__(self) -> None:
        workflow = self.reading.workflow
        for node, place in zip(workflow.nodes, self.reading.node_places, strict=True):
            definition = (self.definitions or {}).get(node.type)
            slots = slots_of(node, definition, workflow)
            self.sites.setdefault(node.id, _Site(node, place, definition, *slots))

    # --- nodes ------------------------------------------------------------------------------------

    def duplicate_ids(self) -> Iterator[WorkflowProblem]:
        workflow, reading = self.reading.workflow, self.reading
        for kind, ids, places in (
            ("nodes", [n.id for n in workflow.nodes], reading.node_places),
            ("edges", [e.id for e in workflow.edges], reading.edge_places),
        ):
            first: dict[str, int] = {}
            for identifier, place in zip(ids, places, strict=True):
                if first.setdefault(identifier, place) != place:
                    other = json_path(kind, first[identifier])
                    node = identifier if kind == "nodes" else None
                    yield _problem((kind, place, "id"), f"the id {identifier!r} is taken by {other}", node)

    def nodes(self) -> Iterator[WorkflowProblem]:
        for site in self.sites.values():
            node, path = site.node, ("nodes", site.place)
            if self.definitions is not None and not site.is_known:
                near = did_you_mean(node.type, self.definitions)
                yield _problem((*path, "type"), f"there is no node type {node.type!r}{near}", node.id)
            if node.parent_node is not None and node.parent_node not in self.reading.known_ids:
                message = f"there is no node {node.parent_node!r}"
                yield _problem((*path, "parentNode"), message, node.id, severity="warning")
            yield from self._mode(site)
            yield from self._values(site)

    def _mode(self, site: _Site) -> Iterator[WorkflowProblem]:
        definition = site.definition
        if definition is None or not definition.modes or definition.mode_config_key is None:
            return
        key = definition.mode_config_key
        mode = config_of(definition, site.node).get(key, definition.default_mode_id)
        if mode is not None and str(mode) not in definition.modes:
            near = did_you_mean(str(mode), definition.modes)
            path = ("nodes", site.place, "configValues", key)
            yield _problem(path, f"{definition.full_type} has no mode {mode!r}{near}", site.node.id, severity="warning")

    def _values(self, site: _Site) -> Iterator[WorkflowProblem]:
        """Values that a creator wrote down and that are not of the slot's type."""
        for key, value in site.node.input_values.items():
            slot = site.inputs.get(key)
            if slot is None or value is None:
                continue
            try:
                for item in value if slot.multi and isinstance(value, list) else [value]:
                    coerce(slot, item)
            except ValueError as error:
                path = ("nodes", site.place, "inputValues", key)
                yield _problem(path, str(error), site.node.id, key, severity="warning")

    def missing_inputs(self) -> Iterator[WorkflowProblem]:
        for site in self.sites.values():
            if site.node.type == GROUP_OUTPUT:
                continue
            for key, slot in site.inputs.items():
                has_value = site.node.input_values.get(key) is not None or slot.default is not None
                if slot.required and not has_value and (site.node.id, key) not in self.fed:
                    message = f"the required input {key!r} has neither an edge, a value nor a default"
                    yield _problem(("nodes", site.place, "inputValues", key), message, site.node.id, key)

    # --- edges ------------------------------------------------------------------------------------

    def edges(self) -> Iterator[WorkflowProblem]:
        reading = self.reading
        for edge, place in zip(reading.workflow.edges, reading.edge_places, strict=True):
            source, problems = self._end(edge.source, edge.source_handle, ("edges", place, "source"), outgoing=True)
            yield from problems
            target, problems = self._end(edge.target, edge.target_handle, ("edges", place, "target"), outgoing=False)
            yield from problems
            if target is not None:
                self.fed[edge.target, target[0]].append(place)
            if source is None or target is None:
                continue
            problem = compatible(source[1], target[1])
            if problem:
                ends = f"{edge.source}.{edge.source_handle} to {edge.target}.{edge.target_handle}"
                yield _problem(("edges", place), f"{ends}: {problem}", edge.target, target[0])

    def _end(
        self, node_id: str, handle: str, path: tuple[str | int, ...], *, outgoing: bool
    ) -> tuple[tuple[str, SlotDefinition] | None, list[WorkflowProblem]]:
        """Return the slot at one end of an edge, or why there is none; neither where it cannot be known."""
        site = self.sites.get(node_id)
        if site is None:
            if node_id in self.reading.known_ids:
                return None, []
            near = did_you_mean(node_id, self.reading.known_ids)
            return None, [_problem(path, f"there is no node {node_id!r}{near}")]
        slots = site.outputs if outgoing else site.inputs
        slot = find_slot(slots, handle, dynamic=site.dynamic)
        if slot is not None:
            return slot[:2], []
        if not site.is_known:
            return None, []
        what = "output" if outgoing else "input"
        path = (*path[:-1], f"{path[-1]}Handle")
        message = f"{site.node.type} has no {what} {handle!r}{did_you_mean(handle, slots)}"
        return None, [_problem(path, message, node_id, handle)]

    def crowded_inputs(self) -> Iterator[WorkflowProblem]:
        """Inputs that take one edge and get several; interface outputs that two nodes feed."""
        outputs: dict[str, str] = {}
        for (node_id, key), places in self.fed.items():
            site = self.sites[node_id]
            slot = find_slot(site.inputs, key, dynamic=site.dynamic)
            if len(places) > 1 and slot is not None and not slot[1].multi:
                others = ", ".join(json_path("edges", place) for place in places[:-1])
                message = f"the input {key!r} of {node_id} takes one edge and has {others} already"
                yield _problem(("edges", places[-1], "targetHandle"), message, node_id, key)
            if site.node.type == GROUP_OUTPUT and outputs.setdefault(key, node_id) != node_id:
                message = f"the interface output {key!r} is fed by {outputs[key]} already"
                yield _problem(("edges", places[0], "targetHandle"), message, node_id, key)

    # --- cycles -----------------------------------------------------------------------------------

    def cycles(self) -> Iterator[WorkflowProblem]:
        """One problem for each knot of nodes that wait for one another."""
        reading = self.reading
        links: dict[tuple[str, str], int] = {}
        for edge, place in zip(reading.workflow.edges, reading.edge_places, strict=True):
            links.setdefault((edge.source, edge.target), place)
        tangled = _tangled(links)
        if not tangled:
            return
        import networkx

        graph: networkx.DiGraph[str] = networkx.DiGraph([link for link in links if set(link) <= tangled])
        for knot in sorted(map(sorted, networkx.strongly_connected_components(graph))):
            if len(knot) == 1 and not graph.has_edge(knot[0], knot[0]):
                continue
            cycle = networkx.find_cycle(graph.subgraph(knot), source=knot[0])
            names = " → ".join([*(link[0] for link in cycle), cycle[0][0]])
            place = links[cycle[-1][0], cycle[-1][1]]
            yield _problem(("edges", place), f"these nodes wait for one another: {names}", cycle[0][0])


def _tangled(links: Iterable[tuple[str, str]]) -> set[str]:
    """Return the nodes that are on a cycle or behind one: those that never become ready."""
    following: dict[str, list[str]] = defaultdict(list)
    waiting_for: dict[str, int] = defaultdict(int)
    for source, target in links:
        following[source].append(target)
        waiting_for[target] += 1
    ready = [node for node in following if not waiting_for[node]]
    while ready:
        for target in following[ready.pop()]:
            waiting_for[target] -= 1
            if not waiting_for[target]:
                ready.append(target)
    return {node for node, count in waiting_for.items() if count}


def _problem(
    path: Iterable[Any], message: str, node: str | None = None, slot: str | None = None, *, severity: str = "error"
) -> WorkflowProblem:
    return WorkflowProblem(path=json_path(*path), message=message, node=node, slot=slot, severity=severity)
