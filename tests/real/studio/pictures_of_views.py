"""Makes the pictures of views that the documentation shows: `docs/pictures/*.webp`.

Run it as `PYTHONPATH=.:tests python tests/real/studio/pictures_of_views.py [NAME ...]` after such a view was
changed.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from pathlib import Path

from pictured_views import VIEWS
from playwright.async_api import Page, async_playwright
from studio_bench import WIDE, show

from tavern_host import Host
from tavern_host.testing.http import served
from tavern_studio.testing import FLAGS, chromium

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
LARGEST = 150_000
"""Bytes of one picture."""


async def taken(page: Page) -> bytes:
    """Return a picture of a page as WebP, at the best quality that is small enough."""
    session = await page.context.new_cdp_session(page)
    for quality in (90, 75, 60):
        how = {"format": "webp", "quality": quality}
        found = base64.b64decode((await session.send("Page.captureScreenshot", how))["data"])
        if len(found) <= LARGEST:
            break
    return found


async def make(names: list[str]) -> None:
    """Make the pictures of these views, each of a fresh project."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for name in names:
            with tempfile.TemporaryDirectory(prefix="harbour-", dir="/tmp") as root:
                async with Host(Path(root) / "inn", sample=True, serving=True) as host, served(host) as site:
                    context = await browser.new_context(**WIDE, reduced_motion="reduce")
                    studio = await show(context, site)
                    await VIEWS[name](studio)
                    for note in reversed(await studio.page.locator(".toast button").all()):
                        await note.click()
                    await studio.page.mouse.move(1, 799)
                    await studio.page.wait_for_timeout(500)
                    picture = await taken(studio.page)
                    (PICTURES / f"{name}.webp").write_bytes(picture)
                    print(f"{name}: {len(picture)} bytes")
                    await context.close()
        await browser.close()


if __name__ == "__main__":
    asyncio.run(make(sys.argv[1:] or list(VIEWS)))
