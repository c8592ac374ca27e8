"""Of a large workflow what somebody sees is drawn in full; the rest keeps its place, its edges and its state."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.async_api import Locator, Page, expect
from studio_bench import Studio, canvas_node

WIDTH, NODES = 20, 300


def _large() -> dict[str, Any]:
    nodes = [
        {"id": f"n{i}", "type": "core:UpperCase", "position": {"x": 300 * (i % WIDTH), "y": 200 * (i // WIDTH)}}
        for i in range(NODES)
    ]
    ends = {"sourceHandle": "text", "targetHandle": "text"}
    edges = [{"id": f"e{i}", "source": f"n{i - 1}", "target": f"n{i}", **ends} for i in range(1, NODES) if i % WIDTH]
    nodes[0]["inputValues"] = {"text": "first"}
    return {"name": "Large", "nodes": nodes, "edges": edges}


def _keep(root: Path) -> None:
    (root / "workflows" / "large.json").write_text(json.dumps(_large()))


async def _painted(page: Page, node: str) -> bool:
    """Return whether the far layer has something where a node is."""
    return bool(
        await page.evaluate(
            """(id) => {
              const canvas = document.querySelector(".far-layer canvas");
              const [all, one] = [canvas, document.querySelector(`.vue-flow__node[data-id=${id}]`)].map((part) =>
                part.getBoundingClientRect());
              const ratio = canvas.width / all.width;
              const [x, y] = [one.x + one.width / 4 - all.x, one.y + one.height / 2 - all.y];
              return canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data[3] === 255;
            }""",
            node,
        )
    )


def _full(page: Page) -> Locator:
    return page.locator(".vue-flow__node .node:not(.stand-in)")


async def test_a_large_workflow_is_drawn_in_full_where_it_is_seen(studio: Studio) -> None:
    page = studio.page
    _keep(studio.site.host.project.root)
    await studio.open("/workflows/large")
    await expect(page.locator(".vue-flow__edge")).to_have_count(NODES - NODES // WIDTH)
    await expect(page.locator(".stand-in")).to_have_count(NODES)  # more are seen than anybody reads
    await canvas_node(page, "n1").click()
    await expect(page.get_by_label("Inspector").get_by_label("Name of the node")).to_have_value("Upper case")
    await expect(canvas_node(page, "n1").locator(".node")).to_have_css("outline-style", "solid")
    assert await _painted(page, "n1")
    await studio.picture("large-far")
    await canvas_node(page, "n1").drag_to(page.locator(".vue-flow__pane"), target_position={"x": 40, "y": 40})
    assert await _painted(page, "n1")  # where it is now
    await page.keyboard.press("Control+z")

    await page.keyboard.press("Shift+F")
    await expect(canvas_node(page, "n1").locator(".node:not(.stand-in)")).to_be_visible()
    assert 0 < await _full(page).count() <= 60
    await page.wait_for_timeout(300)
    assert not await _painted(page, "n1")
    await expect(page.locator(".vue-flow__edge")).to_have_count(NODES - NODES // WIDTH)
    await studio.picture("large-near")

    # Both ends of an edge whose target was never drawn in full are at its handles.
    gap = await page.evaluate(
        """() => {
          const path = document.querySelector(".vue-flow__edge[data-id=e250] path");
          const end = path.getPointAtLength(path.getTotalLength());
          const node = document.querySelector(".vue-flow__node[data-id=n250]");
          const at = new DOMMatrixReadOnly(getComputedStyle(node).transform);
          return Math.hypot(end.x - at.e, end.y - at.f - parseFloat(node.querySelector(".target").style.top));
        }"""
    )
    assert gap < 12


async def test_a_field_that_is_typed_in_stays_when_its_node_leaves_the_view(studio: Studio) -> None:
    page = studio.page
    _keep(studio.site.host.project.root)
    await studio.open("/workflows/large?node=n0")
    field = canvas_node(page, "n0").get_by_role("textbox")
    await field.fill("typed")
    await page.evaluate("() => (window.field = document.activeElement)")
    await page.evaluate("() => { location.hash = '#/workflows/large?node=n250' }")
    await expect(canvas_node(page, "n250").locator(".node:not(.stand-in)")).to_be_in_viewport()
    await expect(canvas_node(page, "n1").locator(".stand-in")).to_have_count(1)
    assert await page.evaluate("() => document.activeElement === window.field")


async def test_states_of_nodes_are_seen(studio: Studio) -> None:
    page, project = studio.page, studio.site.host.project.root
    nodes = [
        {"id": "fine", "type": "core:UpperCase", "position": {"x": 0, "y": 0}, "inputValues": {"text": "a"}},
        {"id": "off", "type": "core:UpperCase", "position": {"x": 300, "y": 0}, "bypassed": True},
        {"id": "lost", "type": "nobody:Knows", "position": {"x": 0, "y": 250}},
        {"id": "bad", "type": "core:ParseJson", "position": {"x": 300, "y": 250}, "inputValues": {"text": "{"}},
    ]
    (project / "workflows" / "states.json").write_text(json.dumps({"name": "States", "nodes": nodes, "edges": []}))
    await studio.open("/workflows/states")
    look = {name: canvas_node(page, name).locator(".node") for name in ("fine", "off", "lost", "bad")}
    await expect(look["off"]).to_have_css("border-top-style", "dashed")
    await expect(look["lost"]).to_have_css("background-image", re.compile("gradient"))
    await expect(look["fine"]).to_have_css("outline-style", "none")
    await canvas_node(page, "fine").locator("header").click()
    await expect(look["fine"]).to_have_css("outline-style", "solid")
    await canvas_node(page, "lost").locator("header").click()
    await page.keyboard.press("Delete")  # what nobody knows cannot be run
    await page.get_by_role("button", name="Run", exact=True).first.click()
    plain = await look["fine"].evaluate("node => getComputedStyle(node).borderTopColor")
    await expect(look["bad"]).to_have_class(re.compile("error"))
    assert await look["bad"].evaluate("node => getComputedStyle(node).borderTopColor") != plain
    await studio.picture("states")
