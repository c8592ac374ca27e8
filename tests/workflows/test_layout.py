"""Places of nodes: from left to right, no two over each other, the same each time, and near what stays."""

from __future__ import annotations

import itertools
import random
from typing import Any

from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.workflows import LayoutSize, Placed, WorkflowLayout
from tavern_workflows.layout import BETWEEN, DEFAULT, LONGEST, _with_passages, lay_out


def workflow(
    edges: list[tuple[str, str]], zones: dict[str, str] | None = None, alone: tuple[str, ...] = ()
) -> Workflow:
    zones = zones or {}
    names = dict.fromkeys([*alone, *zones.values(), *itertools.chain(*edges)])
    nodes: list[dict[str, Any]] = [
        {"id": name, "type": "core:LoopZone" if name in zones.values() else "core:Text", "parentNode": zones.get(name)}
        for name in names
    ]
    made = [
        {"id": f"e{at}", "source": a, "sourceHandle": "o", "target": b, "targetHandle": "i"}
        for at, (a, b) in enumerate(edges)
    ]
    return Workflow.model_validate({"nodes": nodes, "edges": made})


def random_workflow(seed: int, count: int) -> Workflow:
    chance = random.Random(seed)
    edges = [(f"n{a}", f"n{b}") for a, b in (sorted(chance.sample(range(count), 2)) for _ in range(count * 2))]
    zones = {f"n{at}": f"zone{at % 2}" for at in range(0, count, 5)}
    return workflow([*edges, ("zone0", "n1")], {**zones, "zone1": "zone0"}, tuple(f"n{at}" for at in range(count)))


def assert_apart(found: Workflow, layout: WorkflowLayout, kept: dict[str, Placed] | None = None) -> None:
    places = {**layout.positions, **(kept or {})}
    inside: dict[str | None, list[str]] = {}
    for node in found.nodes:
        inside.setdefault(node.parent_node, []).append(node.id)
    for zone, names in inside.items():
        for a, b in itertools.combinations(names, 2):
            (at_a, size_a), (at_b, size_b) = ((places[n], layout.zones.get(n, DEFAULT)) for n in (a, b))
            is_apart = (
                at_a.x + size_a.width <= at_b.x
                or at_b.x + size_b.width <= at_a.x
                or at_a.y + size_a.height <= at_b.y
                or at_b.y + size_b.height <= at_a.y
            )
            assert is_apart, (a, b)
        if zone is not None:
            for name in names:
                size = layout.zones.get(name, DEFAULT)
                assert 0 < places[name].x < places[name].x + size.width < layout.zones[zone].width
                assert 0 < places[name].y < places[name].y + size.height < layout.zones[zone].height


def test_no_two_overlap_and_zones_hold_what_lies_in_them() -> None:
    for seed in range(30):
        found = random_workflow(seed, 40)
        layout = lay_out(found, {}, ())
        assert layout.positions.keys() == {node.id for node in found.nodes}
        assert layout == lay_out(found, {}, ()), "the same each time"
        assert_apart(found, layout)
    chain = workflow([("a", "b"), ("b", "c"), ("a", "c"), ("x", "c")])
    at = lay_out(chain, {}, ()).positions
    assert at["a"].x < at["b"].x < at["c"].x and at["x"].x == at["b"].x, "no further left than it has to be"


def test_edges_go_right_but_those_that_close_a_cycle() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        pairs = [sorted(chance.sample(range(60), 2)) for _ in range(120)]
        found = workflow([(f"n{a}", f"n{b}") for a, b in pairs])
        at = lay_out(found, {}, ()).positions
        assert all(at[e.source].x + DEFAULT.width + BETWEEN <= at[e.target].x for e in found.edges)
    at = lay_out(workflow([("a", "b"), ("b", "c"), ("c", "a"), ("c", "c")]), {}, ()).positions
    assert at["a"].x < at["b"].x < at["c"].x


def test_few_edges_cross() -> None:
    pairs = [(f"a{i}", f"b{5 - i}") for i in range(6)]
    at = lay_out(workflow(pairs), {}, ()).positions
    order = sorted(pairs, key=lambda pair: at[pair[0]].y)
    assert order == sorted(pairs, key=lambda pair: at[pair[1]].y)


