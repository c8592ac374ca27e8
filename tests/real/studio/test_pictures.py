"""Runs and agents in time, figures over time, and who changes what: pictures, each of which is a table too."""

from __future__ import annotations

import json

from playwright.async_api import expect
from studio_bench import Studio

FAILING = {
    "id": "failing",
    "nodes": [
        {"id": "kept", "type": "core:Trim", "position": {"x": 0, "y": 0}, "inputValues": {"text": " a "}},
        {"id": "broken", "type": "core:ToNumber", "position": {"x": 0, "y": 0}, "inputValues": {"value": "none"}},
    ],
    "edges": [],
}


async def test_a_run_and_an_agents_work_are_shown_in_time(studio: Studio) -> None:
    page, site = studio.page, studio.site
    (site.host.project.root / "workflows" / "failing.json").write_text(json.dumps(FAILING))
    run = (await (await site.post("/api/prompt", json={"workflowId": "failing"})).json())["promptId"]
    await studio.open(f"/runs/{run}")
    timeline = page.get_by_role("table", name="Nodes in time")
    await expect(timeline.get_by_role("row", name="broken").get_by_text("failed: from")).to_have_count(1)
    await expect(page.get_by_label("broken", exact=True).get_by_text("none")).to_be_visible()  # what failed is open
    await timeline.get_by_role("button", name="kept").focus()
    await page.keyboard.press("Enter")
    node = page.get_by_label("kept", exact=True)
    await expect(node.get_by_text("done", exact=True)).to_be_visible()
    await studio.picture("run-in-time")
    await node.get_by_role("link", name="Show on the canvas").click()
    await expect(page.locator(".vue-flow__node.selected")).to_have_count(1)

    body = {"message": "Greet Ada", "conversationId": "talk"}
    assert (await site.post("/api/agents/assistant/runs", json=body)).status == 202
    await studio.open("/chat/talk")
    await page.locator("details.timeline > summary").click()
    work = page.get_by_role("table", name="What was done when")
    await expect(work.get_by_role("row", name="workflow:greeting").get_by_text("a tool ran: from")).to_have_count(1)
    await expect(work.get_by_role("row", name="Answer 1")).to_be_visible()
    await studio.picture("agent-in-time")


async def test_figures_have_axes_ranges_and_a_crosshair_that_keys_move(studio: Studio) -> None:
    page = studio.page
    await studio.open("/settings/figures")
    memory = page.get_by_role("region", name="Memory of the server")
    picture = memory.get_by_role("img")
    await expect(picture.get_by_text("MiB").first).to_be_visible()
    await expect(memory.get_by_text("Normal: a level")).to_be_visible()
    await picture.focus()
    await page.keyboard.press("End")
    await expect(memory.get_by_text("· memory")).to_be_visible()
    await memory.get_by_text("As a table").click()
    await expect(memory.get_by_role("cell").nth(1)).to_contain_text("MiB")
    await page.get_by_role("radio", name="Last day").click()
    # This host does not serve for good, so it keeps nothing.
    await expect(memory.get_by_role("status")).to_have_text("The first numbers come within a minute.")


async def test_who_changes_what_is_drawn_and_leads_to_the_plugins(studio: Studio) -> None:
    page = studio.page
    await studio.open("/plugins")
    await page.get_by_role("link", name="Who changes what").click()
    await expect(page.get_by_text("No plugin that was added takes part in runs")).to_be_visible()
    await page.get_by_text("As a table").click()
    row = page.get_by_role("row").filter(has_text="the workflow engine")
    await expect(row.get_by_text("provides it")).to_be_visible()
    await studio.picture("who-changes-what")
    await page.get_by_role("group").get_by_role("link", name="Workflow engine").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Workflow engine")).to_be_visible()
