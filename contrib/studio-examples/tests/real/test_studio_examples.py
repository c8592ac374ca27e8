"""Each example does in the page what its description says; all of them are loaded at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tavern_host import Host
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_studio.testing import Studio

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(manifest.parent for manifest in ROOT.glob("*/plugin.yaml"))
WORKFLOW = {
    "name": "One",
    "nodes": [{"id": "text", "type": "core:TextMerge", "position": {"x": 0, "y": 0}}],
    "edges": [],
}

pytestmark = pytest.mark.tavern(plugins=PLUGINS, workflows={"one": WORKFLOW})


async def test_nothing_is_wrong_with_them(host: Host) -> None:
    assert [host.plugin(folder.name.replace("_", "-")).problems for folder in PLUGINS] == [[]] * 4


async def test_each_does_what_it_is_for(host: Host, studio: Studio) -> None:
    page = studio.page
    await studio.open("/workflows/one")

    shown = page.locator(".vue-flow__node .node-ids")
    await expect(shown).to_have_text("text")
    change = SettingsChange(plugin="node-ids", values={"extensions.node-ids.withType": True})
    await host.services.get(SETTINGS).save(change)
    await expect(shown).to_have_text("text · core:TextMerge")

    await expect(page.get_by_text("Nothing to worry about.")).to_be_visible()
    await page.get_by_role("button", name="Notes", exact=True).click()
    notes = page.frame_locator("iframe").get_by_label("Notes")
    await expect(notes).to_have_attribute("placeholder", "Write something down")
    await studio.picture("examples")

    for how in ("in an event", "in a promise"):
        await page.get_by_role("button", name=f"Fail {how}").click()
        badge = page.get_by_title(f"on purpose, {how}")
        await badge.click()  # shows the component again
    await expect(page.get_by_title("on purpose, while drawn")).to_be_visible()
    await expect(page.get_by_role("button", name="Main menu of the project")).to_be_visible()  # what the wrap is around
    expected = ("crash-on-purpose", "'webrtc'")  # not every browser knows that part of the sandbox's policy
    assert [mistake for mistake in studio.mistakes if not any(one in mistake for one in expected)] == []
    studio.mistakes.clear()
