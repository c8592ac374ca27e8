"""An operator stops all work of one user, agent, tool or plugin where they meet it on the page."""

from __future__ import annotations

from helpers.folder_plugins import write_plugin
from helpers.workflow_documents import workflow_document
from playwright.async_api import expect
from studio_bench import Studio

from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.testing.http import TOKEN, HttpClient

NODES = """
import asyncio

from tavern_host import node


@node()
async def wait(text: str = "") -> str:
    "Wait for ever."
    await asyncio.Event().wait()
    return text
"""


async def _prepare(site: HttpClient) -> str:
    """Bring a workflow that never ends, and a user; return a token of hers."""
    write_plugin(site.host.project.root / "plugins" / "acme", {"nodes/__init__.py": NODES}, nodes={"entry": "./nodes"})
    await site.post("/api/plugins/reload")
    assert (await site.post("/api/plugins/acme/grant")).status == 200
    workflow = workflow_document({"wait": "acme:Wait"}, id="forever", name="Forever")
    assert (await site.post("/api/workflows", json=workflow)).status < 300
    assert (await site.post("/api/users", json={"name": "ann", "password": "a long enough password"})).status == 201
    return (await site.host.services.get(ACCOUNTS).make_token("ann", "test")).token


async def _begin(site: HttpClient, count: int, token: str = TOKEN) -> None:
    """Begin runs that never end."""
    for _ in range(count):
        headers = {"Authorization": f"Bearer {token}"}
        begun = await site.post("/api/prompt", json={"workflowId": "forever"}, headers=headers)
        assert begun.status == 200, await begun.text()


async def test_all_work_of_one_user_agent_tool_or_plugin_is_stopped_at_the_page(studio: Studio) -> None:
    page, site = studio.page, studio.site
    token = await _prepare(site)

    async def stop(view: str, title: str, about: str, result: str) -> None:
        await studio.open(view)
        await expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        await page.get_by_role("button", name="Stop all work").click()
        await expect(page.get_by_role("dialog")).to_contain_text(about)
        await studio.picture(f"stop-{view.split('/')[1]}")
        await page.get_by_role("dialog").get_by_role("button", name="Stop all work").click()
        await expect(page.get_by_text(result)).to_be_visible()

    await _begin(site, 1, token)
    await _begin(site, 2)
    await stop("/settings/users", "Users and roles", "All that ann began", "Work in flight was ended: runs: 1 stopped.")
    await stop("/plugins/acme", "acme", "All runs in this project that use the plugin acme", "ended: runs: 2 stopped.")
    await stop("/tools/text:shout", "Shout", "All calls and tasks of the tool", "Nothing of text:shout was in flight.")
    await stop("/agents/assistant", "Assistant", "the agent assistant does", "Nothing of assistant was in flight.")
    entries = await (await site.get("/api/audit?action=work.stopped")).json()
    assert {one["subject"] for one in entries} == {"ann", "acme", "text:shout", "assistant"}


async def test_the_page_says_what_ended_with_a_user_who_is_removed(studio: Studio) -> None:
    page = studio.page
    await _begin(studio.site, 5, await _prepare(studio.site))
    await studio.open("/settings/users")
    await page.get_by_role("button", name="Remove").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    text = "ann is removed. Work in flight was ended: runs: 1 cancelled, 4 stopped."
    await expect(page.get_by_text(text)).to_be_visible()
    await studio.picture("user-removed")
