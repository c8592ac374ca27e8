"""Outputs are pinned and changed, and a node is tried alone with the inputs that it had."""

from __future__ import annotations

from typing import Any

from playwright.async_api import expect
from studio_bench import Studio


async def last_run(studio: Studio) -> dict[str, Any]:
    """Return the newest run: its outputs, and what became of each node."""
    listed = (await (await studio.site.get("/api/runs")).json())["runs"]
    run: dict[str, Any] = await (await studio.site.get(f"/api/runs/{listed[0]['id']}")).json()
    return run


async def test_outputs_are_pinned_changed_and_a_node_is_tried_alone(studio: Studio) -> None:
    page, inspector = studio.page, studio.page.get_by_label("Inspector")
    await studio.open("/workflows/greeting")
    await expect(page.locator(".vue-flow__node")).to_have_count(4)
    await page.get_by_label("Name", exact=True).fill("Ada")
    await page.keyboard.press("Enter")
    await expect(inspector.get_by_text("Hello, Ada")).to_be_visible()

    await page.locator(".vue-flow__node[data-id=trim] strong").click()
    await inspector.get_by_role("tab", name="Outputs").click()
    await inspector.get_by_role("button", name="Pin the outputs").click()
    await inspector.get_by_label("text", exact=True).fill("Grace")
    await expect(page.locator(".vue-flow__node[data-id=trim] .pin")).to_be_visible()
    await studio.picture("pinned")
    await page.keyboard.press("Control+Enter")
    await page.locator(".vue-flow__pane").click(position={"x": 20, "y": 20})
    await expect(inspector.get_by_text("Hello, Grace")).to_be_visible()
    assert (await last_run(studio))["nodes"]["trim"]["given"] is True

    await page.locator(".vue-flow__node[data-id=trim] strong").click()
    await inspector.get_by_role("tab", name="Outputs").click()
    await inspector.get_by_role("button", name="Let the outputs go").click()
    merge = page.locator(".vue-flow__node").filter(has_text="Merge texts")
    await merge.locator("strong").click()
    await inspector.get_by_role("button", name="Try this node").click()
    await inspector.get_by_role("tab", name="Outputs").click()
    await expect(inspector.get_by_text("Hello, Grace")).to_be_visible()
    run = await last_run(studio)
    assert run["nodes"]["trim"]["given"] is True, "what fed it was not run again"


async def test_runs_begun_elsewhere_appear_on_the_canvas(studio: Studio) -> None:
    page = studio.page
    await studio.open("/workflows/greeting")
    await expect(page.locator(".vue-flow__node")).to_have_count(4)
    asked = {"workflowId": "greeting", "inputs": {"name": "Lin"}}
    await studio.site.post("/api/prompt", json=asked)
    await expect(page.get_by_label("Inspector").get_by_text("Hello, Lin")).to_be_visible()
    await studio.site.post("/api/prompt", json={**asked, "inputs": {"name": "Mo"}, "useCache": False})
    await page.get_by_role("button", name="Watch it").click()
    await expect(page.get_by_label("Inspector").get_by_text("Hello, Mo")).to_be_visible()
