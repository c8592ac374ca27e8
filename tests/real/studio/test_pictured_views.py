"""The views that the documentation shows fit each window, light and dark, in both languages, and can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from layout_bench import AXE, faults, take_axe
from pictured_views import VIEWS
from playwright.async_api import Browser
from studio_bench import WIDE, show

from tavern_host import Host
from tavern_host.testing.http import served


@pytest.mark.parametrize("name", VIEWS)
async def test_a_view_of_the_documentation_fits_and_can_be_read(browser: Browser, tmp_path: Path, name: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run `npm ci` in plugins/tavern_studio/frontend")
    async with Host(tmp_path / "inn", sample=True, serving=True) as host, served(host) as site:
        context = await browser.new_context(**WIDE, bypass_csp=True, reduced_motion="reduce")
        studio = await show(context, site)
        await VIEWS[name](studio)
        await take_axe(studio.page)
        assert [one async for one in faults(studio, name)] == []
        await context.close()
