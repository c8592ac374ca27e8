"""Places the nodes of a workflow: in layers from left to right, what feeds a node before it, with few crossings.

The method is Sugiyama's: edges that close a cycle are turned round, each node comes after all that feed it, the order
in a layer follows the mean place of neighbours, and so does the height, without overlaps. What lies in a loop zone is
laid out first, and the zone as one block. The same workflow gives the same places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import LOOP_ZONE, LayoutSize, Placed, WorkflowLayout

DEFAULT = LayoutSize(width=220, height=140)
"""How large a node is where nobody says so, in pixels."""

BETWEEN = 90
"""Pixels between two layers."""
BELOW = 40
"""Pixels between two nodes of a layer."""
INSIDE = LayoutSize(width=130, height=80)
"""Pixels between the border of a zone and what lies in it, for the slots of the zone."""
LONGEST = 10
"""How many layers an edge passes at a place of its own; a longer one, in a workflow of very many layers, does not."""
SWEEPS = 6
"""How often the order of the layers is gone through."""

Node = str | tuple[str, str, int]
"""A node by its id, or the place at which an edge between two nodes passes a layer."""
Layers = list[list[Node]]


@dataclass
class _Result:
    positions: dict[str, Placed] = field(default_factory=dict)
    zones: dict[str, LayoutSize] = field(default_factory=dict)


def lay_out(workflow: Workflow, sizes: Mapping[str, LayoutSize], keep: Collection[str]) -> WorkflowLayout:
    """Return places for nodes but those to `keep`, from the corner of the zone that one lies in, and sizes of zones.

    With nodes to keep, the others are put near their neighbours where nothing is yet.
    """
    ids = {node.id for node in workflow.nodes}
    parents = {n.id: n.parent_node if n.parent_node in ids and n.parent_node != n.id else None for n in workflow.nodes}
    for start in list(parents):  # what lies in itself over others lies nowhere
        seen, at = {start}, parents[start]
        while at is not None and at not in seen:
            seen.add(at)
            at = parents[at]
        if at is not None:
            parents[start] = None
    kept = {
        node.id: Placed(x=node.position["x"], y=node.position["y"])
        for node in workflow.nodes
        if node.id in keep and {"x", "y"} <= node.position.keys()
    }
    result = _Result()
    _lay_out_inside(None, workflow, parents, dict(sizes), kept, result)
    return WorkflowLayout(positions=result.positions, zones=result.zones)


def _lay_out_inside(
    zone: str | None,
    workflow: Workflow,
    parents: Mapping[str, str | None],
    sizes: dict[str, LayoutSize],
    kept: Mapping[str, Placed],
    result: _Result,
) -> None:
    inside = [node for node in workflow.nodes if parents[node.id] == zone]
    for node in inside:
        if node.type == LOOP_ZONE and node.id in parents.values():
            _lay_out_inside(node.id, workflow, parents, sizes, kept, result)
            needed, drawn = result.zones[node.id], sizes.get(node.id) if node.id in kept else None
            sizes[node.id] = needed if drawn is None else _larger(needed, drawn)
    names = [node.id for node in inside]
    edges = _edges_among(set(names), workflow, parents)
    size = {name: sizes.get(name, DEFAULT) for name in names}
    fixed = {name: kept[name] for name in names if name in kept}
    places = (
        _near(names, edges, size, fixed, None if zone is None else INSIDE) if fixed else _layered(names, edges, size)
    )
    moved = {name: place for name, place in places.items() if name not in fixed}
    if zone is not None:
        if not fixed:
            moved = {n: Placed(x=p.x + INSIDE.width, y=p.y + INSIDE.height) for n, p in moved.items()}
        ends = {**fixed, **moved}
        result.zones[zone] = LayoutSize(
            width=max((p.x + size[n].width for n, p in ends.items()), default=0) + INSIDE.width,
            height=max((p.y + size[n].height for n, p in ends.items()), default=0) + INSIDE.height // 2,
        )
    result.positions.update(moved)


def _larger(one: LayoutSize, other: LayoutSize) -> LayoutSize:
    return LayoutSize(width=max(one.width, other.width), height=max(one.height, other.height))


def _edges_among(names: set[str], workflow: Workflow, parents: Mapping[str, str | None]) -> list[tuple[str, str]]:
    """Return the edges between nodes, and between the blocks that other nodes lie in."""

    def block(node: str) -> str | None:
        at: str | None = node
        while at is not None and at not in names:
            at = parents.get(at)
        return at

    found = dict.fromkeys((block(edge.source), block(edge.target)) for edge in workflow.edges)
    return [(a, b) for a, b in found if a is not None and b is not None and a != b]


# --- layers -----------------------------------------------------------------------------------------------


def _layered(names: list[str], edges: list[tuple[str, str]], size: Mapping[str, LayoutSize]) -> dict[str, Placed]:
    acyclic = _without_cycles(names, edges)
    rank = _ranks(names, acyclic)
    layers, before, after = _with_passages(names, acyclic, rank)
    _order(layers, before, after)
    return _coordinates(layers, before, after, size)


def _without_cycles(names: list[str], edges: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the edges, with those turned round that lead back to where a walk came from."""
    out: dict[str, list[str]] = defaultdict(list)
    entered = set()
    for source, target in edges:
        out[source].append(target)
        entered.add(target)
    found: dict[tuple[str, str], None] = {}
    state: dict[str, int] = {}
    for start in sorted(names, key=lambda name: name in entered):
        walk = [(start, iter(out[start]))] if start not in state else []
        state.setdefault(start, 1)
        while walk:
            name, rest = walk[-1]
            for target in rest:
                if state.get(target) == 1:
                    found[target, name] = None
                    continue
                found[name, target] = None
                if target not in state:
                    state[target] = 1
                    walk.append((target, iter(out[target])))
                    break
            else:
                state[name] = 2
                walk.pop()
    return list(found)


