"""Everything of the page's catalogue, from one table: granted it shows, revoked it is gone from the open page, and
without the permission its call is refused with what, why and how to get it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from catalogue_bench import GRANTED, HOOKS, REFUSED, TABLE, add, check_visible, clear, make_catalogue_project, open_view
from helpers.repetition import Failures, repetitions
from playwright.async_api import Browser, Error, expect
from studio_bench import WIDE, Studio, read_until, show

from tavern_host import Host
from tavern_host.contracts.ui import COMPONENTS
from tavern_host.testing.http import served

OUTLETS_AND_WRAPS = [row for row in TABLE if row.startswith(("outlet ", "wrap "))]
INNER = ["ui:NodeInputControl", "ui:MainMenu", "ui:AssistantPanel"], ["ui:BaseNode", "ui:ContextMenu"]
REPLACED_TOGETHER = [*INNER, [part for part in COMPONENTS if part not in (*INNER[0], *INNER[1])]]
"""Parts that do not stand in one another: of one that is replaced, nothing is seen that stands in it."""
REFUSAL = """
([plugin, row]) => {
  try {
    window.catalogue[plugin].add([row]);
  } catch (error) {
    const { name, message, plugin, what, permission, howToGrant } = error;
    return { name, message, plugin, what, permission, howToGrant };
  }
}
"""
LOADED = f"() => window.catalogue && '{GRANTED}' in window.catalogue && '{REFUSED}' in window.catalogue"


@pytest_asyncio.fixture(loop_scope="session")
async def catalogue(browser: Browser, tmp_path: Path) -> AsyncIterator[Studio]:
    """Return the page with both plugins loaded."""
    make_catalogue_project(tmp_path / "inn")
    async with Host(tmp_path / "inn") as host, served(host) as site:
        for name in (GRANTED, REFUSED):
            await host.grant(name)
        context = await browser.new_context(**WIDE)
        studio = await show(context, site)
        await studio.page.wait_for_function(LOADED)
        yield studio
        await context.close()


async def test_granted_shows_revoked_is_gone_and_else_refused(catalogue: Studio) -> None:
    page, host = catalogue.page, catalogue.site.host
    await page.evaluate("window.isTheSamePage = true")

    await add(catalogue, OUTLETS_AND_WRAPS)
    await check_visible(catalogue, OUTLETS_AND_WRAPS)
    await clear(catalogue)
    await check_visible(catalogue, [])
    for parts in REPLACED_TOGETHER:
        rows = [f"override {part}" for part in parts]
        await add(catalogue, rows)
        await check_visible(catalogue, rows)
        await clear(catalogue)

    acting = [*(f"hook {name}" for name in HOOKS), "service workflowManager"]
    await page.evaluate("window.called = []")
    await add(catalogue, acting)
    stopped = ["the catalogue says so"] * 2  # once by each name of the hook
    await act(catalogue, [*stopped, "the catalogue does not run"], stopped)
    called = partial(page.evaluate, "window.called.toSorted()")
    assert await read_until(lambda found: len(found) == len(acting), called) == sorted(acting)
    await open_view(catalogue, "editor")
    await expect(page.locator(".vue-flow__node").get_by_text("looked at")).to_be_visible()

    await add(catalogue, OUTLETS_AND_WRAPS)
    await catalogue.picture("catalogue")
    await host.revoke(GRANTED)
    await expect(page.locator("[data-row]")).to_have_count(0)
    await check_visible(catalogue, [])
    await expect(page.locator(".vue-flow__node").get_by_text("looked at")).to_have_count(0)
    await page.evaluate("window.called = []")
    await act(catalogue, ["done ·"], ["Saved"])
    assert await page.evaluate("window.called") == []
    with pytest.raises(Error, match="is not loaded any more"):
        await add(catalogue, OUTLETS_AND_WRAPS[:1])

    with Failures() as failures:
        for row, (what, permission) in TABLE.items():
            with failures.row(row):
                refused = await page.evaluate(REFUSAL, [REFUSED, row])
                kind, _, name = permission.rpartition(":")
                assert refused["name"] == "PermissionError"
                assert (refused["plugin"], refused["what"], refused["permission"]) == (REFUSED, what, permission)
                for fact in (REFUSED, what, permission, refused["howToGrant"]):
                    assert fact in refused["message"]
                assert "plugin.yaml" in refused["howToGrant"] and name in refused["howToGrant"], kind
    assert await page.evaluate("window.isTheSamePage")


async def act(catalogue: Studio, runs: list[str], saves: list[str]) -> None:
    """Run the workflow and save settings, as often as there are texts that are shown then."""
    page = catalogue.page
    await open_view(catalogue, "editor")
    for text in runs:
        await page.get_by_role("banner").get_by_role("button", name="Run").click()
        await expect(page.get_by_text(text).first).to_be_visible()
    await open_view(catalogue, "settings")
    for number, text in enumerate(saves):
        await page.get_by_label("Word").fill(f"word {number}")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text(text).first).to_be_visible()


async def test_cycles_in_an_open_page_leave_nothing_behind(catalogue: Studio) -> None:
    page, host = catalogue.page, catalogue.site.host
    await page.evaluate("(rows) => (window.atLoad = rows)", [*OUTLETS_AND_WRAPS, *(f"hook {name}" for name in HOOKS)])
    await open_view(catalogue, "editor")
    devtools = await page.context.new_cdp_session(page)

    async def cycles(count: int) -> None:
        """Disable and enable the plugin."""
        for _ in range(count):
            before = await page.evaluate("window.loads")
            await host.disable(GRANTED)
            await page.wait_for_function("() => document.querySelector('[data-row]') === null")
            await host.enable(GRANTED)
            await page.wait_for_function("(before) => window.loads > before", arg=before)
        await page.wait_for_function("() => document.querySelector('[data-row]') !== null")

    async def held() -> dict[str, int]:
        await devtools.send("HeapProfiler.collectGarbage")
        counted = await devtools.send("Memory.getDOMCounters")
        return {**counted, "styles": await page.evaluate("document.querySelectorAll('style, link').length")}

    async def grown() -> dict[str, int]:
        return {what: count - first[what] for what, count in (await held()).items()}

    await cycles(3)
    first = await held()
    count = repetitions(10, 50)
    await cycles(count)
    # What is left behind is left behind each time; what is still being shown goes.
    more = await read_until(lambda found: max(found.values()) < count / 2, grown)
    assert max(more.values()) < count / 2, more
