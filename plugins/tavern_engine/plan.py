"""Compiles the structure of a workflow into a plan: integers instead of ids, edges grouped by input,
conversions bound to them. Values are apart (`values.py`), so that one plan serves many runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tavern_engine.registry import NodeType
from tavern_host.context import Contribution
from tavern_host.contracts.dataflow import (
    OPEN_SLOT,
    Converter,
    compatible,
    converter,
    edge_order,
    find_slot,
    slots_of,
)
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.nodes import NodeDefinition, NodeRunner, SlotDefinition
from tavern_host.contracts.workflows import GROUP_INPUT, GROUP_OUTPUT, Workflow, WorkflowEdge, WorkflowNode

CARRIER = "__interface_outputs__"
"""The id of the node that carries the outputs which a client mapped to an interface by itself."""


class Role(Enum):
    """What a node is to the engine."""

    NODE = "node"
    INPUT = "input"
    """Hands out the values of the workflow's interface inputs."""
    OUTPUT = "output"
    """What arrives at it are the workflow's interface outputs."""


@dataclass(frozen=True, slots=True)
class Feed:
    """An edge into an input: the output `key` of node `source`, converted on the way."""

    edge: str
    source: int
    key: str
    convert: Converter | None


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a node: its slot and the edges that feed it, in order."""

    key: str
    slot: SlotDefinition
    feeds: tuple[Feed, ...]


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of a plan. `runner` is None for the nodes that carry the interface."""

    id: str
    type: str
    label: str
    role: Role
    inputs: tuple[Input, ...]
    node_type: NodeType | None
    runner: NodeRunner | None

    @property
    def is_hidden(self) -> bool:
        """Whether the engine itself put the node in, to carry outputs that a client mapped."""
        return self.role is Role.OUTPUT and self.id.startswith(CARRIER)

    @property
    def plugin(self) -> str | None:
        """Who owns the node's type."""
        return self.node_type.plugin if self.node_type else None


@dataclass(frozen=True, slots=True)
class Plan:
    """A workflow's structure. `waiting_for[i]` counts the nodes before node `i`, `followers[i]` names those
    after it; `outputs` are the inputs of the nodes that carry the interface's outputs, `contributions` what the
    nodes' code belongs to, each once."""

    nodes: tuple[PlanNode, ...]
    waiting_for: tuple[int, ...]
    followers: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, Input], ...]
    contributions: tuple[Contribution[list[NodeDefinition]], ...]


Types = Mapping[str, NodeType]


def compile_plan(workflow: Workflow, types: Types) -> Plan:
    """Compile a workflow that was checked. Raises `InvalidInput` with all that cannot be compiled even so."""
    compiler = _Compiler(workflow, types)
    plan = compiler.compile()
    if compiler.problems:
        raise InvalidInput(f"the workflow cannot be run: {'; '.join(compiler.problems)}", problems=compiler.problems)
    return plan


