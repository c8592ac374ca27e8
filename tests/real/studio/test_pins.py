"""Runs that begin elsewhere are watched, outputs are pinned, changed and kept with the workflow, and a node is tried
alone with its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect
from studio_bench import WIDE, Studio, canvas_node, greeting, leave, read_until, show

from tavern_host import Host
from tavern_host.testing.http import served


async def last_run(studio: Studio) -> dict[str, Any]:
    """Return the newest run: its outputs, and what became of each node."""
    listed = (await (await studio.site.get("/api/runs")).json())["runs"]
    run: dict[str, Any] = await (await studio.site.get(f"/api/runs/{listed[0]['id']}")).json()
    return run


async def pin_trim(studio: Studio, text: str) -> None:
    """Greet Ada, and pin another text in the place of what the node `trim` gave."""
    page, inspector = studio.page, studio.page.get_by_label("Inspector")
    await page.get_by_label("Name", exact=True).fill("Ada")
    await page.keyboard.press("Enter")
    await expect(inspector.get_by_text("Hello, Ada")).to_be_visible()
    await canvas_node(page, "trim").locator("strong").click()
    await inspector.get_by_role("tab", name="Outputs").click()
    await inspector.get_by_role("button", name="Pin the outputs").click()
    await inspector.get_by_label("text", exact=True).fill(text)


async def test_a_pinned_text_keeps_its_lines_over_reload_and_restart(browser: Browser, tmp_path: Path) -> None:
    lines = "Grace\nHopper"
    async with Host(tmp_path / "inn", sample=True) as host, served(host) as site:
        context = await browser.new_context(**WIDE)
        studio = await show(context, site)
        page = studio.page
        await greeting(studio)
        await pin_trim(studio, lines)
        await expect(page.get_by_label("Status").get_by_text("Draft saved", exact=True)).to_be_visible()
        await page.reload()
        await expect(canvas_node(page, "trim").locator(".pin")).to_be_visible()
        await studio.picture("pinned-reloaded")
        await context.close()
    async with Host(tmp_path / "inn") as host, served(host) as site:
        context = await browser.new_context(**WIDE)  # with nothing that the other browser kept
        studio = await show(context, site)
        page, inspector = studio.page, studio.page.get_by_label("Inspector")
        await greeting(studio)
        await canvas_node(page, "trim").locator("strong").click()
        await inspector.get_by_role("tab", name="Outputs").click()
        await expect(inspector.get_by_label("text", exact=True)).to_have_value(lines)
        await studio.picture("pinned-lines")
        await leave(page)
        await page.get_by_label("Name", exact=True).fill("Ada")
        await page.keyboard.press("Enter")
        await expect(inspector.get_by_text("Hello, Grace Hopper")).to_be_visible()
        await studio.picture("pinned-run")
        run = await last_run(studio)
        assert (run["nodes"]["trim"]["given"], run["nodes"]["trim"]["output"]) == (True, {"text": lines})
        kept = await (await site.get(f"/api/runs/{run['id']}/workflow")).json()
        assert {node["id"]: node["pinnedOutputs"] for node in kept["nodes"]}["trim"] == {"text": lines}
        await context.close()


async def test_runs_are_watched_outputs_pinned_and_nodes_tried(studio: Studio) -> None:
    page, inspector = studio.page, studio.page.get_by_label("Inspector")
    await greeting(studio)
    asked = {"workflowId": "greeting", "inputs": {"name": "Lin"}}
    await studio.site.post("/api/prompt", json=asked)
    await expect(inspector.get_by_text("Hello, Lin")).to_be_visible()
    await studio.site.post("/api/prompt", json={**asked, "inputs": {"name": "Mo"}, "useCache": False})
    await page.get_by_role("button", name="Watch it").click()
    await expect(inspector.get_by_text("Hello, Mo")).to_be_visible()

    await pin_trim(studio, "Grace")
    await expect(canvas_node(page, "trim").locator(".pin")).to_be_visible()
    await studio.picture("pinned")
    await page.keyboard.press("Control+Enter")
    await leave(page)
    await expect(inspector.get_by_text("Hello, Grace")).to_be_visible()
    assert (await last_run(studio))["nodes"]["trim"]["given"] is True

    await canvas_node(page, "trim").locator("strong").click()
    await inspector.get_by_role("tab", name="Outputs").click()
    await inspector.get_by_role("button", name="Let the outputs go").click()
    merge = page.locator(".vue-flow__node").filter(has_text="Merge texts")
    await merge.locator("strong").click()
    before = await last_run(studio)
    await inspector.get_by_role("button", name="Try this node").click()
    await inspector.get_by_role("tab", name="Outputs").click()
    await expect(inspector.get_by_text("Hello, Grace")).to_be_visible()
    run = await read_until(
        lambda run: run["id"] != before["id"] and run["status"] == "complete", lambda: last_run(studio)
    )
    assert run["id"] != before["id"]
    assert run["nodes"]["trim"]["given"] is True, "what fed it was not run again"
