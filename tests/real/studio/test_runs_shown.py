"""A run is shown on the canvas that it ran on, continued where it failed, and compared with another one."""

from __future__ import annotations

import json
from typing import Any

from helpers.folder_plugins import write_plugin
from playwright.async_api import expect
from studio_bench import Studio, canvas_node, read_until

from tavern_host import EXECUTION_ENGINE

NODES = """
from pathlib import Path

from tavern_host import node


@node()
async def keyed(path: str) -> str:
    "Open the door, if the key is where it should be."
    return Path(path).read_text()
"""


async def finished(studio: Studio, body: dict[str, Any]) -> str:
    """Run something to its end; return the id of the run."""
    run: str = (await (await studio.site.post("/api/prompt", json=body)).json())["promptId"]
    await studio.site.host.services.get(EXECUTION_ENGINE).wait(run)
    return run


async def test_runs_are_compared_shown_on_canvas_and_continued(studio: Studio) -> None:
    run = await _compared(studio)
    await _shown_on_its_canvas(studio, run)
    await _continued_where_it_failed(studio)


async def _shown_on_its_canvas(studio: Studio, run: str) -> None:
    page = studio.page
    await studio.open(f"/runs/{run}")
    await page.get_by_role("link", name="Show on the canvas").click()
    await expect(page.get_by_label("Inspector").get_by_text("Hello, Mo")).to_be_visible()
    await expect(page.get_by_text("The workflow has changed since this run")).to_have_count(0)

    await canvas_node(page, "trim").locator("strong").click()
    await page.keyboard.press("b")
    await studio.open(f"/runs/{run}")
    await page.get_by_role("link", name="Show on the canvas").click()
    await expect(page.get_by_text("The workflow has changed since this run")).to_be_visible()
    await expect(canvas_node(page, "trim").get_by_text("Changed")).to_be_visible()
    await expect(page.locator(".vue-flow__node .badge.warn")).to_have_count(1)
    await studio.picture("run-on-canvas")
    await page.get_by_role("button", name="Hide the marks").click()
    await expect(page.locator(".vue-flow__node .badge.warn")).to_have_count(0)


async def _compared(studio: Studio) -> str:
    """Compare two runs; return the second."""
    page = studio.page
    asked = {"workflowId": "greeting", "useCache": False}
    other = await finished(studio, {**asked, "inputs": {"name": "Lin"}})
    run = await finished(studio, {**asked, "inputs": {"name": "Mo"}})
    await studio.open(f"/runs/{run}")
    await page.get_by_label("Compare with").select_option(other)
    table = page.get_by_role("table")
    await expect(table.get_by_role("row").filter(has_text="trim").first).to_contain_text("Other outputs")
    await expect(table.get_by_text("Hello, Mo").first).to_be_visible()
    await expect(table.get_by_text("Hello, Lin").first).to_be_visible()
    await studio.picture("runs-compared")
    await page.reload()
    await expect(table.get_by_text("Hello, Lin").first).to_be_visible()
    await page.get_by_label("Compare with").select_option("")
    await expect(page.get_by_text("Nodes in time")).to_be_visible()
    return run


async def _continued_where_it_failed(studio: Studio) -> None:
    page, root = studio.page, studio.site.host.project.root
    write_plugin(root / "plugins" / "acme", {"__init__.py": "", "nodes/__init__.py": NODES}, nodes={"entry": "./nodes"})
    await studio.site.post("/api/plugins/reload")
    await studio.site.host.grant("acme")
    key = root / "key.txt"
    door = {"id": "door", "type": "acme:Keyed", "position": {"x": 0, "y": 0}, "inputValues": {"path": str(key)}}
    (root / "workflows" / "house.json").write_text(json.dumps({"name": "House", "nodes": [door], "edges": []}))
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await studio.open("/workflows/house")
    inspector = page.get_by_label("Inspector")

    def is_report(copied: str) -> bool:
        return '"acme:Keyed"' in copied

    await page.get_by_label("What it is for").fill("It opens the door")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_role("button", name="Continue from the failed node")).to_be_visible()
    await expect(page.get_by_label("What it is for")).to_have_value("It opens the door")  # though it was drawn again
    await canvas_node(page, "door").locator("strong").click()
    await inspector.get_by_role("tab", name="Outputs").click()
    await inspector.get_by_role("button", name="Copy a report").click()
    report = json.loads(await read_until(is_report, lambda: page.evaluate("navigator.clipboard.readText()")))
    assert (report["workflow"], report["node"], report["type"]) == ("house", "door", "acme:Keyed")
    assert "key.txt" in report["error"]["message"]
    assert "inputValues" not in report

    key.write_text("it is open")
    await page.get_by_role("button", name="Continue from the failed node").click()
    await expect(inspector.get_by_text("it is open")).to_be_visible()
    await expect(page.get_by_role("button", name="Continue from the failed node")).to_have_count(0)
