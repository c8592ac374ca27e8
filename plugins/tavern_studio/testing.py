"""pytest fixtures for tests of what people see: a browser, and in it the page of the test's host.

Write `pytest_plugins = ["tavern_host.testing", "tavern_studio.testing"]` into the `conftest.py` at the top of the
tests. Playwright drives a Chromium that is there, of the system or its own, or the program that `TAVERN_BROWSER` names;
without one the tests are skipped, and say how to get one. Screenshots are kept in the folder that `TAVERN_SCREENSHOTS`
names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tavern_host.testing.fixtures import asyncio_fixture
from tavern_studio.page import WEB

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

    from tavern_host.testing.http import HttpClient

FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
WAIT = 60_000
"""Milliseconds that a test waits for what should be on the page."""


BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Programs that show the page, the one that needs least first: it has no windows, and takes half the processor time."""


def chromium() -> str | None:
    """Return the browser that was asked for, else the system's; None where there is only Playwright's own, or none."""
    asked = os.environ.get("TAVERN_BROWSER")
    return next(filter(None, map(shutil.which, [asked] if asked else BROWSERS)), None)


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
            await self.page.screenshot(path=f"{folder}/{name}.png")  # makes the folder


async def not_new(context: BrowserContext) -> None:
    """Let a browser know that its person was here before: whoever was not is led to the sample."""
    await context.add_init_script("try { localStorage.setItem('tavern.visited', 'done') } catch {}")


async def show(context: BrowserContext, site: HttpClient, *, is_new: bool = False) -> Studio:
    """Open the page of a server in a window of a browser."""
    from tavern_host.testing.http import TOKEN

    if not is_new:
        await not_new(context)
    context.set_default_timeout(WAIT)
    page, mistakes = await context.new_page(), list[str]()
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("console", lambda said: mistakes.append(said.text) if said.type == "error" else None)
    await page.goto(f"http://127.0.0.1:{site.port}/?token={TOKEN}")
    return Studio(site, page, mistakes)


async def browsing() -> AsyncIterator[Browser]:
    """Give a browser, to a fixture of any scope."""
    playwright_api = pytest.importorskip("playwright.async_api", reason="pip install playwright")
    system = chromium()
    playwright_api.expect.set_options(timeout=WAIT)
    if not (WEB / "studio.js").is_file():
        pytest.skip("the studio is not built: pip install -e '.[test]' in the folder of tavern-host")
    async with playwright_api.async_playwright() as playwright:
        if system is None and shutil.which(playwright.chromium.executable_path) is None:
            pytest.skip(
                "no browser: apt install chromium-headless-shell fonts-noto-cjk, or playwright install chromium"
            )
        browser = await playwright.chromium.launch(executable_path=system, args=FLAGS)
        yield browser
        await browser.close()


@asyncio_fixture
async def browser() -> AsyncIterator[Browser]:
    """Give a browser."""
    async with asynccontextmanager(browsing)() as found:
        yield found


@asyncio_fixture
async def studio(browser: Browser, http_client: HttpClient) -> AsyncIterator[Studio]:
    """Give the page of the test's host; whatever goes wrong on the page fails the test."""
    context = await browser.new_context(locale="en", viewport={"width": 1280, "height": 800})
    studio = await show(context, http_client)
    yield studio
    await context.close()
    assert studio.mistakes == []
