"""Every view, light and dark, is free of serious findings of axe-core, and fits a narrow screen."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from helpers.repetition import Failures
from playwright.async_api import Browser, expect
from studio_bench import Studio, read_until, show

from tavern_studio.page import WEB

AXE = WEB.parent / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = {
    "/": "Workflows",
    "/workflows/greeting": "Whom to greet.",
    "/chat": "Conversations",
    "/agents/mira": "What it may call",
    "/tools/text:shout": "Shout",
    "/tools?new=script": "What the script asks for",
    "/knowledge": "Node types",
    "/knowledge/host:tools": "Export",
    "/knowledge/host:tools/text:shout": "Keywords",
    "/runs": "Runs",
    "/files": "Files",
    "/plugins/tavern-engine": "Workflow engine",
    "/settings/tavern-engine": "tavern-engine",
    "/settings/audit": "Audit log",
    "/settings/users": "Members of this project",
    "/settings/figures": "Runs that wait",
    "/settings/models": "Add a model",
}
WIDE = {"/workflows/agents/LLMDecisionWithTools": "The conversation so far."}
"""Where a narrow canvas is zoomed out so far that its controls are small."""
VIOLATIONS = """async (rules) => (await axe.run(document, {runOnly: rules, resultTypes: ["violations"]})).violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""

MISPLACED = """() => [...document.querySelectorAll(".vue-flow__handle")].filter((handle) => {
    const { left, width } = handle.getBoundingClientRect();
    const node = handle.closest(".vue-flow__node").getBoundingClientRect();
    return Math.min(...[node.left, node.right].map((edge) => Math.abs(left + width / 2 - edge))) > width / 2;
}).map((handle) => handle.dataset.handleid)"""
"""Slots that are not at an edge of their node."""


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_view_is_accessible(studio: Studio, browser: Browser, theme: str, tmp_path: Path) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run `npm ci` in plugins/tavern_studio/frontend")
    await studio.site.post("/api/prompt", json={"workflowId": "greeting", "inputs": {"name": "Ada"}})
    width = 1280 if theme == "light" else 420
    rules = ["wcag2a", "wcag2aa"] if theme == "light" else ["color-contrast", "button-name", "target-size"]
    context = await browser.new_context(
        locale="en",
        viewport={"width": width, "height": 800},
        color_scheme=theme,
        bypass_csp=True,  # type: ignore[arg-type]
    )
    shown = await show(context, studio.site)
    await shown.page.add_script_tag(path=AXE)
    with Failures() as failures:
        for path, words in (VIEWS | WIDE if theme == "light" else VIEWS).items():
            with failures.row(path):
                await shown.open(path)
                await expect(shown.page.get_by_text(words, exact=True).locator("visible=true").first).to_be_visible()
                await shown.picture(f"view-{theme}-{path.strip('/').replace('/', '-') or 'home'}")
                read = partial(shown.page.evaluate, VIOLATIONS, rules)
                assert await read_until(lambda found: not found, read) == []
                assert await shown.page.evaluate("document.documentElement.scrollWidth") <= width
                assert await shown.page.evaluate(MISPLACED) == []
    await context.close()
