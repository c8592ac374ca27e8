"""The operator follows in the browser what a plugin does."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers.folder_plugins import write_plugin
from playwright.async_api import Browser, expect
from studio_bench import WIDE, show

from tavern_host import Host
from tavern_host.testing.http import served

CODE = """
from tavern_host import hookimpl


@hookimpl
def tavern_before_tool_call(request):
    raise ValueError("no tools today")
"""


async def test_the_page_of_a_plugin_shows_its_calls_as_they_come(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "inn" / "plugins" / "acme"
    write_plugin(folder, {"__init__.py": CODE}, permissions={"hooks": ["hook:server:tool:before-call"]})
    context = await browser.new_context(**WIDE)
    async with Host(tmp_path / "inn", trust=["acme"], serving=True) as host, served(host) as site:
        studio = await show(context, site)
        page = studio.page
        await studio.open("/plugins/acme")
        await page.get_by_role("button", name="Follow", exact=True).click()
        await expect(page.get_by_text("Nothing of it was called yet.")).to_be_visible()
        async with asyncio.timeout(60):
            while "plugin.traced" not in [one["action"] for one in await (await site.get("/api/audit")).json()]:
                await asyncio.sleep(0.05)
        await site.post("/api/tools/execute", json={"toolId": "system:get_current_time"})
        calls = page.get_by_label("What it does now")
        await expect(calls.get_by_text("tavern_before_tool_call")).to_be_visible()
        await expect(calls.get_by_text("Failed: ValueError: no tools today")).to_be_visible()
        await expect(calls.get_by_text(f"{folder / '__init__.py'}:7")).to_be_visible()
        await calls.scroll_into_view_if_needed()
        await studio.picture("plugin-calls")
        await page.get_by_role("button", name="Stop following").click()
        await expect(page.get_by_role("button", name="Follow", exact=True)).to_be_visible()
        assert studio.mistakes == []
    await context.close()
