"""Views that the documentation shows, each brought about as a person would: pictures are made of them
(`pictures_of_views.py`), and a test walks them through windows, looks and languages."""

from __future__ import annotations

import asyncio
import json
import re
import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from helpers.folder_plugins import write_plugin
from helpers.workflow_documents import function, workflow_document
from playwright.async_api import expect
from studio_bench import Studio

from tavern_host.testing.http import HttpClient
from tests.characters.card_files import V3
from tests.knowledge.cards import chunk, text_chunk
from tests.real.studio.test_dropping import drop

NODES = '''
import asyncio
from typing import Annotated, Any

from tavern_host import Slot, node


@node(type="Weather", icon="globe")
async def weather(place: str) -> Annotated[str, Slot(key="report")]:
    """Ask for the weather of a place."""
    await asyncio.sleep(0.9)
    return f"Rain until noon in {place}, then sun"


@node(type="Ferries", icon="clock")
async def ferries(place: str) -> Annotated[list[Any], Slot(key="rows")]:
    """List the ferries of a place."""
    await asyncio.sleep(0.5)
    return [{"leaves": "08:10", "to": "Silver Hill"}, {"leaves": "11:40", "to": "The valley"}]


@node(type="Notice", icon="message")
async def notice(report: str, rows: list[Any]) -> Annotated[str, Slot(key="text")]:
    """Write a notice for the guests."""
    await asyncio.sleep(0.7)
    return f"{report}. Ferries: " + ", ".join(f"{row['leaves']} to {row['to']}" for row in rows)


@node(type="Guests", icon="table")
async def guests(count: int) -> Annotated[list[Any], Slot(key="rows")]:
    """Name the guests."""
    names = ["Ada", "Bob", "Mira", "Tomas", "Lin", "Noor"]
    return [{"guest": names[at % 6], "room": 100 + at, "nights": 1 + at * 5 % 7} for at in range(count)]
'''
CALLED = """
from tavern_host import hookimpl


@hookimpl
def tavern_before_tool_call(request):
    if request.tool_id == "text:shout":
        raise ValueError("nobody shouts in the inn after ten")
"""
MORNING = function(
    "Morning notice",
    {"weather": "acme:Weather", "ferries": "acme:Ferries", "notice": "acme:Notice", "title": "core:UpperCase"},
    *(
        "in.place > weather.place",
        "in.place > ferries.place",
        "in.place > title.text",
        "weather.report > notice.report",
    ),
    *("ferries.rows > notice.rows", "notice.text > out.notice", "title.text > out.title"),
    takes={"place": "STRING"},
    gives={"title": "STRING", "notice": "STRING"},
)
ARRIVALS = function(
    "Arrivals",
    {"guests": "acme:Guests"},
    *("in.count > guests.count", "guests.rows > out.guests", "in.picture > out.picture"),
    takes={"count": "INTEGER", "picture": "BINARY"},
    gives={"picture": "BINARY", "guests": "ARRAY"},
)
ARRIVALS["interfaceInputs"]["count"] |= {"required": True, "config": {"min": 1, "max": 20}, "displayName": "How many"}
ARRIVALS["interfaceInputs"]["picture"] |= {"displayName": "Picture of the day"}
KINDS = ("core:UpperCase", "acme:Weather", "core:Trim")


def sunset(*more: bytes) -> bytes:
    """Return a picture of a sun above water as a PNG, with more chunks in it."""
    lines = []
    for y in range(120):
        line = [0]
        for x in range(200):
            near = (x - 100) ** 2 + (y - 62) ** 2 < 900
            shade = (250, 214, 120) if near and y < 70 else (228 - y, 120 + y // 2, 90 + y)
            line += shade if y < 70 else [value // (2 if (x // 9 + y // 3) % 3 else 1) for value in shade]
        lines.append(bytes(line))
    size = struct.pack(">2I5B", 200, 120, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", size), *more, chunk(b"IDAT", zlib.compress(b"".join(lines))), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


async def _with_nodes(site: HttpClient) -> None:
    root = site.host.project.root
    write_plugin(root / "plugins" / "acme", {"nodes/__init__.py": NODES}, nodes={"entry": "./nodes"})
    (root / "workflows" / "morning.json").write_text(json.dumps(MORNING))
    (root / "workflows" / "arrivals.json").write_text(json.dumps(ARRIVALS))
    await site.host.reload()
    await site.host.grant("acme")


async def run_timeline(studio: Studio) -> None:
    """A run in time: nodes beside one another, one after the other, and a result of the cache."""
    await _with_nodes(studio.site)
    asked = {"workflowId": "morning", "inputs": {"place": "the bay"}}
    run = (await (await studio.site.post("/api/prompt", json=asked)).json())["promptId"]
    await studio.open(f"/runs/{run}")
    page = studio.page
    await expect(page.get_by_text("Nodes in time")).to_be_visible()
    await expect(page.get_by_text("done", exact=True).first).to_be_visible()
    await page.reload()
    await expect(page.get_by_text("Nodes in time")).to_be_visible()


async def panel(studio: Studio) -> None:
    """A published panel with a form, a table, a picture and a character to talk to."""
    await _with_nodes(studio.site)
    desk = {"id": "desk", "name": "Front desk", "workflows": ["arrivals"], "agents": ["companion"]}
    made = await studio.site.post("/api/panels", json=desk)
    assert made.status == 201, await made.text()
    page = studio.page
    await studio.open("/panels/desk/edit")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_text("Published", exact=True)).to_be_visible()
    await studio.open("/panels/desk")
    await page.get_by_label("How many").first.fill("5")
    file: Any = {"name": "bay.png", "mimeType": "image/png", "buffer": sunset()}
    await page.locator("[data-input=picture] input[type=file]").set_input_files(file)
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.locator("[data-output=guests] tbody tr")).to_have_count(5)
    await expect(page.locator("[data-output=picture] img")).to_be_visible()
    await page.get_by_placeholder("Message").first.fill("Is the kitchen open?")
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.assistant")).to_be_visible()
    await expect(page.locator(".message.assistant").get_by_text("I am a scripted model")).to_be_visible()
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)


