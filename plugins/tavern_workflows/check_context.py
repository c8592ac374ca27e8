"""What the checks of one workflow share: its nodes with the slots in force, its loops, and what they found so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_workflows.api.dataflow import DEEPEST_GROUPS, Slots, group_reference, slots_of
from tavern_workflows.api.loops import Zone, enclosing_zones, zone_of
from tavern_workflows.api.workflows import GROUP_INPUT, GROUP_OUTPUT, LOOP_ZONE, NODE_GROUP
from tavern_workflows.report import Hints
from tavern_workflows.shape import Reading

Definitions = Mapping[str, NodeDefinition]


class CheckedNode(NamedTuple):
    """A node that is being checked, with its index in the document and the slots that are in force.

    `is_known`: it is certain which slots the node has.
    """

    node: WorkflowNode
    place: int
    definition: NodeDefinition | None
    inputs: Slots
    outputs: Slots
    dynamic: bool
    is_known: bool
    zone: Zone | None = None


class CheckContext:
    """A workflow that is being checked. `groups` are the workflows that its groups refer to; without `definitions`
    node types are not checked."""

    def __init__(
        self, reading: Reading, definitions: Definitions | None, groups: Mapping[str, Workflow], hints: Hints
    ) -> None:
        self.reading = reading
        self.workflow = reading.workflow
        self.definitions = definitions
        self.groups = groups
        self.hints = hints
        self.nodes: dict[str, CheckedNode] = {}
        for node, place in zip(self.workflow.nodes, reading.node_places, strict=True):
            if node.id not in self.nodes:
                self.nodes[node.id] = self._checked(node, place)
        self.levels = Levels(self.workflow)
        self.fed: dict[tuple[str, str], list[int]] = defaultdict(list)
        """By node and input key, the edges that arrive there, by their places in the document."""
        self.routed: set[str] = set()
        """The nodes whose error output an edge takes."""
        self.links: dict[tuple[str, str], int] = {}
        """Which node waits for which other on the same level, and the edge that says so."""

    def _checked(self, node: WorkflowNode, place: int) -> CheckedNode:
        definition = (self.definitions or {}).get(node.type)
        slots = slots_of(node, definition, self.workflow, self.groups)
        zone = None
        if node.type == GROUP_INPUT:
            known = self.reading.whole_inputs
        elif node.type == GROUP_OUTPUT:
            known = self.reading.whole_outputs
        elif node.type == NODE_GROUP:
            known = group_reference(node) in self.groups
        elif node.type == LOOP_ZONE:
            zone = zone_of(node.config_values)
            known = zone.has_all_slots
        else:
            known = definition is not None
        return CheckedNode(node, place, definition, *slots, known, zone)

    def is_idle(self, checked: CheckedNode) -> bool:
        """Whether a node is not run: it is bypassed, or a loop around it is."""
        around = self.levels.around(checked.node.id)
        return checked.node.bypassed or any(self.nodes[zone].node.bypassed for zone in self.levels.chain(around))


class Levels:
    """Which loop each node lies in, and which loop each of them. The nodes in no loop are the top level."""

    def __init__(self, workflow: Workflow) -> None:
        has_parents = any(node.parent_node is not None for node in workflow.nodes)
        self._around = enclosing_zones(workflow.nodes) if has_parents else {}
        self._has_loops = any(node.type == LOOP_ZONE for node in workflow.nodes)
        self._chains: dict[str, tuple[str, ...]] = {}
        self.depths: dict[str, int] = {}
        """How deep each loop that has something in it lies: 1 where it is in no other."""
        for zone in self._around.values():
            self._measure(zone)

    @property
    def is_deep(self) -> bool:
        """Whether loops lie deeper in one another than is allowed, so that checking each border is of no use."""
        return max(self.depths.values(), default=0) > DEEPEST_GROUPS

    @property
    def is_flat(self) -> bool:
        """Whether there is no loop."""
        return not self._has_loops

    def around(self, node_id: str) -> str | None:
        """Return the innermost loop that a node lies in."""
        return self._around.get(node_id)

    def chain(self, zone: str | None) -> tuple[str, ...]:
        """Return a loop and those around it, outwards, as many as are allowed."""
        if zone is None:
            return ()
        if zone not in self._chains:
            chain = [zone]
            while (outer := self._around.get(chain[-1])) is not None and len(chain) <= DEEPEST_GROUPS:
                chain.append(outer)
            self._chains[zone] = tuple(chain)
        return self._chains[zone]

    def _measure(self, zone: str | None) -> None:
        path: list[str] = []
        while zone is not None and zone not in self.depths:
            path.append(zone)
            zone = self._around.get(zone)
        depth = self.depths[zone] if zone is not None else 0
        for inner in reversed(path):
            depth += 1
            self.depths[inner] = depth
