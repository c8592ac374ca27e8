"""A newcomer draws a workflow with the mouse, runs it, saves it; another one with the keyboard alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from playwright.async_api import Browser, Route, expect
from studio_bench import Studio, canvas_node, greeting, leave, node_library, publish, show

from tavern_host.testing.http import HttpClient


def stored(studio: Studio, name: str) -> dict[str, Any]:
    """Return a workflow as it lies in the project."""
    found: dict[str, Any] = json.loads((studio.site.host.project.root / "workflows" / f"{name}.json").read_text())
    return found


async def test_a_workflow_is_drawn_run_and_saved_with_the_mouse(studio: Studio) -> None:
    page = studio.page
    await page.get_by_role("button", name="New workflow").first.click()
    await page.get_by_label("Name").fill("First try")
    await studio.picture("new-workflow")
    await page.get_by_role("button", name="Create").click()
    library = await node_library(page)
    await library.get_by_role("button", name="Text", exact=True).click()
    text = canvas_node(page, "text")
    await text.locator(".source").drag_to(canvas_node(page, "output").locator(".target"))
    await expect(page.locator(".vue-flow__edge")).to_have_count(1)

    await text.locator("strong").click()
    inspector = page.get_by_label("Inspector")
    await inspector.get_by_label("text").first.fill("Hello from a page")
    await page.keyboard.press("Control+Enter")
    await leave(page)
    await expect(inspector.get_by_text("Hello from a page")).to_be_visible()
    await expect(inspector.get_by_text("done")).to_be_visible()
    await studio.picture("editor-after-a-run")

    assert stored(studio, "first-try")["edges"] == []  # nothing is written before it is published
    await page.reload()
    await expect(page.locator(".vue-flow__edge")).to_have_count(1)  # and nothing is lost
    await publish(page)
    saved = stored(studio, "first-try")
    assert [edge["target"] for edge in saved["edges"]] == ["output"]
    assert list(saved["interfaceOutputs"]) == ["text"]


async def test_a_workflow_is_built_and_run_with_the_keyboard_alone(studio: Studio) -> None:
    page, keyboard = studio.page, studio.page.keyboard
    await greeting(studio)
    await expect(page.locator(".node header")).to_contain_text(["Input", "Trim", "Merge texts", "Output"])
    added = canvas_node(page, "upper-case")
    for command, field, typed in (("Add a node", "Search nodes…", "upper"), ("Connect to…", "Filter…", "output")):
        await keyboard.press("Control+k")
        await expect(page.get_by_role("combobox", name="Commands")).to_be_focused()
        await keyboard.type(command)
        await keyboard.press("Enter")
        await expect(page.get_by_role("dialog").get_by_label(field, exact=True)).to_be_focused()
        await keyboard.type(typed)
        await keyboard.press("Enter")
        await expect(added).to_be_visible()
    await expect(page.locator(".vue-flow__edge")).to_have_count(4)  # the output has the new edge in place of the old
    await studio.picture("connected-by-keyboard")
    await leave(page)
    before = await added.evaluate("node => getComputedStyle(node).transform")
    await keyboard.press("Shift+A")
    await expect(added).not_to_have_css("transform", before)
    await studio.picture("arranged")
    for _ in range(3):
        await keyboard.press("Control+z")
    await expect(page.locator(".vue-flow__node")).to_have_count(4)

    await keyboard.press("Escape")
    await page.get_by_label("Name", exact=True).fill("Ada")
    await keyboard.press("Enter")
    await expect(page.get_by_label("Inspector").get_by_text("Hello, Ada")).to_be_visible()
    await expect(page.get_by_label("Status").get_by_text("done ·")).to_be_visible()
    runs = (await (await studio.site.get("/api/runs")).json())["runs"]
    assert [(run["workflowId"], run["status"]) for run in runs] == [("greeting", "complete")]


async def test_two_editors_never_overwrite_each_other(studio: Studio, browser: Browser) -> None:
    page = studio.page
    context = await browser.new_context(locale="en")  # another browser, which has nothing of what this one keeps
    other = await show(context, studio.site)
    for one in (studio, other):
        await greeting(one)
    name = "Name of the workflow"
    await other.page.get_by_label(name).fill("Theirs")
    await other.page.keyboard.press("Tab")
    await expect(page.get_by_label(name)).to_have_value("Theirs")  # who has nothing to keep follows the other

    await page.route("**/draft?*", lambda route: route.abort())
    await page.get_by_label(name).fill("Mine")
    await page.keyboard.press("Tab")
    await expect(page.get_by_label("Status").get_by_text("Draft saved in this browser")).to_be_visible()
    await other.page.get_by_label(name).fill("Theirs again")
    await other.page.keyboard.press("Tab")
    await publish(other.page)
    await page.unroute("**/draft?*")
    await expect(page.get_by_role("alert")).to_contain_text("Somebody else has changed this draft")
    assert stored(studio, "greeting")["name"] == "Theirs again"
    await page.get_by_role("button", name="Keep mine").click()
    await page.get_by_role("dialog").get_by_role("button", name="Keep mine").click()
    await expect(page.get_by_role("alert")).to_have_count(0)
    await publish(page)
    assert stored(studio, "greeting")["name"] == "Mine"
    await context.close()
    studio.mistakes.clear()  # the browser names the requests that failed


async def test_nodes_wait_for_the_workflow_and_edges_must_fit(studio: Studio) -> None:
    page, read = studio.page, asyncio.Event()

    async def late(route: Route) -> None:
        await read.wait()
        await route.continue_()

    await page.route("**/api/workflows/greeting?*", late)
    await studio.open("/workflows/greeting")
    library = await node_library(page)
    trim = library.get_by_role("button", name="Trim", exact=True).first
    await trim.dispatch_event("click")
    read.set()
    await trim.click()
    await expect(canvas_node(page, "trim-2")).to_be_visible()
    await expect(page.locator(".vue-flow__node")).to_have_count(5)

    await page.get_by_label("Search nodes…").fill("Create list")
    await library.get_by_role("button", name="Create list", exact=True).click()
    source = canvas_node(page, "create-list").locator(".source")
    await source.drag_to(canvas_node(page, "trim-2").locator(".target").first)
    await expect(page.get_by_role("alert")).to_contain_text("ARRAY does not fit text, which takes STRING")


async def test_the_page_speaks_chinese_and_fits_a_telephone(site: HttpClient, browser: Browser) -> None:
    phone = await browser.new_context(locale="zh-CN", viewport={"width": 420, "height": 800}, color_scheme="dark")
    small = await show(phone, site)
    await expect(small.page.get_by_role("button", name="新建工作流")).to_be_visible()
    await small.picture("home-420-dark-chinese")
    await small.open("/workflows/greeting")
    await expect(small.page.locator(".node header")).to_contain_text(["组输入", "去除空白", "文本合并", "组输出"])
    await small.page.get_by_label("Name", exact=True).fill("艾达")
    await small.page.get_by_role("button", name="运行").last.click()
    await expect(small.page.get_by_label("检查器").get_by_text("Hello, 艾达")).to_be_visible()
    assert await small.page.evaluate("document.documentElement.scrollWidth") <= 420
    await small.picture("editor-420-dark-chinese")
    await small.page.keyboard.press("Control+i")
    await expect(small.page.get_by_role("textbox", name="助手")).to_be_in_viewport()
    await phone.close()
    assert small.mistakes == []