def test_what_is_kept_stays_and_what_is_new_is_near_it() -> None:
    for seed in range(20):
        found = random_workflow(seed, 30)
        first = lay_out(found, {}, ())
        placed = [n.model_copy(update={"position": first.positions[n.id].model_dump()}) for n in found.nodes]
        new = {"id": "new", "type": "core:Text"}
        edge = {"id": "e-new", "source": "n3", "sourceHandle": "o", "target": "new", "targetHandle": "i"}
        more = Workflow.model_validate(
            {"nodes": [*(n.model_dump() for n in placed), new], "edges": [*(e.model_dump() for e in found.edges), edge]}
        )
        kept = {node.id: first.positions[node.id] for node in placed}
        layout = lay_out(more, {**first.zones}, [*kept])
        assert layout.positions.keys() == {"new"}
        source = first.positions["n3"]
        assert layout.positions["new"].x == source.x + DEFAULT.width + BETWEEN
        assert_apart(more, WorkflowLayout(positions=layout.positions, zones=first.zones), kept)


def test_what_is_new_in_a_zone_is_near_what_is_kept_there() -> None:
    found = workflow(
        [("zone", "a"), ("a", "new"), ("new", "b"), ("zone", "beside")], dict.fromkeys(["a", "b", "new"], "zone")
    )
    kept = {
        "zone": Placed(x=50, y=50),
        "a": Placed(x=150, y=90),
        "b": Placed(x=480, y=90),
        "beside": Placed(x=990, y=50),
    }
    placed = [n.model_copy(update={"position": kept[n.id].to_json()}) if n.id in kept else n for n in found.nodes]
    layout = lay_out(found.model_copy(update={"nodes": placed}), {}, [*kept])
    assert layout.positions.keys() == {"new"}
    assert layout.positions["new"].x == 150 + DEFAULT.width + BETWEEN, "right of what feeds it"
    assert layout.positions["new"].y >= 90 + DEFAULT.height, "under what was there"
    zone = layout.zones["zone"]
    assert layout.positions["new"].y + DEFAULT.height < zone.height
    drawn = {"zone": LayoutSize(width=2000, height=900)}
    outside = workflow([("zone", "out")], {"a": "zone"})
    nodes = [n.model_copy(update={"position": kept[n.id].to_json()}) if n.id in kept else n for n in outside.nodes]
    at = lay_out(outside.model_copy(update={"nodes": nodes}), drawn, ["zone", "a"]).positions["out"]
    assert at.x == 50 + 2000 + BETWEEN, "beside the zone as it is drawn"


def test_long_edges_of_deep_workflows_take_few_places() -> None:
    chance = random.Random(5)
    chain = [(f"n{at}", f"n{at + 1}") for at in range(150)]
    far = [(f"n{a}", f"n{b}") for a, b in (sorted(chance.sample(range(150), 2)) for _ in range(60))]
    found = workflow([*chain, *far])
    layout = lay_out(found, {}, ())
    assert all(layout.positions[e.source].x < layout.positions[e.target].x for e in found.edges)
    assert_apart(found, layout)
    ranks = {f"n{at}": at for at in range(151)}
    layers, _, _ = _with_passages([*ranks], [*chain, *far], ranks)
    assert sum(map(len, layers)) < 151 + 60 * LONGEST


def test_sizes_count_and_odd_documents_are_laid_out() -> None:
    wide = {"a": LayoutSize(width=900, height=10)}
    assert lay_out(workflow([("a", "b")]), wide, ()).positions["b"].x == 900 + BETWEEN
    assert lay_out(Workflow(), {}, ()).positions == {}
    circle = workflow([("x", "z1"), ("z2", "x")], {"z1": "z2", "z2": "z1"})
    assert lay_out(circle, {}, ()).positions.keys() == {"x", "z1", "z2"}
    nobody = workflow([("a", "gone")], {"a": "zone"}, ("b",))
    assert lay_out(nobody, {}, ["zone", "b"]).positions.keys() >= {"a", "b", "gone", "zone"}
