"""A newcomer's way with `tavern serve` itself: draw, run, publish, make a tool of it, have an agent call it and approve
the call; and then the server is killed under the open page."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

from helpers.ports import free_port
from helpers.serve_process import serving
from playwright.async_api import Browser, Page, expect
from studio_bench import WAIT, WIDE, canvas_node, leave, node_library, publish, read_until

from tavern_host import Host

REPLIES = """
- when: {last_contains: "Tool workflow:spell executed"}
  reply: It is spelt.
- when: {last_contains: "spell"}
  reply: |
    <|[REQUEST_TOOL]|>
    command:「始」workflow:spell「末」
    <|[END_TOOL]|>
"""
ACCESS = {"roles": {"asker": {"approve": ["workflow:spell"]}}, "principals": {"agent:*": ["asker"]}}
"""The operator's rule that agents ask before they call the tool."""


async def prepared(root: Path) -> None:
    """Make a project with the sample, whose model calls the tool that is going to be made."""
    async with Host(root, sample=True):
        pass
    replies = root / "agents" / "assistant.replies.yaml"
    replies.write_text(REPLIES + replies.read_text())


async def draw(page: Page) -> None:
    """Draw a text, cut into words, that goes out as a stream."""
    await page.get_by_role("button", name="New workflow").first.click()
    await page.get_by_label("Name").fill("Spell")
    await page.get_by_role("button", name="Create").click()
    library = await node_library(page)
    for name in ("Text", "Text to stream"):
        await page.get_by_label("Search nodes…").fill(name)
        await library.get_by_role("button", name=name, exact=True).click()
    await page.keyboard.press("Escape")
    await leave(page)
    text, stream, output = (canvas_node(page, name) for name in ("text", "text-to-stream", "output"))
    await expect(stream).to_be_visible()  # the view fits all of them then
    before = await text.bounding_box()
    await page.keyboard.press("Shift+A")
    boxes = await read_until(
        lambda found: len({box["x"] for box in found if box}) == 1 and found[0]["width"] > before["width"],
        lambda: asyncio.gather(*(node.bounding_box() for node in (text, stream, output))),
    )
    assert len({box["x"] for box in boxes}) == 1, "the nodes stand in a column, and the view fits them"
    await text.locator(".source").first.drag_to(stream.locator(".target").first)
    await expect(page.locator(".vue-flow__edge")).to_have_count(1)
    await stream.locator(".source").first.drag_to(output.locator(".target").first)
    await expect(page.locator(".vue-flow__edge")).to_have_count(2)
    await text.locator("strong").click()
    await page.get_by_label("Inspector").get_by_label("text").first.fill("to be or not to be")


async def test_a_newcomer_comes_to_a_tool_that_an_agent_calls(browser: Browser, tmp_path: Path) -> None:
    root, port = tmp_path / "inn", str(free_port())
    await prepared(root)
    settings = json.dumps({"extensions.tavern-tools.access": ACCESS})
    environment = {"TAVERN_TOKEN": "a-token-for-the-newcomer", "TAVERN_SETTINGS": settings}
    context = await browser.new_context(**WIDE)
    context.set_default_timeout(WAIT)
    page = await context.new_page()
    inspector, status = page.get_by_label("Inspector"), page.get_by_label("Status")
    async with serving(root, environment, ["--port", port]) as server:
        await page.goto(server.url)
        await expect(page.get_by_text("Type a name above, then press Run.")).to_be_visible()
        await page.get_by_role("link", name="Home").click()
        await draw(page)
        await page.keyboard.press("Control+Enter")
        await leave(page)
        await expect(inspector.get_by_text("to be or not to be")).to_be_visible()
        await publish(page)
        await page.get_by_role("button", name="Use as a tool").click()
        await page.get_by_role("button", name="Add to agent").click()
        await page.get_by_role("dialog").get_by_role("button", name="Assistant", exact=True).click()
        await expect(page.get_by_text("Assistant may call workflow:spell now.")).to_be_visible()
        await page.goto(f"{server.base}/#/chat?agent=assistant")
        await page.get_by_placeholder("Message Assistant…").fill("Please spell it")
        await page.keyboard.press("Enter")
        card = page.get_by_role("region", name="workflow:spell needs your approval")
        await card.get_by_role("button", name="Allow once").click()
        await expect(page.get_by_text("It is spelt.")).to_be_visible()
        await expect(page.get_by_role("button", name="Edit and send again")).to_be_visible()  # all of it is read
        await page.locator("summary", has_text="workflow:spell").click()
        await expect(page.get_by_text("to be or not to be").last).to_be_visible()
        await page.goto(f"{server.base}/#/workflows/spell")
        await expect(page.locator(".vue-flow__node")).to_have_count(4)
        await server.stop(signal.SIGKILL)

    await expect(page.get_by_text("The server does not answer")).to_be_visible()
    await page.get_by_label("Name of the workflow").fill("Spelling")
    await page.keyboard.press("Tab")
    await expect(status.get_by_text("Draft saved in this browser")).to_be_visible()
    async with serving(root, environment, ["--port", port]) as server:
        await expect(page.get_by_text("The server does not answer")).to_have_count(0)
        await expect(status.get_by_text("Draft saved", exact=True)).to_be_visible()
        drafted = await server.get("/api/workflows/spell/draft")
        assert drafted["workflow"]["name"] == "Spelling", "what was drawn while it was away is there"
        await leave(page)
        await page.keyboard.press("Control+Enter")
        await expect(inspector.get_by_text("to be or not to be")).to_be_visible()
    await context.close()
