"""A workflow becomes a tool, an agent may call it; agents are made, changed and deleted."""

from __future__ import annotations

import json

from playwright.async_api import expect
from studio_bench import Studio, greeting


async def test_a_workflow_is_made_a_tool_and_given_to_an_agent(studio: Studio) -> None:
    page = studio.page
    agents = studio.site.host.project.root / "agents"
    await greeting(studio)
    await page.get_by_role("button", name="Use as a tool").click()
    await expect(page.get_by_role("heading", name="Greeting", exact=True)).to_be_visible()
    await page.get_by_label("Name").fill("Ada")
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.get_by_text("Hello, Ada")).to_be_visible()
    await page.get_by_role("button", name="Add to agent").click()
    await page.get_by_role("dialog").get_by_role("button", name="Mira").click()
    await expect(page.get_by_text("Mira may call workflow:greeting now.")).to_be_visible()

    await page.get_by_role("link", name="Agents", exact=True).click()
    await (
        page.get_by_role("region", name="Agents").get_by_role("link", name="Mira").click()
    )  # the list of tools has one too
    await expect(page.get_by_role("button", name="Take workflow:greeting away")).to_be_visible()
    await page.get_by_role("textbox", name="Everything else").locator(".cm-line").first.wait_for()
    await studio.picture("agent")
    await page.get_by_label("Name", exact=True).fill("")
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()

    await page.get_by_role("link", name="New agent").click()
    await page.get_by_label("Id", exact=True).fill("a b")
    await page.get_by_label("Name", exact=True).fill("Guide")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("no blanks")
    studio.mistakes.clear()  # the browser names the refused request
    await page.get_by_label("Id", exact=True).fill("guide")
    await page.get_by_label("Add a tool…").fill("text:*")
    await page.get_by_label("Add a tool…").press("Enter")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="Guide")).to_be_visible()
    assert json.loads((agents / "guide.json").read_text())["tool_ids_inventory"] == ["text:*"]
    await expect(page.get_by_role("link", name="Guide")).to_be_visible()
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("link", name="Guide")).to_have_count(0)
    assert not (agents / "guide.json").exists()
