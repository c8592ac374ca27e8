"""A node fails, is repaired on the canvas, and the run continues with what is there now."""

from __future__ import annotations

import json

from helpers.folder_plugins import write_plugin
from playwright.async_api import expect
from studio_bench import Studio, canvas_node, leave

from tavern_host import EXECUTION_ENGINE

NODES = """
from pathlib import Path

from tavern_host import node


@node(cached=False)
async def ask(file: str) -> str:
    "Ask somebody who wants to be asked once."
    with Path(file).open("a") as notes:
        notes.write("asked ")
    return "key.txt"


@node()
async def open_door(folder: str, key: str) -> str:
    "Open the door, if the key is in the folder."
    return (Path(folder) / key).read_text()
"""


async def test_a_run_continues_with_the_repaired_node(studio: Studio) -> None:
    page, root = studio.page, studio.site.host.project.root
    inspector, again = page.get_by_label("Inspector"), page.get_by_role("button", name="Continue from the failed node")
    write_plugin(root / "plugins" / "acme", {"__init__.py": "", "nodes/__init__.py": NODES}, nodes={"entry": "./nodes"})
    await studio.site.post("/api/plugins/reload")
    await studio.site.host.grant("acme")
    (root / "key.txt").write_text("it is open")
    asked, door = root / "asked.txt", {"x": 320, "y": 0}
    nodes = [
        {"id": "ask", "type": "acme:Ask", "position": {"x": 0, "y": 0}, "inputValues": {"file": str(asked)}},
        {"id": "door", "type": "acme:OpenDoor", "position": door, "inputValues": {"folder": str(root / "nowhere")}},
    ]
    edges = [{"id": "e", "source": "ask", "sourceHandle": "result", "target": "door", "targetHandle": "key"}]
    (root / "workflows" / "house.json").write_text(json.dumps({"name": "House", "nodes": nodes, "edges": edges}))

    await studio.open("/workflows/house")
    await expect(canvas_node(page, "door")).to_be_visible()
    await page.keyboard.press("Control+Enter")
    await expect(again).to_be_visible()
    await canvas_node(page, "door").locator("strong").click()
    await studio.picture("failed")
    await inspector.get_by_label("folder", exact=True).fill(str(root))
    await again.click()

    await expect(page.get_by_text("Continued; results kept: 1")).to_be_visible()
    await inspector.get_by_role("tab", name="Outputs").click()
    await expect(inspector.get_by_text("it is open")).to_be_visible()
    await expect(again).to_have_count(0)
    await leave(page)
    await expect(canvas_node(page, "door").get_by_text("nowhere")).to_have_count(0)
    await studio.picture("continued")
    assert asked.read_text() == "asked "
    newest, failed = await studio.site.host.services.get(EXECUTION_ENGINE).history()
    await studio.open(f"/runs/{newest.id}")
    await page.get_by_role("link", name=failed.id).click()
    await expect(page.get_by_text(f"it was continued by the run {newest.id}")).to_be_visible()
    await studio.picture("continued-run")
