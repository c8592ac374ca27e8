"""What people see of a picture that is made: a preview on each node."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import expect

from tavern_host import Host
from tavern_studio.testing import Studio

SKY = {"width": 640, "height": 400, "first": "#14213d", "second": "#fca311"}
NODES: list[dict[str, Any]] = [
    {"id": "sky", "type": "image-nodes:Gradient", "inputValues": SKY},
    {"id": "soft", "type": "image-nodes:Change", "inputValues": {"look": "blur", "strength": 8}},
    {"id": "title", "type": "image-nodes:Write", "inputValues": {"text": "Good evening", "size": 72}},
    {"id": "file", "type": "image-nodes:Save", "inputValues": {"format": "JPEG"}},
]
POSTER = {
    "name": "Poster",
    "nodes": [{**node, "position": {"x": 360 * at, "y": 0}} for at, node in enumerate(NODES)],
    "edges": [
        {"id": one, "source": one, "sourceHandle": "picture", "target": other, "targetHandle": "picture"}
        for one, other in (("sky", "soft"), ("soft", "title"), ("title", "file"))
    ],
}

pytestmark = pytest.mark.tavern(plugins=["../../image_nodes"], workflows={"poster": POSTER})


async def test_the_pictures_stand_on_the_nodes(host: Host, studio: Studio) -> None:
    page = studio.page
    await page.set_viewport_size({"width": 1600, "height": 800})
    await studio.open("/workflows/poster")
    await page.get_by_role("banner").get_by_role("button", name="Run").click()
    pictures = page.locator(".vue-flow__node img")
    await expect(pictures).to_have_count(4)
    for at in range(4):
        await expect(pictures.nth(at)).to_be_visible()
        assert await pictures.nth(at).evaluate("image => image.decode().then(() => image.naturalWidth)") >= 256
    await studio.picture("image-nodes")
