"""Every view, light and dark, is free of serious findings of axe-core, and fits a narrow screen."""

from __future__ import annotations

from functools import partial

import pytest
from helpers.repetition import Failures
from playwright.async_api import Browser, expect
from studio_bench import read_until, show

from tavern_host.testing.http import HttpClient
from tavern_studio.page import WEB

AXE = WEB.parent / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = {
    "/": "Workflows",
    "/workflows/greeting": "Whom to greet.",
    "/chat": "Conversations",
    "/panels": "Front desk",
    "/panels/desk": "Results appear here.",
    "/panels/desk/edit": "Add a text",
    "/agents/mira": "What it may call",
    "/tools/text:shout": "Shout",
    "/tools?new=script": "What the script asks for",
    "/knowledge": "Node types",
    "/knowledge/host:tools": "Export",
    "/knowledge/host:tools/text:shout": "Keywords",
    "/runs": "Runs",
    "/files": "Files",
    "/plugins/tavern-engine": "Workflow engine",
    "/plugins?view=influences": "Who changes what before and during a run",
    "/settings/tavern-engine": "Workflow engine",
    "/settings/audit": "Audit log",
    "/settings/users": "Members of this project",
    "/settings/figures": "Memory of the server",
    "/settings/models": "Add a model",
}
WIDE = {"/workflows/agents/LLMDecisionWithTools": "The conversation so far."}
"""Where a narrow canvas is zoomed out so far that its controls are small."""
THEMES = [
    ("light", 1280, ["wcag2a", "wcag2aa"]),
    ("dark", 420, ["color-contrast", "button-name", "target-size"]),
]
VIOLATIONS = """async (rules) => (await axe.run(document, {runOnly: rules, resultTypes: ["violations"]})).violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""

MISPLACED = """() => [...document.querySelectorAll(".vue-flow__handle")].filter((handle) => {
    const { left, width } = handle.getBoundingClientRect();
    const node = handle.closest(".vue-flow__node").getBoundingClientRect();
    return Math.min(...[node.left, node.right].map((edge) => Math.abs(left + width / 2 - edge))) > width / 2;
}).map((handle) => handle.dataset.handleid)"""
"""Slots that are not at an edge of their node."""
TOO_WIDE = "(width) => [document.documentElement.scrollWidth].filter((one) => one > width)"


@pytest.mark.timeout(900)  # axe looks at all of 41 views
async def test_every_view_is_accessible(site: HttpClient, browser: Browser) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run `npm ci` in plugins/tavern_studio/frontend")
    await site.post("/api/prompt", json={"workflowId": "greeting", "inputs": {"name": "Ada"}})
    desk = {"id": "desk", "name": "Front desk", "workflows": ["greeting"], "agents": ["mira"]}
    assert (await site.post("/api/panels", json=desk)).status == 201
    context = await browser.new_context(locale="en", bypass_csp=True)
    studio = await show(context, site)
    await studio.page.add_script_tag(path=AXE)
    with Failures() as failures:
        for theme, width, rules in THEMES:
            await studio.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            await studio.page.set_viewport_size({"width": width, "height": 800})
            for path, words in (VIEWS | WIDE if theme == "light" else VIEWS).items():
                with failures.row(f"{theme} {path}"):
                    await studio.open(path)
                    shown = studio.page.get_by_text(words, exact=True).locator("visible=true")
                    await expect(shown.first).to_be_visible()
                    await studio.picture(f"view-{theme}-{path.strip('/').replace('/', '-') or 'home'}")
                    for what, argument in ((VIOLATIONS, rules), (MISPLACED, None), (TOO_WIDE, width)):
                        read = partial(studio.page.evaluate, what, argument)
                        assert await read_until(lambda found: not found, read) == []
    await context.close()
