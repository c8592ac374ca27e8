"""Mistakes stand where they belong and leave when mended; a group's file goes and comes with undo and redo."""

from __future__ import annotations

import json

from helpers.folder_plugins import write_plugin
from playwright.async_api import expect
from studio_bench import Studio, canvas_node, greeting

REFUSED = "Failed to load resource: the server responded with a status of {}"
GUARD = """
from tavern_host import Veto, hookimpl

@hookimpl
def tavern_before_execute(request):
    return Veto(reason="nothing runs on Sundays")
"""


async def test_a_mistake_stands_in_its_dialogue_until_it_is_mended(studio: Studio) -> None:
    page = studio.page
    await studio.open("/")
    await page.get_by_role("button", name="New workflow").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("greeting")
    await dialog.get_by_role("button", name="Create").click()
    fault = dialog.get_by_role("alert")
    await expect(fault).to_contain_text("greeting")
    await studio.picture("mistake-in-dialogue")
    await fault.get_by_role("button", name="Close").click()
    await expect(fault).to_have_count(0)
    studio.mistakes.remove(REFUSED.format("409 (Conflict)"))


async def test_a_veto_is_the_sentence_of_its_plugin(studio: Studio) -> None:
    page, host = studio.page, studio.site.host
    folder = host.project.root / "plugins" / "acme_guard"
    permissions = {"hooks": ["hook:server:workflow:before-execute"]}
    write_plugin(folder, {"__init__.py": GUARD}, displayName="Sunday guard", icon="clock", permissions=permissions)
    await studio.site.post("/api/plugins/reload")
    await host.grant("acme-guard")
    await greeting(studio)
    await page.get_by_label("Name", exact=True).fill("Ada")
    await page.get_by_role("banner").get_by_role("button", name="Run").click()
    said = page.get_by_text("Sunday guard stopped this: nothing runs on Sundays")
    await expect(said).to_be_visible()
    await studio.picture("veto")
    await host.revoke("acme-guard")
    await page.get_by_role("banner").get_by_role("button", name="Run").click()
    await expect(page.get_by_text("done ·")).to_be_visible()
    await expect(said).to_have_count(0)  # its cause is mended
    await studio.open("/plugins/acme-guard")
    await expect(page.get_by_role("heading", name="Sunday guard")).to_be_visible()
    studio.mistakes.remove(REFUSED.format("403 (Forbidden)"))


async def test_undo_of_a_group_takes_its_file_away_and_redo_brings_it_back(studio: Studio) -> None:
    page, nodes = studio.page, studio.page.locator(".vue-flow__node")
    file = studio.site.host.project.root / "workflows" / "Hello.json"
    await greeting(studio)
    await canvas_node(page, "trim").locator("strong").click()
    await page.keyboard.press("Control+g")
    await page.get_by_label("Name of the group").fill("Hello")
    await page.keyboard.press("Enter")
    await expect(nodes.filter(has_text="Hello")).to_have_count(1)
    made = json.loads(file.read_text())
    deleted = page.expect_response(lambda one: one.request.method == "DELETE" and "/api/workflows/Hello" in one.url)
    async with deleted:
        await page.keyboard.press("Control+z")
    assert not file.exists()
    async with page.expect_response(
        lambda one: one.request.method == "POST" and one.url.split("?")[0].endswith("/api/workflows")
    ):
        await page.keyboard.press("Control+Shift+z")
    assert json.loads(file.read_text())["nodes"] == made["nodes"]
    await expect(nodes.filter(has_text="Hello")).to_have_count(1)
