"""What operators do at the page, and what people of other roles see of it."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest
from helpers.folder_plugins import write_plugin
from helpers.model_server import model_server, says
from helpers.wheel_maker import plugin_wheel
from playwright.async_api import Browser, expect
from studio_bench import WAIT, Studio, not_new

from tavern_host.testing.http import HttpClient

PASSWORD = "a long enough password"
ROLES = {"reviewer": ["read", "operate:/api/plugins/*/grant", "create:/api/knowledge*"]}
VIEWS = {
    "/": "Greeting",
    "/workflows/greeting": "trim",
    "/chat?agent=assistant": "There is no conversation yet.",
    "/agents/assistant": "Thinks with",
    "/tools/text:shout": "text:shout · ",
    "/runs": "done",
    "/files": "Nothing is in this folder.",
    "/plugins/acme": "See every tool call before it is made",
    "/settings/models": "scripted",
    "/settings/figures": "Memory of the server",
    "/settings/account": "this one",
    "/settings/tavern-engine": "Runs at a time",
}
"""The views, and what each says once it is there."""
OFFERED = {
    "viewer": set[str](),
    "creator": {"New workflow", "Run", "Publish", "New", "Send", "New agent", "Save", "Delete", "Call", "Upload"},
    "reviewer": {"Grant and load 1.0.0"},
}
OF_OPERATORS = {"Install…", "Revoke", "Disable", "Reload", "Add a model", "Add a user", "Stop all work"}
"""What each role is offered of all that changes something there."""
REFUSED = "Failed to load resource: the server responded with a status of {}"
GUARDED = set.union(*OFFERED.values(), OF_OPERATORS)
BUTTONS = "[...document.querySelectorAll('button, a.button')].map((one) => one.innerText.trim() || one.ariaLabel)"


async def test_nobody_is_offered_what_would_be_refused(site: HttpClient, browser: Browser) -> None:
    write_plugin(site.host.project.root / "plugins" / "acme", permissions={"hooks": ["hook:server:tool:before-call"]})
    await site.post("/api/plugins/reload")
    saved = await site.post("/api/plugins/tavern-accounts/settings", json={"roles": ROLES})
    assert saved.status == 200, await saved.text()
    await site.post("/api/prompt", json={"workflowId": "greeting", "inputs": {"name": "Ada"}})
    for role, offered in OFFERED.items():
        assert (await site.post("/api/users", json={"name": role, "password": PASSWORD, "role": role})).status < 300
        context = await browser.new_context(locale="en")
        await not_new(context)
        context.set_default_timeout(WAIT)
        page, refused = await context.new_page(), list[str]()
        page.on("response", lambda one, to=refused: to.append(one.url) if one.status in (401, 403) else None)
        base = f"http://127.0.0.1:{site.port}"
        assert (await context.request.post(f"{base}/api/login", data={"name": role, "password": PASSWORD})).ok
        seen = set[str]()
        for _ in range(20):  # a view may not be complete yet when it is read
            for view, text in VIEWS.items():
                await page.goto(f"{base}/#{view}")
                await expect(page.get_by_text(text).first).to_be_visible()
                seen |= set(await page.evaluate(BUTTONS))
            if offered <= seen:
                break
        assert (role, sorted(seen & GUARDED), refused) == (role, sorted(offered), [])
        await expect(page.get_by_role("link", name="Audit log")).to_have_count(0)
        await context.close()


async def test_a_plugin_is_found_installed_and_upgraded_once_what_is_new_is_granted(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for variable, value in {"UV_OFFLINE": "1", "PIP_NO_INDEX": "1"}.items():
        monkeypatch.setenv(variable, value)
    page, index = studio.page, tmp_path / "index.json"
    await studio.open("/plugins")
    await page.get_by_role("button", name="Install…").click()
    await expect(page.get_by_text("No index of plugins is set up")).to_be_visible()
    plugin_wheel(tmp_path, "ropes", "1.0.0", "", "tavern_before_tool_call")
    listed = [{"name": "knots", "version": "2.0", "summary": "Knots alone", "url": "/k.whl", "sha256": "0" * 64}]
    index.write_text(json.dumps({"plugins": [*listed, _entry(tmp_path, "1.0.0")]}))
    await studio.site.post("/api/plugins/tavern-packages/settings", json={"index": str(index)})
    field = page.get_by_label("Name in the index, perhaps with versions, or the address of a wheel")
    await field.fill("rop")
    await expect(page.get_by_role("button", name="Install knots")).to_have_count(0)
    await studio.picture("plugin-index")
    await page.get_by_role("button", name="Install ropes").click()

    article = page.get_by_role("article")
    await page.get_by_role("button", name="Grant and load 1.0.0").click()
    await expect(article.get_by_text("running", exact=True)).to_be_visible()
    await expect(article.get_by_text(re.compile("Granted by operator (now|1 min)")).first).to_be_visible()
    plugin_wheel(tmp_path, "ropes", "1.1.0", "", "tavern_before_tool_call", "tavern_before_execute")
    index.write_text(json.dumps({"plugins": [*listed, _entry(tmp_path, "1.0.0"), _entry(tmp_path, "1.1.0")]}))
    await studio.open("/plugins/tavern-llm")
    await studio.open("/plugins/ropes")
    await expect(page.get_by_text("The index has 1.1.0.")).to_be_visible()
    await page.get_by_role("button", name="Upgrade").click()
    dialog = page.get_by_role("dialog", name="ropes 1.1.0 asks for more")
    await expect(dialog.get_by_role("listitem")).to_have_count(1)
    await studio.picture("plugin-upgrade")
    await dialog.get_by_role("button", name="Keep 1.0.0").click()
    assert (await (await studio.site.get("/api/plugins/ropes")).json())["version"] == "1.0.0"
    await page.get_by_role("button", name="Upgrade").click()
    await dialog.get_by_role("button", name="Grant and upgrade").click()
    await expect(article.get_by_text("1.1.0", exact=True)).to_be_visible()
    await expect(article.get_by_text("upgraded it to 1.1.0.")).to_be_visible()
    await studio.picture("plugin-history")
    for _ in range(2):
        studio.mistakes.remove(REFUSED.format("409 (Conflict)"))


def _entry(folder: Path, version: str) -> dict[str, str]:
    wheel = folder / f"ropes-{version}-py3-none-any.whl"
    found = {"name": "ropes", "version": version, "summary": "Ropes and more", "path": str(wheel)}
    return {**found, "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}


async def test_a_model_is_added_tried_and_forgotten(studio: Studio) -> None:
    page = studio.page
    async with model_server(key="sk-secret", models=["large", "tiny"], default=says("Hello, traveller.")) as server:
        await studio.open("/settings/models")
        await page.get_by_role("button", name="Add a model").click()
        await page.get_by_label("Name here").fill("mine")
        await page.get_by_label("Address of the server").fill(server.base_url)
        await page.get_by_label("API key").fill("sk-wrong")
        await page.get_by_role("button", name="Try and save").click()
        await expect(page.get_by_role("alert").get_by_text("refuses the API key (401)")).to_be_visible()
        await studio.picture("model-refused")
        await page.get_by_label("API key").fill("sk-secret")
        await page.get_by_role("button", name="Try and save").click()
        await page.get_by_role("combobox", name="The server's name for the model").select_option("tiny")
        await studio.picture("model-choice")
        await page.get_by_role("button", name="Try and save").click()
        row = page.get_by_role("listitem", name="mine")
        await expect(row.get_by_text("default", exact=True)).to_be_visible()
        await row.get_by_role("button", name="Test").click()
        await expect(row.get_by_text("10 + 5 tokens")).to_be_visible()
        await studio.picture("models")
    await row.get_by_role("button", name="Test").click()
    await expect(row.get_by_role("alert").get_by_text("cannot be reached")).to_be_visible()
    assert "sk-secret" not in await page.content()
    for status in ("503 (Service Unavailable)", "400 (Bad Request)", "503 (Service Unavailable)"):
        studio.mistakes.remove(REFUSED.format(status))
    await row.get_by_role("button", name="Forget").click()
    await page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    await expect(row).to_have_count(0)


async def test_figures_move_while_they_are_looked_at_and_the_log_is_searched(studio: Studio) -> None:
    page, asked = studio.page, list[str]()
    page.on("request", lambda one: asked.append(one.url) if "/api/figures" in one.url else None)
    await expect(page.get_by_role("heading", name="Workflows", exact=True)).to_be_visible()  # else it replaces the next
    await page.clock.install()
    await studio.open("/settings/figures")
    await page.reload()
    row = page.get_by_role("row", name="Workflow engine")
    await expect(row.get_by_role("cell").nth(1)).to_have_text("0")
    await studio.site.post("/api/prompt", json={"workflowId": "greeting", "inputs": {"name": "Ada"}})
    await page.clock.run_for(3000)
    await expect(row.get_by_role("cell").nth(1)).not_to_have_text("0")
    await expect(page.get_by_role("region", name="Runs", exact=True).get_by_role("img")).to_be_visible()
    await studio.picture("figures")

    for number in range(130):
        details = {"text": "long " * 50} if number == 129 else {}
        studio.site.host.audit.record("tool.denied", actor="user:bob", subject=f"tool-{number}", details=details)
    await studio.open("/settings/audit")
    rows = page.get_by_role("row")
    await expect(rows).to_have_count(101)
    asked.clear()
    await page.clock.run_for(30_000)
    await page.get_by_role("button", name="Older entries").click()
    await expect(page.get_by_role("cell", name="tool-3", exact=True)).to_be_visible()
    assert asked == []  # nobody looks at the figures
    await page.get_by_label("About").fill("tool-12*")
    await page.clock.run_for(300)
    await expect(rows).to_have_count(12)
    await page.get_by_label("What", exact=True).fill("plugin.")
    await page.clock.run_for(300)
    await expect(page.get_by_text("No entry matches.")).to_be_visible()
    await page.get_by_role("button", name="Show all").click()
    await page.get_by_label("Who").fill("bob")
    await page.get_by_label("Since").fill("2020-01-01T00:00")
    await page.clock.run_for(300)
    await page.locator("summary", has_text="tool-129").click()
    await expect(page.get_by_text("long long")).to_be_visible()
    await studio.picture("audit-filtered")
    await page.get_by_label("Until").fill("2020-02-01T00:00")
    await page.clock.run_for(300)
    await expect(page.get_by_text("No entry matches.")).to_be_visible()
