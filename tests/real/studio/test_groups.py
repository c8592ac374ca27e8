"""Nodes become a group and come back, and lie in a loop zone: with the mouse and the keyboard, one step each."""

from __future__ import annotations

import json

from playwright.async_api import expect
from studio_bench import Studio, canvas_node, greeting, leave


async def test_nodes_are_grouped_entered_unpacked_and_looped(studio: Studio) -> None:
    page, nodes = studio.page, studio.page.locator(".vue-flow__node")
    await greeting(studio)
    await canvas_node(page, "trim").locator("strong").click()
    await nodes.filter(has_text="Merge texts").locator("strong").click(modifiers=["Control"])
    await expect(page.get_by_label("Inspector").get_by_text("2 nodes are selected.")).to_be_visible()
    await page.keyboard.press("Control+g")
    await page.get_by_label("Name of the group").fill("Say hello")
    await page.keyboard.press("Enter")
    await expect(nodes).to_have_count(3)
    group = nodes.filter(has_text="Say hello")
    await expect(group.locator(".slot-row")).to_have_count(3)
    await studio.picture("group")
    inner = json.loads((studio.site.host.project.root / "workflows" / "Say-hello.json").read_text())
    assert [node["type"] for node in inner["nodes"]][:2] == ["core:GroupInput", "core:GroupOutput"]

    await leave(page)
    await page.get_by_label("Name", exact=True).fill("Ada")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Inspector").get_by_text("Hello, Ada")).to_be_visible()
    await group.locator("header").dblclick()
    await expect(canvas_node(page, "trim")).to_be_visible()
    await page.go_back()

    await group.locator("strong").click()
    await page.keyboard.press("Control+Shift+G")
    await expect(nodes).to_have_count(4)
    await expect(page.locator(".vue-flow__edge")).to_have_count(4)
    await page.keyboard.press("l")
    await expect(page.locator(".node.loop")).to_be_visible()
    await studio.picture("loop")
    for step, count in (("loop", 4), ("unpack", 3), ("group", 4)):
        await page.keyboard.press("Control+z")
        await expect(nodes, step).to_have_count(count)
