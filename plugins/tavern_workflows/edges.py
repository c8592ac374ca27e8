"""Checks the edges of a workflow: their ends, what flows along them, the borders of loops, and cycles."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tavern_host.contracts.documents import json_path
from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.workflows import WorkflowEdge
from tavern_workflows.api.dataflow import compatible, find_output, find_slot
from tavern_workflows.api.workflows import ERROR_OUTPUT, GROUP_OUTPUT
from tavern_workflows.check_context import CheckContext, CheckedNode
from tavern_workflows.report import Finding, quoted, short

_SHOWN = 10
"""How many nodes of a cycle are named."""


def edges(context: CheckContext) -> Iterator[Finding]:
    """Edges without a node or slot at an end, between types that do not go together, or across a loop's border.

    Records in the context which inputs are fed, and which nodes wait for which.
    """
    nodes, fed, links = context.nodes, context.fed, context.links
    is_flat, is_deep = context.levels.is_flat, context.levels.is_deep
    verdicts: dict[tuple[int, int], str | None] = {}
    for edge, place in zip(context.workflow.edges, context.reading.edge_places, strict=True):
        source, target = nodes.get(edge.source), nodes.get(edge.target)
        source_slot = source.outputs.get(edge.source_handle) if source is not None else None
        if source_slot is None:
            source_slot, finding = _output(context, edge, place, source)
            if finding is not None:
                yield finding
        key = edge.target_handle
        wanted = target.inputs.get(key) if target is not None else None
        if wanted is None:
            key, wanted, finding = _input(context, edge, place, target)
            if finding is not None:
                yield finding
        if is_flat:
            links.setdefault((edge.source, edge.target), place)
        if wanted is not None:
            fed[edge.target, key].append(place)
        if edge.source_handle == ERROR_OUTPUT:
            context.routed.add(edge.source)
        if source is None or target is None or source_slot is None or wanted is None:
            continue
        pair = (id(source_slot), id(wanted))
        if pair not in verdicts:
            verdicts[pair] = compatible(source_slot, wanted)
        if (problem := verdicts[pair]) is not None:
            yield Finding(("edges", place), f"{_ends(edge)}: {problem}", edge.target, key)
        if not is_flat and not is_deep:
            problem = _border(context, edge, place, source, target, source_slot, key)
            if problem is not None:
                yield Finding(("edges", place), f"{_ends(edge)}: {problem}", edge.target, key)


def _ends(edge: WorkflowEdge) -> str:
    ends = (edge.source, edge.source_handle, edge.target, edge.target_handle)
    source, output, target, key = map(short, ends)
    return f"{source}.{output} to {target}.{key}"


def _output(
    context: CheckContext, edge: WorkflowEdge, place: int, checked: CheckedNode | None
) -> tuple[SlotDefinition | None, Finding | None]:
    """Return the output that an edge begins at, or why there is none; neither where it cannot be known."""
    if checked is None:
        return None, _no_node(context, edge.source, ("edges", place, "source"))
    found = find_output(checked.outputs, edge.source_handle, dynamic=checked.dynamic)
    if found is not None or not checked.is_known:
        return found, None
    handle = edge.source_handle
    message = f"{short(checked.node.type)} has no output {quoted(handle)}{context.hints(handle, checked.outputs)}"
    if handle == ERROR_OUTPUT and checked.definition is not None:
        message += "; a node has it where its policy says onError: route"
    return None, Finding(("edges", place, "sourceHandle"), message, edge.source, handle)


def _input(
    context: CheckContext, edge: WorkflowEdge, place: int, checked: CheckedNode | None
) -> tuple[str, SlotDefinition | None, Finding | None]:
    """Return the input that an edge ends at, or why there is none; neither where it cannot be known."""
    handle = edge.target_handle
    if checked is None:
        return handle, None, _no_node(context, edge.target, ("edges", place, "target"))
    found = find_slot(checked.inputs, handle, dynamic=checked.dynamic)
    if found is not None:
        return found[0], found[1], None
    if not checked.is_known:
        return handle, None, None
    message = f"{short(checked.node.type)} has no input {quoted(handle)}{context.hints(handle, checked.inputs)}"
    return handle, None, Finding(("edges", place, "targetHandle"), message, edge.target, handle)


def _no_node(context: CheckContext, node_id: str, path: tuple[str | int, ...]) -> Finding | None:
    known = context.reading.known_ids
    if node_id in known:
        return None
    return Finding(path, f"there is no node {quoted(node_id)}{context.hints(node_id, known)}")


def crowded_inputs(context: CheckContext) -> Iterator[Finding]:
    """Inputs that take one edge and get several; interface outputs that two nodes feed."""
    outputs: dict[str, str] = {}
    for (node_id, key), places in context.fed.items():
        checked = context.nodes[node_id]
        if len(places) > 1:
            slot = find_slot(checked.inputs, key, dynamic=checked.dynamic)
            if slot is not None and not slot[1].multi:
                others = ", ".join(json_path("edges", place) for place in places[:-1][:_SHOWN])
                more = " and others" if len(places) > _SHOWN + 1 else ""
                message = f"the input {quoted(key)} of {short(node_id)} takes one edge and has {others}{more}"
                yield Finding(("edges", places[-1], "targetHandle"), f"{message} already", node_id, key)
        if checked.node.type == GROUP_OUTPUT and outputs.setdefault(key, node_id) != node_id:
            message = f"the interface output {quoted(key)} is fed by {short(outputs[key])} already"
            yield Finding(("edges", places[0], "targetHandle"), message, node_id, key)


# --- borders of loops ---------------------------------------------------------------------------------


def _border(
    context: CheckContext,
    edge: WorkflowEdge,
    place: int,
    source: CheckedNode,
    target: CheckedNode,
    source_slot: SlotDefinition,
    key: str,
) -> str | None:
    """Say why an edge cannot cross the loops' borders as it does, else note who waits for whom because of it.

    Both ends lie on a level: that of the node, or, at a loop's inner slot, that inside of the loop.
    """
    levels = context.levels
    from_inner = source.zone is not None and edge.source_handle in source.zone.inner_outputs
    into_inner = target.zone is not None and key in target.zone.inner_inputs
    begin = edge.source if from_inner else levels.around(edge.source)
    end = edge.target if into_inner else levels.around(edge.target)
    if begin == end:
        if not from_inner and not into_inner:
            context.links.setdefault((edge.source, edge.target), place)
        return None
    around = levels.chain(end)
    if begin is not None and begin not in around:
        if from_inner:
            return f"{quoted(edge.source_handle)} is for the nodes inside of the loop"
        return f"the edge leads out of the loop {quoted(begin)}; what is inside gives values to the loop's own inputs"
    if edge.source in around and not from_inner:
        return "a loop's outputs are there when it has ended, so nothing inside of it can use them"
    if into_inner:
        return f"{quoted(key)} takes edges from inside of the loop"
    child = around[around.index(begin) - 1] if begin is not None else around[-1]
    if source_slot.is_stream:
        return f"a stream does not go into a loop; collect it outside of {quoted(child)}"
    if not from_inner:
        context.links.setdefault((edge.source, child), place)
    return None


# --- cycles -------------------------------------------------------------------------------------------


class NeedsThread(Exception):
    """Raised on an event loop where a library is to be imported that takes long: the check begins again in a thread."""


def _is_on_loop() -> bool:
    try:
        return asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


def _has_cycle(links: Iterable[tuple[str, str]]) -> bool:
    """Return whether nodes are left that wait for one another once those that wait for none are removed."""
    after: dict[str, list[str]] = defaultdict(list)
    waiting: dict[str, int] = defaultdict(int)
    for source, target in links:
        after[source].append(target)
        waiting[target] += 1
    ready = [node for node in after if node not in waiting]
    while ready:
        for target in after.pop(ready.pop(), ()):
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return any(waiting.values())


def cycles(context: CheckContext) -> Iterator[Finding]:
    """One finding for each strongly connected component of nodes that wait for one another."""
    links = context.links
    if not _has_cycle(links):
        return
    if "networkx" not in sys.modules and _is_on_loop():  # only now is it imported: every run checks its workflow
        raise NeedsThread
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph(list(links))
    for component in sorted(map(sorted, networkx.strongly_connected_components(graph))):
        if len(component) == 1 and not graph.has_edge(component[0], component[0]):
            continue
        cycle = networkx.find_cycle(graph.subgraph(component), source=component[0])
        shown = [short(link[0]) for link in cycle[:_SHOWN]]
        if len(cycle) > _SHOWN:
            shown.append(f"{len(cycle) - _SHOWN:,} more")
        names = " → ".join([*shown, shown[0]])
        place = links[cycle[-1][0], cycle[-1][1]]
        yield Finding(("edges", place), f"these nodes wait for one another: {names}", cycle[0][0])
