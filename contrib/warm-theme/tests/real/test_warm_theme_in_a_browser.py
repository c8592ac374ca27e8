"""What people see of the theme."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tavern_host import Host
from tavern_studio.testing import Studio

NODE = {"id": "text", "type": "core:TextMerge", "position": {"x": 0, "y": 0}}

pytestmark = pytest.mark.tavern(
    plugins=["../../warm_theme"], workflows={"one": {"name": "One", "nodes": [NODE], "edges": []}}
)


async def test_the_page_has_its_colours_and_its_face(host: Host, studio: Studio) -> None:
    page = studio.page
    await studio.open("/workflows/one")
    await page.locator(".vue-flow__node").wait_for()
    for scheme, colour in (("light", "#9a4a14"), ("dark", "#f0a86e")):
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await expect(page.locator("html")).to_have_css("--accent", colour)
        await studio.picture(f"warm-theme-{scheme}")
    assert "Palatino" in await page.evaluate("getComputedStyle(document.body).fontFamily")


async def test_revoked_it_leaves_the_open_page(host: Host, studio: Studio) -> None:
    await expect(studio.page.locator("html")).to_have_css("--accent", "#9a4a14")
    await host.disable("warm-theme")
    await expect(studio.page.locator("html")).to_have_css("--accent", "#2558d6")
