"""Every view, in each window, light and dark, in both languages, is free of serious findings of axe-core and fits."""

from __future__ import annotations

import pytest
from helpers.repetition import Failures
from layout_bench import AXE, faults, switch_language, take_axe
from playwright.async_api import Browser, expect
from studio_bench import WIDE, show

from tavern_host.testing.http import HttpClient

VIEWS = {
    "/": "Workflows",
    "/workflows/greeting": "Whom to greet.",
    "/workflows/agents/LLMDecisionWithTools": "The conversation so far.",
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
MISPLACED = """() => [...document.querySelectorAll(".vue-flow__handle")].filter((handle) => {
    const { left, width } = handle.getBoundingClientRect();
    const node = handle.closest(".vue-flow__node").getBoundingClientRect();
    return Math.min(...[node.left, node.right].map((edge) => Math.abs(left + width / 2 - edge))) > width / 2;
}).map((handle) => handle.dataset.handleid)"""
"""Slots that are not at an edge of their node."""


@pytest.mark.timeout(900)  # axe looks at each of 22 views in twelve ways
async def test_every_view_is_accessible_and_fits(site: HttpClient, browser: Browser) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run `npm ci` in plugins/tavern_studio/frontend")
    await site.post("/api/prompt", json={"workflowId": "greeting", "inputs": {"name": "Ada"}})
    desk = {"id": "desk", "name": "Front desk", "workflows": ["greeting"], "agents": ["mira"]}
    assert (await site.post("/api/panels", json=desk)).status == 201
    context = await browser.new_context(**WIDE, bypass_csp=True, reduced_motion="reduce")
    studio = await show(context, site)
    await take_axe(studio.page)
    with Failures() as failures:
        for path, words in VIEWS.items():
            await switch_language(studio.page, "en")
            with failures.row(path):
                await studio.open(path)
                await expect(studio.page.get_by_text(words, exact=True).locator("visible=true").first).to_be_visible()
                found = [one async for one in faults(studio, path.strip("/").replace("/", "-") or "home")]
                found += await studio.page.evaluate(MISPLACED)
                assert found == []
    await context.close()
