"""Fixtures: a browser, and the page of a served project in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright
from studio_bench import CHROMIUM, FLAGS, Studio, show

from tavern_host import Host
from tavern_host.testing.http import served
from tavern_studio.page import WEB


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


@pytest.fixture
async def studio(browser: Browser, tmp_path: Path) -> AsyncIterator[Studio]:
    """Return the page on a fresh project with the sample; whatever went wrong on the page fails the test."""
    async with Host(tmp_path / "inn", sample=True) as host, served(host) as site:
        context = await browser.new_context(locale="en", viewport={"width": 1280, "height": 800})
        studio = await show(context, site)
        yield studio
        await context.close()
    assert studio.mistakes == []
