"""The plugins that the platform's documents print, granted, in an open page and in a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from printed_plugins import GET, write_awesome, write_fetcher

from tavern_host import TOOL_MANAGER, Host
from tavern_host.testing.http import served
from tavern_scripts.api.scripts import SCRIPT_EXECUTION
from tavern_studio.testing import show
from tavern_tools.api.toolcalls import ToolCallRequest

ENTRY = """
import { h } from "vue";
const { extensionApi } = window.ComfyTavern;
const mark = (name) => ({ render: () => h("b", { "data-mark": name }, "•") });
const parts = ["ui:BaseNode", "ui:NodeInputControl", "ui:ContextMenu", "ui:SidebarManager", "ui:HomeSidebar"];
for (const part of parts) extensionApi.ui.wrapComponent(part, (original) => original);
for (const place of ["node:header:right", "sidebar:icon-bar:tabs:after", "modal:footer"])
  extensionApi.ui.registerOutletComponent(place, mark(place));
for (const hook of ["auth:login", "settings:before-save", "settings:save:before", "workflow:before-execute"])
  extensionApi.hooks.on(hook, (event) => event);
extensionApi.services.override("workflowManager", {});
setTimeout(() => {
  try { window.ComfyTavern.extensionApi.ui.overrideComponent("ui:StatusBar", mark("override")); }
  catch (error) { window.refused = error.message; }
});
"""
"""Uses all that the manifest of §6.2 asks for in the page, and something that it does not ask for."""


async def test_the_front_end_of_6_is_in_the_open_page_as_long_as_it_is_granted(
    tmp_path: Path, browser: Browser
) -> None:
    plugin = write_awesome(tmp_path, ENTRY)
    async with Host(tmp_path / "project", plugins=[plugin]) as host, served(host) as site:
        context = await browser.new_context(locale="en")
        studio = await show(context, site)
        page = studio.page
        mark = page.locator('[data-mark="sidebar:icon-bar:tabs:after"]')
        style = "getComputedStyle(document.documentElement).getPropertyValue('--awesome')"
        await expect(page.locator(".home-sidebar")).to_be_visible()
        for _ in range(2):  # it is run again when it is granted again
            await expect(mark).to_have_count(0)
            assert await page.evaluate(style) == ""
            await host.grant("my-awesome-plugin")
            await expect(mark).to_have_count(1)
            await page.wait_for_function(f"() => {style}.trim() === '7'")
            await page.wait_for_function("() => window.refused !== undefined")
            await host.revoke("my-awesome-plugin")
        await expect(mark).to_have_count(0)
        for fact in ("my-awesome-plugin", 'ui.overrideComponent("ui:StatusBar")', "ui.override:ui:StatusBar"):
            assert fact in await page.evaluate("window.refused")
        with pytest.raises(Exception, match="no plugin can be named"):  # nobody's call
            await page.evaluate("window.ComfyTavern.extensionApi.ui.addMenuItem({ id: 'x', title: 'X', run() {} })")
        assert studio.mistakes == []
        await context.close()  # a server that stops waits for its sockets


async def test_the_script_of_16_gets_its_parameter_and_its_setting(tmp_path: Path) -> None:
    cookie = {f"extensions.bilibili-fetcher.tools.{GET}.bilibiliCookie": "SESSDATA=1"}
    folder, trust = write_fetcher(tmp_path), ["bilibili-fetcher"]
    async with Host(tmp_path / "project", plugins=[folder], trust=trust, settings=cookie) as host:
        if not any(report.chosen for report in await host.services.get(SCRIPT_EXECUTION).backends()):
            pytest.skip("there is no sandbox for scripts here")
        tools = host.services.get(TOOL_MANAGER)
        result = await tools.call(ToolCallRequest(tool_id=GET, arguments={"url": "BV1"}))
        without = await tools.call(ToolCallRequest(tool_id=GET))
    assert without.error is not None and without.error.message.endswith("url: is required and missing")
    assert (result.status, result.structured) == ("done", {"subtitle": "of BV1", "cookie": "SESSDATA=1"})