def _ranks(names: list[str], edges: list[tuple[str, str]]) -> dict[str, int]:
    """Return in which layer each node is: after all that feed it, and no further than what it feeds needs."""
    out: dict[str, list[str]] = defaultdict(list)
    waiting = dict.fromkeys(names, 0)
    for source, target in edges:
        out[source].append(target)
        waiting[target] += 1
    rank = dict.fromkeys(names, 0)
    order = [name for name in names if not waiting[name]]
    fed = set(names) - set(order)
    for name in order:
        for target in out[name]:
            rank[target] = max(rank[target], rank[name] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                order.append(target)
    for name in reversed(order):
        if name not in fed and out[name]:
            rank[name] = min(rank[target] for target in out[name]) - 1
    return rank


def _with_passages(
    names: list[str], edges: list[tuple[str, str]], rank: Mapping[str, int]
) -> tuple[Layers, dict[Node, list[Node]], dict[Node, list[Node]]]:
    """Return the layers, with the places at which longer edges pass them, and who is connected with whom."""
    layers: Layers = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    before: dict[Node, list[Node]] = defaultdict(list)
    after: dict[Node, list[Node]] = defaultdict(list)
    for name in names:
        layers[rank[name]].append(name)
    for source, target in edges:
        last: Node = source
        is_long = rank[target] - rank[source] > LONGEST
        for layer in range(rank[target] if is_long else rank[source] + 1, rank[target] + 1):
            node: Node = target if layer == rank[target] else (source, target, layer)
            if node != target:
                layers[layer].append(node)
            after[last].append(node)
            before[node].append(last)
            last = node
    return layers, before, after


def _order(layers: Layers, before: Mapping[Node, list[Node]], after: Mapping[Node, list[Node]]) -> None:
    """Order each layer by the mean place of the neighbours in the one beside it, there and back."""
    place = {node: float(at) for layer in layers for at, node in enumerate(layer)}

    def mean(neighbours: Mapping[Node, list[Node]]) -> Callable[[Node], float]:
        def of(node: Node) -> float:
            found = neighbours.get(node)
            return sum(place[one] for one in found) / len(found) if found else place[node]

        return of

    for sweep in range(SWEEPS):
        is_forth = sweep % 2 == 0
        key = mean(before if is_forth else after)
        for layer in layers if is_forth else reversed(layers):
            layer.sort(key=key)
            place.update((node, float(at)) for at, node in enumerate(layer))


def _coordinates(
    layers: Layers,
    before: Mapping[Node, list[Node]],
    after: Mapping[Node, list[Node]],
    size: Mapping[str, LayoutSize],
) -> dict[str, Placed]:
    height = {node: size[node].height if isinstance(node, str) else 0 for layer in layers for node in layer}
    middle: dict[Node, float] = {}
    for layer in layers:
        at = 0.0
        for node in layer:
            middle[node] = at + height[node] / 2
            at += height[node] + BELOW
    for sweep in range(SWEEPS):
        is_forth = sweep % 2 == 0
        for layer in layers if is_forth else reversed(layers):
            _align(layer, before if is_forth else after, middle, height)
    found: dict[str, Placed] = {}
    left = 0.0
    top = min((middle[node] - height[node] / 2 for layer in layers for node in layer), default=0)
    for layer in layers:
        width = max((size[node].width for node in layer if isinstance(node, str)), default=0)
        for node in layer:
            if isinstance(node, str):
                found[node] = Placed(x=round(left), y=round(middle[node] - height[node] / 2 - top))
        left += width + BETWEEN
    return found


def _align(
    layer: list[Node], neighbours: Mapping[Node, list[Node]], middle: dict[Node, float], height: Mapping[Node, float]
) -> None:
    """Move the nodes of a layer towards their neighbours: in their order, none over another."""
    wanted = []
    for node in layer:
        found = neighbours.get(node)
        wanted.append(sum(middle[one] for one in found) / len(found) if found else middle[node])
    end = float("-inf")
    placed = []
    for node, want in zip(layer, wanted, strict=True):
        at = max(want, end + height[node] / 2)
        placed.append(at)
        end = at + height[node] / 2 + BELOW
    # What was pushed down comes back up together, as far as the layer as a whole has moved too far.
    back = sum(at - want for at, want in zip(placed, wanted, strict=True)) / len(layer) if layer else 0
    middle.update((node, at - back) for node, at in zip(layer, placed, strict=True))


# --- beside what is there ---------------------------------------------------------------------------------


def _near(
    names: list[str],
    edges: list[tuple[str, str]],
    size: Mapping[str, LayoutSize],
    fixed: Mapping[str, Placed],
    border: LayoutSize | None,
) -> dict[str, Placed]:
    """Return places for the nodes that are not fixed: right of what feeds them, else left of what they feed, at the
    first height at which nothing is; none on the `border` of the zone that they lie in."""
    feeding: dict[str, list[str]] = defaultdict(list)
    fed: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        feeding[target].append(source)
        fed[source].append(target)
    places = dict(fixed)
    rank = _ranks(names, _without_cycles(names, edges))
    for name in sorted((n for n in names if n not in fixed), key=lambda n: rank[n]):
        sources = [one for one in feeding[name] if one in places]
        targets = [one for one in fed[name] if one in places]
        if sources:
            x = max(places[one].x + size[one].width for one in sources) + BETWEEN
            y = sum(places[one].y for one in sources) / len(sources)
        elif targets:
            x = min(places[one].x for one in targets) - BETWEEN - size[name].width
            y = sum(places[one].y for one in targets) / len(targets)
        else:
            x = min(place.x for place in places.values())
            y = max(place.y + size[one].height for one, place in places.items()) + BELOW
        if border is not None:
            x, y = max(x, border.width), max(y, border.height)
        places[name] = _free(Placed(x=round(x), y=round(y)), size[name], places, size)
    return places


def _free(place: Placed, own: LayoutSize, places: Mapping[str, Placed], size: Mapping[str, LayoutSize]) -> Placed:
    """Return the first place below, in the same column, that is free."""
    beside = sorted(
        (p.y - BELOW, p.y + size[n].height + BELOW)
        for n, p in places.items()
        if p.x < place.x + own.width + BELOW and place.x < p.x + size[n].width + BELOW
    )
    y = place.y
    for top, bottom in beside:
        if top < y + own.height and y < bottom:
            y = round(bottom)
    return Placed(x=place.x, y=y)
