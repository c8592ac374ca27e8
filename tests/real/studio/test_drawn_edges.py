"""Edges stay where the definition of their node has changed, and are drawn as a person wants: each as one step."""

from __future__ import annotations

import json
from typing import Any

from helpers.folder_plugins import write_plugin
from helpers.workflow_documents import edge
from playwright.async_api import expect
from studio_bench import Studio, canvas_node, drag, leave

ACME = {"displayName": "Acme weather", "nodes": {"entry": "./nodes"}}
NODES = """
from tavern_host import node


@node()
async def forecast(city: str) -> str:
    "Say what the weather will be."
    return city
"""


def _node(name: str, kind: str, x: int, **more: object) -> dict[str, object]:
    return {"id": name, "type": kind, "position": {"x": x, "y": 0}, **more}


OLD: dict[str, Any] = {
    "name": "Old",
    "nodes": [
        _node("hello", "core:Text", 0, inputValues={"text": "Hello"}),
        _node("up", "core:UpperCase", 300, inputValues={"tone": 3}),
        _node("join", "core:TextMerge", 600),
        _node("sky", "acme:forecast", 900),
    ],
    "edges": [
        edge("renamed", "hello.text", "up.Text"),
        edge("lost", "up.shout", "join.text_inputs__1"),
        edge("kept", "up.text", "join.text_inputs__0"),
        edge("after", "join.merged_text", "sky.city"),
    ],
}


LINE: dict[str, Any] = {
    "name": "Line",
    "nodes": [
        _node("hello", "core:Text", 0, inputValues={"text": "Hello"}),
        _node("up", "core:UpperCase", 400),
        _node("out", "core:GroupOutput", 800),
        _node("aside", "core:Text", 0) | {"position": {"x": 0, "y": 200}},
    ],
    "edges": [edge("first", "hello.text", "up.text"), edge("second", "up.text", "out.text")],
    "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
}


async def test_edges_are_upgraded_rerouted_named_and_pasted(studio: Studio) -> None:
    await _upgrade(studio)
    await _draw(studio)
    await _paste(studio)


async def _upgrade(studio: Studio) -> None:
    page, project = studio.page, studio.site.host.project.root
    write_plugin(project / "plugins" / "acme", {"__init__.py": "", "nodes/__init__.py": NODES}, **ACME)
    await studio.site.post("/api/plugins/reload")
    (project / "workflows" / "old.json").write_text(json.dumps(OLD))
    await studio.open("/workflows/old")
    up, edges = canvas_node(page, "up"), page.locator(".vue-flow__edge")
    await expect(up.get_by_text("The slot “Text” is gone")).to_be_visible()
    await expect(up.get_by_text("The slot “shout” is gone")).to_be_visible()
    await expect(up.get_by_text("The value of “tone” has no slot")).to_be_visible()
    await expect(page.locator(".vue-flow__edge.ghost")).to_have_count(2)
    await expect(page.get_by_text("The plugin acme brings it, and waits for review.")).to_be_visible()
    problems = page.get_by_label("Problems")
    await expect(problems.get_by_role("button", name="Upgrade the node")).to_have_count(3)
    await studio.picture("ghosts")

    await up.locator("strong").click()
    await page.keyboard.press("u")
    await expect(page.get_by_text("Kept: Text → text. Removed: shout, tone.")).to_be_visible()
    await expect(edges).to_have_count(3)
    await expect(up.get_by_text("is gone")).to_have_count(0)
    await studio.picture("upgraded")
    await page.keyboard.press("Control+z")
    await expect(up.get_by_text("is gone")).to_have_count(2)
    await expect(edges).to_have_count(4)
    await problems.get_by_role("button", name="Upgrade the node").first.click()
    await expect(edges).to_have_count(3)
    await page.get_by_role("link", name="Look at it").click()
    await expect(page.get_by_role("heading", name="Acme weather")).to_be_visible()


async def _draw(studio: Studio) -> None:
    page, project = studio.page, studio.site.host.project.root
    (project / "workflows" / "line.json").write_text(json.dumps(LINE))
    await studio.open("/workflows/line")
    first, second = (page.locator(f".vue-flow__edge[data-id={name}]") for name in ("first", "second"))
    await first.locator(".vue-flow__edge-interaction").dblclick()
    await drag(page, first.locator(".point"), (0, 80))
    await studio.picture("reroute")

    await canvas_node(page, "out").locator("strong").click()
    await page.keyboard.press("e")
    await expect(second).to_be_focused()
    await page.keyboard.press("r")
    await expect(second.locator(".point")).to_be_focused()
    await page.keyboard.press("Delete")
    await expect(second.locator(".point")).to_have_count(0)
    await page.keyboard.press("n")
    await expect(page.get_by_label("Name of the link")).to_have_value("text")
    await page.get_by_label("Name of the link").fill("loud words")
    await page.keyboard.press("Enter")
    await expect(second.locator(".tag text", has_text="loud words")).to_have_count(2)
    await canvas_node(page, "up").locator("strong").click()
    await expect(page.locator(".vue-flow__edge.lit")).to_have_count(2)
    await page.keyboard.press("h")
    await expect(page.locator(".node.dim")).to_have_count(1)
    await studio.picture("named-link")
    await page.keyboard.press("h")

    await page.keyboard.press("Control+s")
    await expect(page.get_by_label("Status").get_by_text("Published", exact=True)).to_be_visible()
    kept = {edge["id"]: edge for edge in json.loads((project / "workflows" / "line.json").read_text())["edges"]}
    (point,) = kept["first"]["reroute"]
    assert point["y"] > 100, "it was in the middle of the line, and was pulled down"
    assert kept["second"]["linkName"] == "loud words"
    await page.keyboard.press("Control+Enter")
    await leave(page)
    await expect(page.get_by_label("Inspector").get_by_text("HELLO")).to_be_visible()
    for tags, points in ((0, 0), (0, 1), (0, 0)):  # the name, the point that was removed, and that it was added
        await page.keyboard.press("Control+z")
        await expect(second.locator(".tag")).to_have_count(tags)
        await expect(second.locator(".point")).to_have_count(points)
    await expect(first.locator(".point")).to_have_count(1)


async def _paste(studio: Studio) -> None:
    page, project = studio.page, studio.site.host.project.root
    other = {**LINE, "nodes": [node for node in LINE["nodes"] if node["id"] in ("hello", "out")], "edges": []}
    (project / "workflows" / "other.json").write_text(json.dumps(other))
    await canvas_node(page, "up").locator("strong").click()
    await page.keyboard.press("Control+c")
    await expect(page.get_by_text("Copied.")).to_be_visible()
    await studio.open("/workflows/other")
    await expect(page.locator(".vue-flow__node")).to_have_count(2)
    await page.keyboard.press("Control+v")
    await expect(page.get_by_text("Connected with what is here: 2")).to_be_visible()
    await expect(page.locator(".vue-flow__edge")).to_have_count(2)
    await page.keyboard.press("Control+z")
    await expect(page.locator(".vue-flow__node")).to_have_count(2)
    await expect(page.locator(".vue-flow__edge")).to_have_count(0)
