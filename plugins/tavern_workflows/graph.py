"""The graph of a workflow for display: its nodes in topological layers, nested by loop, as data and as JSON.

Pure, and tolerant of any workflow: the nodes of a cycle share a layer, in the order of the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_workflows.api.dataflow import group_reference
from tavern_workflows.api.loops import enclosing_zones
from tavern_workflows.api.workflows import NODE_GROUP

DEEPEST = 32
"""How deeply loops are nested; a loop that is deeper is shown at the top."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A node and its place: its topological layer, from 1, among the nodes of the same `zone`, and how deep that is."""

    node: WorkflowNode
    layer: int
    depth: int
    zone: str | None


def ordered(workflow: Workflow) -> list[Placed]:
    """Return the nodes in topological order, those of a loop after its zone; of several with one id the first."""
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
    waiting = _layered(None, members, links)
    while waiting:
        zone, layer, node_id = waiting.pop()
        placed.append(Placed(nodes[node_id], layer, len(chains[node_id]) - 2, zone))
        if node_id in members:
            waiting += _layered(node_id, members, links)
    return placed


def _chains(nodes: Mapping[str, WorkflowNode]) -> dict[str, list[str | None]]:
    """Return for each node the zones that contain it, the outermost (None: the workflow) first, itself last."""
    found: dict[str, list[str | None]] = {}
    around = enclosing_zones(nodes.values())
    for node_id in nodes:
        chain: list[str | None] = [node_id]
        zone = around.get(node_id)
        while zone is not None and len(chain) <= DEEPEST:
            chain.append(zone)
            zone = around.get(zone)
        found[node_id] = [None, *reversed(chain)] if zone is None else [None, node_id]
    return found


def _lifted(source: list[str | None], target: list[str | None]) -> tuple[str | None, tuple[str, str] | None]:
    """Return the innermost scope that contains both ends of an edge, and which of its members the edge joins there.

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
    scope: str | None, members: Mapping[str | None, list[str]], links: Mapping[str | None, set[tuple[str, str]]]
) -> list[tuple[str | None, int, str]]:
    """Return the members of a zone, or of the workflow, with their layers, the last first."""
    import networkx

    number = {node_id: index for index, node_id in enumerate(members.get(scope, []))}
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from(number)
    graph.add_edges_from(link for link in sorted(links.get(scope, ())) if set(link) <= number.keys())
    components: networkx.DiGraph[int] = networkx.condensation(graph)
    found: list[tuple[str | None, int, str]] = []
    for layer, generation in enumerate(networkx.topological_generations(components), start=1):
        here = [node_id for component in generation for node_id in components.nodes[component]["members"]]
        found += [(scope, layer, node_id) for node_id in sorted(here, key=number.__getitem__)]
    return found[::-1]


def graph_form(workflow: Workflow, groups: Mapping[str, Workflow]) -> dict[str, JsonValue]:
    """Return a workflow's graph as JSON, each node with its layer; with those of its groups, by id."""
    form = _one_form(workflow)
    if groups:
        form["groups"] = {group: _one_form(inner) for group, inner in sorted(groups.items())}
    return form


def _one_form(workflow: Workflow) -> dict[str, JsonValue]:
    nodes: list[JsonValue] = []
    layers: list[JsonValue] = []
    outermost: dict[int, list[JsonValue]] = {}
    for item in ordered(workflow):
        facts = {
            "id": item.node.id,
            "type": item.node.type,
            "displayName": item.node.display_name,
            "layer": item.layer,
            "zone": item.zone,
            "group": group_reference(item.node) if item.node.type == NODE_GROUP else None,
            "bypassed": item.node.bypassed or None,
        }
        nodes.append({key: value for key, value in facts.items() if value is not None})
        if item.zone is None:
            outermost.setdefault(item.layer, []).append(item.node.id)
    layers.extend(outermost.values())
    return {
        "name": workflow.name,
        "layers": layers,
        "nodes": nodes,
        "edges": [edge.to_json() for edge in workflow.edges],
        "interfaceInputs": {key: slot.to_json() for key, slot in workflow.interface_inputs.items()},
        "interfaceOutputs": {key: slot.to_json() for key, slot in workflow.interface_outputs.items()},
    }
