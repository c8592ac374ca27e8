"""A server with its page, and a browser: Debian's Chromium, driven by Playwright.

Where there is no browser its tests are skipped, and say how to get one. Screenshots are kept in the folder that
`TAVERN_SCREENSHOTS` names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tavern_host import Host
from tavern_host.testing.http import TOKEN, HttpClient, served
from tavern_studio.page import WEB

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
WAIT = 15_000
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


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Return a browser."""
    if CHROMIUM is None:
        pytest.skip("there is no browser: apt install chromium fonts-noto-cjk")
    if not (WEB / "studio.js").is_file():
        pytest.skip("the studio is not built: pip install -e '.[test]'")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


async def show(context: BrowserContext, site: HttpClient) -> Studio:
    """Open the page of a server in a window of a browser."""
    context.set_default_timeout(WAIT)
    page, mistakes = await context.new_page(), list[str]()
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("console", lambda said: mistakes.append(said.text) if said.type == "error" else None)
    await page.goto(f"http://127.0.0.1:{site.port}/?token={TOKEN}")
    return Studio(site, page, mistakes)


@pytest.fixture
async def studio(browser: Browser, tmp_path: Path) -> AsyncIterator[Studio]:
    """Return the page on a fresh project with the sample; whatever went wrong on the page fails the test."""
    async with Host(tmp_path / "inn", sample=True) as host, served(host) as site:
        context = await browser.new_context(locale="en", viewport={"width": 1280, "height": 800})
        studio = await show(context, site)
        yield studio
        await context.close()
    assert studio.mistakes == []