async def character_chat(studio: Studio) -> None:
    """A character that came as a card, and the second of its answers to one message."""
    replies = studio.site.host.project.root / "agents" / "assistant.replies.yaml"
    said = "*She points at the kettle.* Soup it is. **Silver hill** leeks, and bread from this morning."
    replies.write_text(f"- {json.dumps({'when': {'contains': 'soup'}, 'reply': said})}\n" + replies.read_text())
    page = studio.page
    await studio.site.request("PUT", "/api/persona", json={"name": "Ada", "description": "A baker."})
    await studio.open("/tools")
    await expect(page.get_by_role("heading", name="Tools")).to_be_visible()
    await drop(page, ("mira.png", sunset(text_chunk("ccv3", V3))))
    await expect(page.get_by_text("Come in, Ada!")).to_be_visible()
    await page.get_by_placeholder("Message Mira Vale…").fill("Is there soup?")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Soup it is.")).to_be_visible()
    await page.get_by_role("button", name="Answer again").last.click()
    await expect(page.get_by_text("2 of 2")).to_be_visible()
    await expect(page.get_by_role("button", name="Answer again").last).to_be_visible()


async def scene(studio: Studio) -> None:
    """A scene in the chat: two characters speak in turn, and a person among them."""
    page = studio.page
    await studio.open("/chat")
    await page.get_by_role("button", name=re.compile("2 agents")).click()
    await expect(page.get_by_role("button", name="Let them continue")).to_be_visible()
    await page.locator("textarea").last.fill("Good evening, all.")
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.own").get_by_text("Good evening, all.")).to_be_visible()
    await expect(page.get_by_role("button", name="Let them continue")).to_be_visible()


async def large_canvas(studio: Studio) -> None:
    """A workflow of 300 nodes of several kinds, seen as a whole, with its minimap."""
    await _with_nodes(studio.site)
    nodes: dict[str, Any] = {}
    for at in range(300):
        column, row = at % 20, at // 20
        kind = KINDS[(column + row) % len(KINDS)] if column else "core:Text"
        nodes[f"n{at}"] = {"type": kind, "position": {"x": column * 300, "y": row * 200}}
    texts = {"core:Text": "text", "core:UpperCase": "text", "core:Trim": "text", "acme:Weather": "report"}
    takes = {"acme:Weather": "place"}
    edges = []
    for at in range(299):
        if at % 20 != 19:
            source, target = nodes[f"n{at}"]["type"], nodes[f"n{at + 1}"]["type"]
            edges.append(f"n{at}.{texts[source]} > n{at + 1}.{takes.get(target, 'text')}")
    document = workflow_document(nodes, *edges, name="Large")
    (studio.site.host.project.root / "workflows" / "large.json").write_text(json.dumps(document))
    await studio.open("/workflows/large")
    await expect(studio.page.locator(".stand-in")).to_have_count(300)


async def plugin_calls(studio: Studio) -> None:
    """What a plugin does now, with a hook of its that failed."""
    site, page = studio.site, studio.page
    root = site.host.project.root
    permissions = {"hooks": ["hook:server:tool:before-call"]}
    write_plugin(root / "plugins" / "night-rules", {"__init__.py": CALLED}, permissions=permissions)
    await site.host.reload()
    await site.host.grant("night-rules")
    await studio.open("/plugins/night-rules")
    await page.get_by_role("button", name="Follow", exact=True).click()
    await expect(page.get_by_text("Nothing of it was called yet.")).to_be_visible()
    async with asyncio.timeout(60):
        while "plugin.traced" not in [one["action"] for one in await (await site.get("/api/audit")).json()]:
            await asyncio.sleep(0.05)
    for tool, arguments in (("system:get_current_time", {}), ("text:shout", {"text": "Ahoy"})):
        await site.post("/api/tools/execute", json={"toolId": tool, "arguments": arguments})
    calls = page.get_by_label("What it does now")
    await expect(calls.get_by_text("Failed: ValueError")).to_be_visible()
    await calls.scroll_into_view_if_needed()


async def project_import(studio: Studio) -> None:
    """A whole project that was dropped on the page, before any of it comes."""
    whole = await (await studio.site.get("/api/project-archive")).json()
    changed = json.loads(whole["files"]["workflows/greeting.json"]) | {"name": "Another greeting"}
    whole["files"]["workflows/greeting.json"] = json.dumps(changed)
    whole["files"]["workflows/evening.json"] = json.dumps(changed | {"name": "Evening"})
    whole["files"]["agents/cook.json"] = whole["files"]["agents/mira.json"]
    page = studio.page
    await studio.open("/")
    await expect(page.get_by_role("button", name="New workflow").first).to_be_visible()
    await drop(page, ("harbour.json", json.dumps(whole)))
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading", name="Import the project harbour.json")).to_be_visible()
    await dialog.get_by_text("workflows/", exact=True).click()
    await expect(dialog.get_by_text("different, stays", exact=True)).to_be_visible()


VIEWS: dict[str, Callable[[Studio], Awaitable[None]]] = {
    "run-timeline": run_timeline,
    "panel": panel,
    "character-chat": character_chat,
    "scene": scene,
    "large-canvas": large_canvas,
    "plugin-calls": plugin_calls,
    "project-import": project_import,
}
"""The views by the names of their pictures; each takes the page of a fresh project with the sample."""
