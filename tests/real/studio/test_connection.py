"""The page's socket is cut while a run goes on: the page shows what it missed, and says what is kept no longer."""

from __future__ import annotations

import asyncio
import json

import pytest
from helpers.folder_plugins import write_plugin
from playwright.async_api import WebSocketRoute, expect
from studio_bench import Studio

TELLER = """
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from tavern_host import node


@node()
async def tell(folder: str) -> AsyncIterator[str]:
    "Say what the files of a folder say, each as soon as it is there."
    for number in range(4):
        file = Path(folder) / str(number)
        while not file.exists():
            await asyncio.sleep(0.02)
        for word in file.read_text().split():
            yield word + " "
        file.with_suffix(".said").touch()
"""


class Line:
    """The connection of the page, which can be cut and joined again."""

    def __init__(self) -> None:
        self.joined = asyncio.Event()
        self.joined.set()
        self.ends: list[WebSocketRoute] = []

    async def take(self, here: WebSocketRoute) -> None:
        """Pass on what both ends say, once the line is there."""
        await self.joined.wait()
        self.ends = [here, here.connect_to_server()]

    async def cut(self) -> None:
        """Close both ends; who connects has to wait."""
        self.joined.clear()
        for end in self.ends:
            await end.close()


async def test_a_page_shows_what_it_missed_and_says_what_is_lost(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, site, line = studio.page, studio.site, Line()
    root = site.host.project.root
    said = root / "said"
    said.mkdir()

    async def say(number: int, words: str) -> None:
        (said / "draft").write_text(words)
        (said / "draft").rename(said / str(number))
        while not (said / f"{number}.said").exists():
            await asyncio.sleep(0.02)

    write_plugin(
        root / "plugins" / "teller", {"__init__.py": "", "nodes/__init__.py": TELLER}, nodes={"entry": "./nodes"}
    )
    await site.post("/api/plugins/reload")
    await site.host.grant("teller")
    teller = {"id": "teller", "type": "teller:Tell", "position": {"x": 0, "y": 0}, "inputValues": {"folder": str(said)}}
    output = {"id": "output", "type": "core:GroupOutput", "position": {"x": 400, "y": 0}}
    edge = {"id": "e", "source": "teller", "sourceHandle": "result", "target": "output", "targetHandle": "text"}
    interface = {"text": {"key": "text", "dataFlowType": "STRING", "isStream": True}}
    workflow = {"name": "Telling", "nodes": [teller, output], "edges": [edge], "interfaceOutputs": interface}
    (root / "workflows" / "telling.json").write_text(json.dumps(workflow))

    await page.route_web_socket("**/ws?*", line.take)
    await page.reload()
    await studio.open("/workflows/telling")
    await expect(page.locator(".vue-flow__edge")).to_have_count(1)
    await page.keyboard.press("Control+Enter")
    lost = page.get_by_text("The server does not answer")
    shown, result = page.locator(".node p.streamed"), page.get_by_label("Inspector").locator(".value")
    await say(0, "one")
    await expect(shown).to_have_text("one")

    await line.cut()
    await expect(lost).to_be_visible()
    await say(1, "two")
    line.joined.set()
    await expect(lost).to_have_count(0)
    for text in (shown, result):
        await expect(text).to_contain_text("one two")

    await line.cut()
    await expect(lost).to_be_visible()
    await say(2, "three")
    monkeypatch.setattr(site.host.events, "_kept_limit", 20)
    for number in range(20):  # as many as the host keeps for those who come back
        site.host.events.publish("teller.counted", {"number": number})
    line.joined.set()
    await expect(lost).to_have_count(0)
    await expect(result).to_contain_text("what came meanwhile is missing here")
    await studio.picture("missed")

    await say(3, "end")
    await expect(page.get_by_label("Inspector").get_by_text("done", exact=True)).to_be_visible()
    await expect(result).not_to_contain_text("what came meanwhile is missing here")
    await expect(result).to_contain_text("one two three end")