class _Compiler:
    def __init__(self, workflow: Workflow, types: Types) -> None:
        self._workflow = workflow
        self._types = types
        self._index = {node.id: index for index, node in enumerate(workflow.nodes)}
        self._runners: dict[str, NodeRunner] = {}
        self._slots = []
        self.problems: list[str] = []
        for node in workflow.nodes:
            node_type = types.get(node.type)
            self._slots.append(slots_of(node, node_type.definition if node_type else None, workflow))

    def compile(self) -> Plan:
        feeds, links = self._edges()
        nodes = tuple(self._node(node, index, feeds.get(index, {})) for index, node in enumerate(self._workflow.nodes))
        if len(self._index) != len(nodes):
            self.problems.append("several nodes have the same id")
        followers = tuple(tuple(sorted(links[index])) for index in range(len(nodes)))
        waiting_for = [0] * len(nodes)
        for after in followers:
            for follower in after:
                waiting_for[follower] += 1
        if not _can_finish(waiting_for, followers):
            self.problems.append("some nodes wait for one another")
        outputs = tuple((i, item) for i, node in enumerate(nodes) if node.role is Role.OUTPUT for item in node.inputs)
        types = {id(node.node_type): node.node_type for node in nodes if node.node_type is not None}
        contributions = {id(t.contribution): t.contribution for t in types.values()}
        return Plan(nodes, tuple(waiting_for), followers, outputs, tuple(contributions.values()))

    def _edges(self) -> tuple[dict[int, dict[str, list[tuple[Feed, int | None, int]]]], list[set[int]]]:
        """Return by target and input key what feeds it, and for each node those that follow."""
        feeds: dict[int, dict[str, list[tuple[Feed, int | None, int]]]] = {}
        links: list[set[int]] = [set() for _ in self._workflow.nodes]
        for place, edge in enumerate(self._workflow.edges):
            ends = self._ends(edge)
            if ends is None:
                continue
            source, target, output, (key, slot, position) = ends
            problem = compatible(output[1], slot)
            if problem:
                self.problems.append(f"edge {edge.id}: {problem}")
                continue
            feed = Feed(edge.id, source, output[0], converter(output[1], slot))
            feeds.setdefault(target, {}).setdefault(key, []).append((feed, position, place))
            links[source].add(target)
        return feeds, links

    def _ends(
        self, edge: WorkflowEdge
    ) -> tuple[int, int, tuple[str, SlotDefinition], tuple[str, SlotDefinition, int | None]] | None:
        source, target = self._index.get(edge.source), self._index.get(edge.target)
        if source is None or target is None:
            self.problems.append(f"edge {edge.id}: there is no node {edge.source if source is None else edge.target!r}")
            return None
        output = find_slot(self._slots[source][1], edge.source_handle, dynamic=self._slots[source][2])
        into = find_slot(self._slots[target][0], edge.target_handle, dynamic=self._slots[target][2])
        if output is None or into is None:
            missing = f"{edge.source}.{edge.source_handle}" if output is None else f"{edge.target}.{edge.target_handle}"
            self.problems.append(f"edge {edge.id}: there is no slot {missing}")
            return None
        return source, target, output[:2], into

    def _node(self, node: WorkflowNode, index: int, feeds: dict[str, list[tuple[Feed, int | None, int]]]) -> PlanNode:
        role = {GROUP_INPUT: Role.INPUT, GROUP_OUTPUT: Role.OUTPUT}.get(node.type, Role.NODE)
        node_type = self._types.get(node.type)
        if role is Role.NODE and node_type is None:
            self.problems.append(f"node {node.id}: there is no node type {node.type!r}")
        slots, _, dynamic = self._slots[index]
        keys = dict.fromkeys([*slots, *feeds, *(node.input_values if dynamic else ())])
        inputs = []
        for key in keys:
            slot = slots.get(key, OPEN_SLOT)
            arriving = feeds.get(key, [])
            order = edge_order(node, key)
            arriving.sort(key=lambda item: order((item[0].edge, item[1], item[2])))
            if len(arriving) > 1 and not slot.multi:
                self.problems.append(f"node {node.id}: the input {key!r} takes one edge and has {len(arriving)}")
            inputs.append(Input(key, slot, tuple(feed for feed, _, _ in arriving)))
        label = node.display_name or (node_type.definition.display_name if node_type else "") or node.type
        runner = self._runner(node, node_type) if node_type is not None and role is Role.NODE else None
        return PlanNode(node.id, node.type, label, role, tuple(inputs), node_type, runner)

    def _runner(self, node: WorkflowNode, node_type: NodeType) -> NodeRunner | None:
        """Return the runner of the node's type, one for all nodes of that type."""
        if node.type not in self._runners:
            try:
                self._runners[node.type] = node_type.runner()
            except TavernError as error:
                self.problems.append(f"node {node.id}: {error.message}")
                return None
        return self._runners[node.type]


def _can_finish(waiting_for: list[int], followers: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether every node becomes ready at some time."""
    left = list(waiting_for)
    ready = [index for index, count in enumerate(left) if count == 0]
    done = 0
    while ready:
        done += 1
        for follower in followers[ready.pop()]:
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    return done == len(left)
