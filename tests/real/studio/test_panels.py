"""A workflow as an application: a panel is made of it, arranged and published, and used on a phone by somebody who may
run panels and nothing else."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from helpers.folder_plugins import write_plugin
from helpers.workflow_documents import function
from playwright.async_api import Browser, Page, expect
from studio_bench import Studio, drag, show

from tavern_host import Host
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.testing.http import HttpClient, served

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mNgaPiPFTEMLQkA5sVfweSXHmUAAAAASUVORK5CYII="
)
NODES = """
from typing import Annotated, Any

from tavern_host import NodeContext, Slot, node


@node(type="Rows")
async def rows(count: int) -> Annotated[list[Any], Slot(key="rows")]:
    return [{"guest": f"Guest {number}", "nights": number} for number in range(1, count + 1)]
"""
GUESTS = function(
    "Guests",
    {"rows": "acme:Rows"},
    *("in.count > rows.count", "rows.rows > out.table", "in.picture > out.picture"),
    takes={"count": "INTEGER", "picture": "BINARY"},
    gives={"picture": "BINARY", "table": "ARRAY"},
)
GUESTS["interfaceInputs"]["count"] |= {"required": True, "config": {"min": 1, "max": 20}, "displayName": "How many"}


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path) -> AsyncIterator[HttpClient]:
    """Serve a project whose workflow takes a number and a picture, and gives the picture and a table."""
    async with Host(tmp_path / "inn", sample=True) as host, served(host) as found:
        (tmp_path / "inn/workflows/guests.json").write_text(json.dumps(GUESTS))
        write_plugin(tmp_path / "inn/plugins/acme", {"nodes/__init__.py": NODES}, nodes={"entry": "./nodes"})
        await host.reload()
        await host.grant("acme")
        yield found


async def _place(page: Page, element: str) -> tuple[float, float]:
    box = await page.locator(f"[data-element={element}]").bounding_box()
    assert box is not None
    return box["x"], box["y"]


async def test_a_panel_is_made_arranged_and_used_by_a_guest_on_a_phone(studio: Studio, browser: Browser) -> None:
    page, site = studio.page, studio.site
    await page.goto(f"{site.client.make_url('/')}#/panels")
    await page.get_by_role("button", name="New panel").click()
    await page.get_by_label("Name", exact=True).fill("Front desk")
    await page.get_by_role("checkbox", name="Guests").check()
    await page.get_by_role("checkbox", name="companion").check()
    await page.get_by_role("button", name="Make it").click()
    await expect(page.get_by_role("heading", name="Front desk")).to_be_visible()
    form = page.locator("[data-element=guests]")
    await expect(form.get_by_text("How many")).to_be_visible()
    await studio.picture("panel-editor")

    talk = page.locator("[data-element=companion]")
    await drag(page, talk.locator("[data-move]"), (-560, 0))
    assert (await _place(page, "companion"))[1] < (await _place(page, "guests"))[1], "it was dragged above"
    await form.focus()
    await form.press("ArrowUp")
    assert (await _place(page, "companion"))[1] > (await _place(page, "guests"))[1], "the keyboard moves, too"
    await talk.focus()
    for _ in range(7):
        await talk.press("ArrowRight")
    await talk.press("Shift+ArrowUp")
    await studio.picture("panel-arranged")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_text("Published", exact=True)).to_be_visible()

    await site.host.services.get(ACCOUNTS).add_user("eve", "good evening", role="guest")
    token = (await site.host.services.get(ACCOUNTS).make_token("eve", "phone")).token
    phone = await browser.new_context(viewport={"width": 420, "height": 900})
    guest = await phone.new_page()
    refused: list[str] = []
    guest.on("response", lambda answer: refused.append(answer.url) if answer.status >= 400 else None)
    await guest.goto(f"{site.client.make_url('/')}?token={token}#/panels/Front-desk")
    await expect(guest.get_by_role("heading", name="Front desk")).to_be_visible()
    await expect(guest.get_by_role("link", name="Edit")).to_have_count(0)
    for view in ("Workflows", "Tools", "Runs", "Plugins"):
        await expect(guest.get_by_role("link", name=view, exact=True)).to_have_count(0)

    await guest.get_by_role("button", name="Run", exact=True).click()
    await expect(guest.locator("[data-input=count]").get_by_role("alert")).to_contain_text("required")
    await guest.get_by_label("How many").first.fill("3")
    await guest.locator("[data-input=picture] input[type=file]").set_input_files(
        {"name": "pixel.png", "mimeType": "image/png", "buffer": PIXEL}
    )
    await expect(guest.locator("[data-input=picture] img")).to_be_visible()
    await guest.get_by_role("button", name="Run", exact=True).click()
    await expect(guest.locator("[data-output=table] tbody tr")).to_have_count(3)
    assert await guest.locator("[data-output=picture] img").evaluate("one => one.naturalWidth") == 8
    await Studio(site, guest, []).picture("panel-phone")
    await guest.reload()
    await expect(guest.locator("[data-output=table] tbody tr")).to_have_count(3)  # the last result is still there
    await expect(guest.get_by_role("button", name="Attach pictures or texts")).to_have_count(0)
    await guest.get_by_placeholder("Message").first.fill("Good evening!")
    await guest.keyboard.press("Enter")
    await expect(guest.locator(".message.assistant")).to_be_visible()
    assert [url for url in refused if "/ws" not in url and "/api/panels/Front-desk/elements" not in url] == []
    await guest.goto(f"{site.client.make_url('/')}")
    await expect(guest.get_by_role("heading", name="Panels")).to_be_visible()
    await phone.close()

    how = {"viewport": {"width": 1920, "height": 1080}, "color_scheme": "dark", "locale": "zh-CN"}
    wall = await browser.new_context(**how)
    large = await show(wall, site)
    await large.page.goto(f"{site.client.make_url('/')}#/panels/Front-desk")
    assert (await _place(large.page, "companion"))[1] == (await _place(large.page, "guests"))[1], "side by side"
    await large.picture("panel-wall")
    await wall.close()


async def test_the_assistant_shows_a_change_of_a_panel_before_it_is_made(studio: Studio) -> None:
    page, host = studio.page, studio.site.host
    operations = [
        {"op": "add", "path": "/elements/-", "value": {"localId": "t", "kind": "text", "text": "Ring twice."}},
        {"op": "add", "path": "/elements/t/y", "value": 0},
        {"op": "add", "path": "/elements/t/x", "value": 0},
    ]
    answer = {"when": {}, "reply": json.dumps({"reply": "A note stands above.", "operations": operations})}
    (host.project.root / "agents" / "assistant.replies.yaml").write_text(json.dumps([answer]), encoding="utf-8")
    made = await studio.site.post("/api/panels", json={"id": "desk", "name": "Desk", "workflows": ["greeting"]})
    assert made.status == 201
    await studio.open("/panels/desk/edit")
    await page.get_by_role("button", name="Assistant", exact=True).click()
    await page.get_by_placeholder("Message the assistant…").fill("Put a note above")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Proposed changes")).to_be_visible()
    note = page.locator("[data-element=text]")
    await expect(note.get_by_text("Ring twice.")).to_be_visible()
    await expect(page.locator(".element.marked")).to_have_count(1)
    await studio.picture("panel-proposed")
    saved = await (await studio.site.get("/api/panels/desk")).json()
    assert len(saved["elements"]) == 1, "it is shown, and not made yet"
    await page.get_by_role("button", name="Apply", exact=True).click()
    await expect(page.get_by_role("heading", name="Proposed changes")).to_have_count(0)
    saved = await (await studio.site.get("/api/panels/desk")).json()
    assert [one["kind"] for one in saved["elements"]] == ["workflow", "text"]
    await page.get_by_role("button", name="Undo", exact=True).click()
    await expect(note).to_have_count(0)
