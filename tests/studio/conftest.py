"""Fixtures: the page of a served project in a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser
from studio_bench import Studio, show

from tavern_host import Host
from tavern_host.testing.http import served


@pytest.fixture
async def studio(browser: Browser, tmp_path: Path) -> AsyncIterator[Studio]:
    """Return the page on a fresh project with the sample; whatever went wrong on the page fails the test."""
    async with Host(tmp_path / "inn", sample=True) as host, served(host) as site:
        context = await browser.new_context(locale="en", viewport={"width": 1280, "height": 800})
        studio = await show(context, site)
        yield studio
        await context.close()
    assert studio.mistakes == []
