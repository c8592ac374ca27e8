"""A workflow whose nodes have no places, as agents and programs write them, is laid out when it is opened."""

from __future__ import annotations

import json
from typing import Any

from playwright.async_api import Page, expect
from studio_bench import Studio, canvas_node, publish

LOOP = {"carried": [{"key": "text", "dataFlowType": "STRING"}], "count": 2}
NODES: dict[str, dict[str, Any]] = {
    "in": {"type": "core:GroupInput"},
    "first": {"type": "core:TextMerge"},
    "loop": {"type": "core:LoopZone", "configValues": LOOP},
    "upper": {"type": "core:UpperCase", "parentNode": "loop"},
    "more": {"type": "core:TextMerge", "parentNode": "loop"},
    "last": {"type": "core:TextMerge"},
    "out": {"type": "core:GroupOutput"},
}
EDGES = (
    "in.text first.text_inputs__0,first.merged_text loop.in__text,loop.in__text upper.text,"
    "upper.text more.text_inputs__0,"
    "more.merged_text loop.next__text,loop.out__text last.text_inputs__0,last.merged_text out.text"
)


def document() -> dict[str, Any]:
    ends = [[end.split(".") for end in edge.split(" ")] for edge in EDGES.split(",")]
    edges = [
        {"id": f"e{n}", "source": a, "sourceHandle": slot, "target": b, "targetHandle": into}
        for n, ((a, slot), (b, into)) in enumerate(ends)
    ]
    text = {"text": {"dataFlowType": "STRING"}}
    nodes = [{"id": name, **node} for name, node in NODES.items()]
    return {"name": "Plain", "nodes": nodes, "edges": edges, "interfaceInputs": text, "interfaceOutputs": text}


async def boxes(page: Page) -> dict[str, tuple[float, float, float, float]]:
    """Return where nodes are on the screen: left, top, right, bottom."""
    found = {}
    for name in NODES:
        box = await canvas_node(page, name).bounding_box()
        assert box is not None
        found[name] = (box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"])
    return found


def is_within(inner: tuple[float, ...], outer: tuple[float, ...]) -> bool:
    return inner[0] >= outer[0] and inner[1] >= outer[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


async def test_a_workflow_without_places_is_laid_out_and_not_changed(studio: Studio) -> None:
    page, file = studio.page, studio.site.host.project.root / "workflows" / "plain.json"
    file.write_text(json.dumps(document()))
    status = page.get_by_label("Status")

    async def places() -> dict[str, str]:
        await expect(page.locator(".vue-flow__node")).to_have_count(len(NODES))
        await expect(page.locator(".graph.unplaced")).to_have_count(0)
        return {name: await canvas_node(page, name).evaluate("node => node.style.transform") for name in NODES}

    await studio.open("/workflows/plain")
    before, found = await places(), await boxes(page)
    await studio.picture("unplaced")
    top = [found[name] for name in ("in", "first", "loop", "last", "out")]
    assert [a[0] for a in top] == sorted(a[0] for a in top), "what feeds a node stands before it"
    assert not any(overlap(a, b) for a in top for b in top if a is not b)
    assert not overlap(found["upper"], found["more"])
    assert is_within(found["upper"], found["loop"]) and is_within(found["more"], found["loop"])
    await expect(status.get_by_text("Published", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Publish", exact=True)).to_be_disabled()

    await page.reload()
    assert await places() == before
    assert json.loads(file.read_text()) == document(), "looking at it changes nothing"
    assert (await (await studio.site.get("/api/workflows/plain/draft")).json()).get("workflow") is None

    await page.get_by_label("What it is for").fill("It has places now")
    await page.get_by_label("What it is for").press("Tab")
    await publish(page)
    saved = json.loads(file.read_text())
    assert all({"x", "y"} <= node["position"].keys() for node in saved["nodes"])
    await page.reload()
    assert await places() == before
