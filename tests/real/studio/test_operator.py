"""An operator reviews a plugin in the browser, grants and revokes it, changes a setting, and finds it in the log."""

from __future__ import annotations

import re

from helpers.folder_plugins import write_plugin
from playwright.async_api import expect
from studio_bench import Studio, answered_late, canvas_node, node_library

ASKS = {
    "displayName": "Acme weather",
    "nodes": {"entry": "./nodes"},
    "permissions": {"hooks": ["hook:server:tool:before-call"]},
    "configOptions": [{"key": "extensions.acme.city", "type": "string", "label": "City", "defaultValue": "Oslo"}],
}
NODES = """
from tavern_host import node


@node()
async def forecast(city: str) -> str:
    "Say what the weather will be."
    return f"rain in {city}"
"""


async def test_an_operator_manages_plugins_settings_users_and_files(studio: Studio) -> None:
    await _run_looked_at(studio)
    await _plugin_granted_used_and_revoked(studio)
    await _settings_users_and_log(studio)
    await _tools_and_files(studio)


async def _plugin_granted_used_and_revoked(studio: Studio) -> None:
    page, project = studio.page, studio.site.host.project.root
    files = {"__init__.py": "", "nodes/__init__.py": NODES}
    write_plugin(project / "plugins" / "acme", files, **ASKS)
    await studio.site.post("/api/plugins/reload")
    await studio.open("/plugins")
    await page.get_by_role("link", name="Acme weather waits for you").click()
    await expect(page.get_by_text("See every tool call before it is made")).to_be_visible()
    await expect(page.get_by_text("Run the code that is in its folder now.")).to_be_visible()
    await studio.picture("plugin-review")
    await page.get_by_role("button", name="Grant and load").click()
    await expect(page.get_by_role("article").get_by_text("running", exact=True)).to_be_visible()

    await studio.site.post("/api/workflows", json={"id": "rain", "name": "Rain", "nodes": [], "edges": []})
    await studio.open("/workflows/rain")
    await (await node_library(page)).get_by_role("button", name="forecast acme").click()
    forecast = canvas_node(page, "forecast")
    await forecast.get_by_label("city").fill("Oslo")
    await page.get_by_label("Inspector").get_by_role("button", name="Run to here").click()
    await page.get_by_label("Inspector").get_by_role("tab", name="Outputs").click()
    await expect(page.get_by_label("Inspector").get_by_text("rain in Oslo")).to_be_visible()

    operator = await page.context.new_page()  # the workflow stays open meanwhile
    await operator.goto(f"{page.url.partition('#')[0]}#/plugins/acme")
    await operator.get_by_role("button", name="Run it in a process of its own").click()
    await expect(operator.get_by_text("In a process and a sandbox of its own")).to_be_visible()
    await forecast.get_by_label("city").fill("Bergen")
    await page.get_by_label("Inspector").get_by_role("button", name="Run to here").click()
    await expect(page.get_by_label("Inspector").get_by_text("rain in Bergen")).to_be_visible()
    await operator.get_by_role("button", name="Look again").click()
    await expect(operator.get_by_text("bubblewrap")).to_be_visible()
    await Studio(studio.site, operator, studio.mistakes).picture("plugin-isolated")

    await operator.get_by_role("button", name="Revoke").click()
    await operator.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await expect(operator.get_by_role("article").get_by_text("waits for you", exact=True)).to_be_visible()
    await expect(operator.get_by_text("operator took the grant back.")).to_be_visible()
    await operator.close()
    await expect(forecast.get_by_text("No plugin that is loaded brings acme:forecast")).to_be_visible()
    await studio.picture("missing-node")


async def _settings_users_and_log(studio: Studio) -> None:
    page = studio.page
    await studio.open("/settings/tavern-engine")
    field = page.get_by_label("Runs at a time")
    await field.fill("7")
    await field.press("Tab")
    async with answered_late(page, "**/tavern-engine/settings?*", "POST") as saved:
        await page.get_by_role("button", name="Save").click()
        await saved.wait()
        await field.fill("8")
        await field.press("Tab")
    await expect(page.get_by_text("Set by the operator")).to_be_visible()
    await expect(field).to_have_value("8")  # what is typed meanwhile stays, to be saved
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()
    await expect(field).to_have_value("8")
    await studio.open("/plugins/tavern-engine")
    await expect(page.get_by_role("row", name=re.compile("tavern_register_routes 1 "))).to_be_visible()
    await studio.open("/settings/figures")
    await expect(page.get_by_role("row", name=re.compile("Workflow engine"))).to_be_visible()
    await studio.open("/settings/users")
    await page.get_by_role("button", name="Add a user").click()
    await page.get_by_label("Name").fill("ann")
    await page.get_by_label("Password").fill("a long enough password")
    await page.get_by_role("dialog").get_by_role("button", name="Add a user").click()
    await page.get_by_label("Role of ann").select_option("viewer")
    await expect(page.get_by_text("ann has the new role.")).to_be_visible()
    assert [one["role"] for one in await (await studio.site.get("/api/users")).json()] == ["viewer"]
    await studio.open("/settings/audit")
    for action in ("plugin.granted", "plugin.revoked", "settings.saved"):
        await expect(page.get_by_role("cell", name=action).first).to_be_visible()
    await studio.picture("audit-log")


async def _run_looked_at(studio: Studio) -> None:
    page = studio.page
    await studio.site.post("/api/prompt", json={"workflowId": "greeting", "inputs": {"name": "Ada"}})
    await studio.open("/runs")
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()  # home has a link of this name, too
    await page.get_by_role("link", name="Greeting").click()
    await expect(page.get_by_text("Hello, Ada").first).to_be_visible()
    await page.get_by_role("table", name="Nodes in time").get_by_role("button", name="trim").click()
    await studio.picture("run")
    await page.get_by_role("button", name="Run again").click()
    await expect(page.get_by_role("link", name="Greeting")).to_have_count(2)
    async with answered_late(page, "**/rerun?*", "POST") as begun:
        await page.get_by_role("button", name="Run again").click()
        await begun.wait()
        await studio.open("/tools/text:shout")
    await expect(page).to_have_url(re.compile("#/tools/text:shout$"))  # who has gone elsewhere is not taken back


async def _tools_and_files(studio: Studio) -> None:
    page = studio.page
    await studio.open("/tools/text:shout")
    await page.get_by_role("main").get_by_label("text").fill("good evening")
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.get_by_text("GOOD EVENING")).to_be_visible()
    await studio.picture("tool")

    await studio.open("/files")
    file = {"name": "Grüße 1.txt", "mimeType": "text/plain", "buffer": b"Guten Abend"}
    (studio.site.host.project.root / "files" / "other").mkdir(parents=True)
    async with answered_late(page, "**/api/blobs?*", "POST") as sent:
        await page.locator("input[type=file]").set_input_files(file)
        await sent.wait()
        await studio.open("/files/other")
        await expect(page.get_by_role("banner").get_by_role("link", name="other")).to_be_visible()
    await expect(page.get_by_text("Grüße 1.txt is uploaded.")).to_be_visible()
    await studio.open("/files")
    await expect(page.get_by_role("link", name="Grüße 1.txt")).to_be_visible()
    assert (studio.site.host.project.root / "files" / "Grüße 1.txt").read_text() == "Guten Abend"
    async with page.expect_download() as started:
        await page.get_by_role("link", name="Grüße 1.txt").click()
    assert (await (await started.value).path()).read_text() == "Guten Abend"
    await page.get_by_role("button", name="Delete Grüße 1.txt").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("link", name="Grüße 1.txt")).to_have_count(0)
