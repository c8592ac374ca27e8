"""What operators do at the page, and what people of other roles see of it."""

from __future__ import annotations

from helpers.folder_plugins import write_plugin
from playwright.async_api import Browser, expect
from studio_bench import WAIT, Studio

PASSWORD = "a long enough password"
ROLES = {"reviewer": ["read", "operate:/api/plugins/*/grant", "create:/api/knowledge*"]}
VIEWS = {
    "/": "Greeting",
    "/workflows/greeting": "trim",
    "/chat?agent=assistant": "There is no conversation yet.",
    "/agents/assistant": "Tools",
    "/tools/text:shout": "text:shout · ",
    "/runs": "done",
    "/files": "Nothing is in this folder.",
    "/plugins/acme": "See every tool call before it is made",
    "/settings/models": "scripted",
    "/settings/figures": "tavern-engine",
    "/settings/account": "this one",
    "/settings/tavern-engine": "Runs at a time",
}
"""The views, and what each says once it is there."""
OFFERED = {
    "viewer": set[str](),
    "creator": {"New workflow", "Run", "Publish", "New", "Send", "New agent", "Save", "Delete", "Call", "Upload"},
    "reviewer": {"Grant and load 1.0.0"},
}
OF_OPERATORS = {"Install…", "Revoke", "Disable", "Reload", "Add a model", "Add a user"}
"""What each role is offered of all that changes something there."""
GUARDED = set.union(*OFFERED.values(), OF_OPERATORS)
BUTTONS = "[...document.querySelectorAll('button, a.button')].map((one) => one.innerText.trim() || one.ariaLabel)"


async def test_nobody_is_offered_what_would_be_refused(studio: Studio, browser: Browser) -> None:
    site = studio.site
    write_plugin(site.host.project.root / "plugins" / "acme", permissions={"hooks": ["hook:server:tool:before-call"]})
    await site.post("/api/plugins/reload")
    saved = await site.post("/api/plugins/tavern-accounts/settings", json={"roles": ROLES})
    assert saved.status == 200, await saved.text()
    await studio.site.post("/api/prompt", json={"workflowId": "greeting", "inputs": {"name": "Ada"}})
    for role, offered in OFFERED.items():
        assert (await site.post("/api/users", json={"name": role, "password": PASSWORD, "role": role})).status < 300
        context = await browser.new_context(locale="en")
        context.set_default_timeout(WAIT)
        page, refused = await context.new_page(), list[str]()
        page.on("response", lambda one, to=refused: to.append(one.url) if one.status in (401, 403) else None)
        base = f"http://127.0.0.1:{site.port}"
        assert (await context.request.post(f"{base}/api/login", data={"name": role, "password": PASSWORD})).ok
        seen = set[str]()
        for view, text in VIEWS.items():
            await page.goto(f"{base}/#{view}")
            await expect(page.get_by_text(text).first).to_be_visible()
            seen |= set(await page.evaluate(BUTTONS))
        assert (role, sorted(seen & GUARDED), refused) == (role, sorted(offered), [])
        await expect(page.get_by_role("link", name="Audit log")).to_have_count(0)
        await context.close()
