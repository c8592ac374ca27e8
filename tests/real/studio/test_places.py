"""Outlets stand where their names say, measured in the browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from catalogue_bench import EDITOR, GRANTED, add, make_catalogue_project
from helpers.repetition import Failures
from playwright.async_api import Browser, FloatRect, Locator, expect
from studio_bench import Studio, show

from tavern_host import Host
from tavern_host.testing.http import served


@pytest_asyncio.fixture(loop_scope="session")
async def wide(browser: Browser, tmp_path: Path) -> AsyncIterator[Studio]:
    """Return the page with the plugin that fills places, in a window with room for all of them."""
    make_catalogue_project(tmp_path / "inn")
    async with Host(tmp_path / "inn") as host, served(host) as site:
        await host.grant(GRANTED)
        context = await browser.new_context(locale="en", viewport={"width": 1600, "height": 900})
        studio = await show(context, site)
        await studio.page.wait_for_function("() => window.catalogue !== undefined")
        yield studio
        await context.close()


async def test_outlets_stand_where_their_names_say(wide: Studio) -> None:
    page = wide.page
    names = ["layout:header:after-tabs", "editor:toolbar:center", "editor:canvas:overlay"]
    named_panel = "sidebar:panel:header[workflows]"
    # The permission is that of all panels.
    rows = [f"outlet {name}" for name in (*names, "sidebar:icon-bar:bottom:before", named_panel)]
    await add(wide, rows)

    await wide.open("/")
    mark = page.locator(f'[data-row="outlet {named_panel}"]')
    await expect(mark).to_have_count(1)
    title, cards = page.get_by_role("heading", name="Workflows", exact=True), page.locator(".cards").first
    assert (await box(title))["y"] < (await box(mark))["y"] < (await box(cards))["y"]

    await wide.open(EDITOR)
    await expect(page.locator(".vue-flow__node")).to_have_count(1)
    bar, found = await box(page.get_by_role("banner")), {name: await box(place(wide, name)) for name in names}
    tab = await box(page.get_by_role("banner").locator(".tab"))
    assert 0 <= found["layout:header:after-tabs"]["x"] - (tab["x"] + tab["width"]) < 40
    center = found["editor:toolbar:center"]
    assert abs(center["x"] + center["width"] / 2 - (bar["x"] + bar["width"] / 2)) < 2
    canvas, over = await box(page.locator(".vue-flow")), found["editor:canvas:overlay"]
    assert (over["x"], abs(over["y"] - canvas["y"]) < 4) == (canvas["x"], True)
    await page.mouse.click(over["x"] + 200, over["y"] + 100, button="right")
    await expect(page.get_by_role("menu")).to_be_visible()  # it lets the pointer through
    above = await box(place(wide, "sidebar:icon-bar:bottom:before"))
    rail = page.get_by_label("Views")
    assert (
        (await box(rail.get_by_label("Files")))["y"] + 100 < above["y"] < (await box(rail.get_by_label("Plugins")))["y"]
    )


async def test_every_panel_has_the_place_that_is_named_after_it(wide: Studio) -> None:
    page = wide.page
    views = {
        "home": "/",
        "workflows": "/",
        "nodes": EDITOR,
        "chat": "/chat",
        **{name: f"/{name}" for name in ("agents", "tools", "knowledge", "runs", "triggers", "plugins", "settings")},
        "manual": "/docs",
    }
    await add(wide, [f"outlet sidebar:panel:{part}[{name}]" for name in views for part in ("header", "footer")])
    with Failures() as failures:
        for name, address in views.items():
            with failures.row(name):
                await wide.open(address)
                if name == "nodes" and await page.get_by_role("button", name="Open the node library").count():
                    await page.get_by_role("button", name="Open the node library").click()
                for part in ("header", "footer"):
                    await expect(place(wide, f"sidebar:panel:{part}[{name}]")).to_have_count(1)
                    others = page.locator(f'[data-row^="outlet sidebar:panel:{part}["]')
                    assert await others.count() == (2 if name in ("home", "workflows") else 1)


def place(studio: Studio, name: str) -> Locator:
    """Return what stands in an outlet."""
    return studio.page.locator(f'[data-row="outlet {name}"]')


async def box(what: Locator) -> FloatRect:
    """Return where something is."""
    found = await what.bounding_box()
    assert found is not None
    return found
