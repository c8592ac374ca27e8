"""A server with its page, and a browser: Debian's Chromium, driven by Playwright.

Where there is no browser its tests are skipped, and say how to get one. Screenshots are kept in the folder that
`TAVERN_SCREENSHOTS` names.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.async_api import BrowserContext, Page, expect

from tavern_host.testing.http import TOKEN, HttpClient

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
WAIT = 30_000
"""Milliseconds that a test waits for what should be on the page."""


class Studio:
    """A served project and a page on it."""

    def __init__(self, site: HttpClient, page: Page, mistakes: list[str]) -> None:
        self.site = site
        self.page = page
        self.mistakes = mistakes
        """What the browser complained about: exceptions, refused scripts and styles."""

    async def open(self, path: str = "/") -> None:
        """Show a view."""
        await self.page.goto(f"http://127.0.0.1:{self.site.port}/#{path}")

    async def picture(self, name: str) -> None:
        """Keep a picture of the page, if pictures are asked for."""
        if folder := os.environ.get("TAVERN_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            await self.page.screenshot(path=f"{folder}/{name}.png")


async def not_new(context: BrowserContext) -> None:
    """Let a browser know that its person was here before: whoever was not is led to the sample."""
    await context.add_init_script("try { localStorage.setItem('tavern.visited', 'done') } catch {}")


async def show(context: BrowserContext, site: HttpClient, *, is_new: bool = False) -> Studio:
    """Open the page of a server in a window of a browser."""
    if not is_new:
        await not_new(context)
    context.set_default_timeout(WAIT)
    expect.set_options(timeout=WAIT)
    page, mistakes = await context.new_page(), list[str]()
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("console", lambda said: mistakes.append(said.text) if said.type == "error" else None)
    await page.goto(f"http://127.0.0.1:{site.port}/?token={TOKEN}")
    return Studio(site, page, mistakes)
