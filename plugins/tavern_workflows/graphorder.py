"""In which order the nodes of a workflow are drawn: in layers, those inside of a loop behind its zone.

Pure, and content with any workflow: where nodes wait for one another, they stand in the order of the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tavern_host.contracts.workflows import LOOP_ZONE, Workflow, WorkflowNode

DEEPEST = 32
"""How deeply loops are drawn inside of one another; what is deeper stands outside."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A node and where it stands: its layer, from 1, among the nodes with the same `zone`, and how deep that is."""

    node: WorkflowNode
    layer: int
    depth: int
    zone: str | None


def ordered(workflow: Workflow) -> list[Placed]:
    """Return the nodes of a workflow in the order in which they are drawn; of several with one id the first."""
    nodes: dict[str, WorkflowNode] = {}
    for node in workflow.nodes:
        nodes.setdefault(node.id, node)
    chains = _chains(nodes)
    members: dict[str | None, list[str]] = {}
    for node_id, chain in chains.items():
        members.setdefault(chain[-2], []).append(node_id)
    links: dict[str | None, set[tuple[str, str]]] = {}
    for edge in workflow.edges:
        if edge.source in chains and edge.target in chains:
            scope, link = _lifted(chains[edge.source], chains[edge.target])
            if link is not None:
                links.setdefault(scope, set()).add(link)
    placed: list[Placed] = []
    places: dict[str, int] = {}
    waiting = _layered(None, members, links, places)
    while waiting:
        zone, layer, node_id = waiting.pop()
        places[node_id] = len(placed)
        placed.append(Placed(nodes[node_id], layer, len(chains[node_id]) - 2, zone))
        if node_id in members:
            waiting += _layered(node_id, members, links, places)
    return placed


def _chains(nodes: Mapping[str, WorkflowNode]) -> dict[str, list[str | None]]:
    """Return for each node the zones that it is inside of, the outermost (None: the workflow) first, itself last."""
    found: dict[str, list[str | None]] = {}
    for node_id, node in nodes.items():
        chain: list[str | None] = [node_id]
        zone = _zone(node, nodes)
        while zone is not None:
            if zone.id in chain or len(chain) > DEEPEST:
                chain = [node_id]
                break
            chain.append(zone.id)
            zone = _zone(zone, nodes)
        found[node_id] = [None, *reversed(chain)]
    return found


def _zone(node: WorkflowNode, nodes: Mapping[str, WorkflowNode]) -> WorkflowNode | None:
    """Return the zone that a node is right inside of."""
    parent = nodes.get(node.parent_node) if node.parent_node is not None else None
    return parent if parent is not None and parent.type == LOOP_ZONE else None


def _lifted(source: list[str | None], target: list[str | None]) -> tuple[str | None, tuple[str, str] | None]:
    """Return the innermost place that both ends of an edge are in, and which of its members the edge joins there.

    None where that is one member: an edge between a zone and what is inside of it.
    """
    depth = 0
    while depth < min(len(source), len(target)) and source[depth] == target[depth]:
        depth += 1
    if depth in (len(source), len(target)):
        return None, None
    first, second = source[depth], target[depth]
    return (source[depth - 1], (first, second)) if first is not None and second is not None else (None, None)


def _layered(
    scope: str | None,
    members: Mapping[str | None, list[str]],
    links: Mapping[str | None, set[tuple[str, str]]],
    places: Mapping[str, int],
) -> list[tuple[str | None, int, str]]:
    """Return the members of a zone, or of the workflow, with their layers, the last first."""
    import networkx

    inside = members.get(scope, [])
    number = {node_id: index for index, node_id in enumerate(inside)}
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(inside)
    graph.add_edges_from(link for link in sorted(links.get(scope, ())) if set(link) <= number.keys())
    knots: networkx.DiGraph[int] = networkx.condensation(graph)
    found: list[tuple[str | None, int, str]] = []
    order: dict[str, float] = {}
    for layer, generation in enumerate(networkx.topological_generations(knots), start=1):
        here = [node_id for knot in generation for node_id in knots.nodes[knot]["members"]]
        weight = {n: (_middle(graph.predecessors(n), order), number[n]) for n in here}
        for node_id in sorted(here, key=weight.__getitem__):
            order[node_id] = len(order)
            found.append((scope, layer, node_id))
    return found[::-1]


def _middle(before: Iterable[str], order: Mapping[str, float]) -> float:
    """Return the middle of the places of those before a node, so that rails cross little."""
    known = [order[node_id] for node_id in before if node_id in order]
    return sum(known) / len(known) if known else 0
