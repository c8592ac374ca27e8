"""Checks the loops of a workflow: what their configuration says, how they end, and what lies in them."""

from __future__ import annotations

from collections.abc import Iterator

from tavern_workflows.api.dataflow import DEEPEST_GROUPS, coerce
from tavern_workflows.api.loops import COUNT, Zone
from tavern_workflows.api.workflows import GROUP_INPUT, GROUP_OUTPUT, LOOP_ZONE
from tavern_workflows.check_context import CheckContext, CheckedNode
from tavern_workflows.report import Finding, quoted, short

_SHOWN = 10
"""How many nodes of a cycle are named."""


def parents(context: CheckContext) -> Iterator[Finding]:
    """Parents that are missing or form a cycle, loops too deep, interface nodes in loops."""
    levels = context.levels
    for checked in context.nodes.values():
        node = checked.node
        if node.parent_node is None:
            continue
        path = ("nodes", checked.place, "parentNode")
        parent = context.nodes.get(node.parent_node)
        if parent is None and node.parent_node not in context.reading.known_ids:
            yield Finding(path, f"there is no node {quoted(node.parent_node)}", node.id, severity="warning")
        if parent is not None and parent.node.type != LOOP_ZONE:
            message = f"{quoted(node.parent_node)} is a {short(parent.node.type)}, no {LOOP_ZONE}: it makes no loop"
            yield Finding(path, message, node.id, severity="warning")
        around = levels.around(node.id)
        if around is not None and node.type in (GROUP_INPUT, GROUP_OUTPUT):
            message = f"a {node.type} cannot be inside of a loop; edges from outside lead into {quoted(around)} as well"
            yield Finding(path, message, node.id)
        if levels.depths.get(node.id) == DEEPEST_GROUPS + 1:
            yield Finding(path, f"loops are nested deeper than {DEEPEST_GROUPS}", node.id)
    yield from _parent_cycles(context)


def _parent_cycles(context: CheckContext) -> Iterator[Finding]:
    """Nodes that are inside of one another."""
    nodes = context.nodes
    done: set[str] = set()
    for start, checked in nodes.items():
        if checked.node.parent_node is None:
            continue
        path: dict[str, int] = {}
        current: str | None = start
        while current in nodes and current not in done and current not in path:
            path[current] = len(path)
            current = nodes[current].node.parent_node
        if current is not None and current in path:
            cycle = list(path)[path[current] :]
            names = [short(name) for name in cycle[:_SHOWN]] + (["…"] if len(cycle) > _SHOWN else [])
            message = f"these nodes are inside of one another: {' → '.join([*names, names[0]])}"
            yield Finding(("nodes", nodes[current].place, "parentNode"), message, current)
        done.update(path)


def loops(context: CheckContext) -> Iterator[Finding]:
    """Loops whose configuration is wrong, or that have no end. `edges` must have run over the context."""
    inhabited = {context.levels.around(node_id) for node_id in context.nodes} if not context.levels.is_flat else set()
    for checked in context.nodes.values():
        if checked.zone is None:
            continue
        path = ("nodes", checked.place, "configValues")
        for place, problem in checked.zone.problems.items():
            yield Finding((*path, *place), problem, checked.node.id)
        yield from _initial_values(checked, checked.zone)
        if not checked.zone.problems:
            yield from _end(context, checked, checked.zone)
        inner = any((checked.node.id, key) in context.fed for key in checked.zone.inner_inputs)
        if checked.node.id not in inhabited and not inner:
            message = "there is nothing inside of the loop: no node names it as its parentNode"
            yield Finding(("nodes", checked.place), message, checked.node.id, severity="warning")


def _initial_values(checked: CheckedNode, zone: Zone) -> Iterator[Finding]:
    """Values that the carried state begins with and that are not of its type."""
    carried = checked.node.config_values.get("carried")
    for place, item in enumerate(carried if isinstance(carried, list) else []):
        if not isinstance(item, dict) or item.get("initial") is None:
            continue
        slot = zone.carried.get(str(item.get("key")))
        if slot is None:
            continue
        try:
            coerce(slot, item["initial"])
        except ValueError as error:
            path = ("nodes", checked.place, "configValues", "carried", place, "initial")
            yield Finding(path, str(error), checked.node.id, severity="warning")


def _end(context: CheckContext, checked: CheckedNode, zone: Zone) -> Iterator[Finding]:
    """A loop ends by a count or a condition; by its maximum alone only where that was set on purpose."""
    node, path = checked.node, ("nodes", checked.place, "configValues")
    has_condition = zone.condition is not None and (node.id, zone.condition) in context.fed
    has_count = zone.count is not None or (node.id, COUNT) in context.fed or node.input_values.get(COUNT) is not None
    has_maximum = node.config_values.get("maxIterations") is not None
    severity = "warning" if has_count or has_maximum or has_condition else "error"
    if zone.condition is not None and not has_condition:
        message = f"no edge from inside of the loop leads into its condition {quoted(zone.condition)}"
        yield Finding((*path, "conditionSlot"), message, node.id, zone.condition, severity)
    elif severity == "error":
        message = "the loop has no end: give it a count, a conditionSlot or maxIterations"
        yield Finding(path, message, node.id)
    if zone.count is not None and zone.count > zone.maximum:
        message = f"the loop ends after {zone.maximum:,} iterations, its maxIterations, not after {zone.count:,}"
        yield Finding((*path, "count"), message, node.id, severity="warning")
