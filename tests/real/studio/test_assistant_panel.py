"""The assistant beside the canvas: asked, its changes shown, made, undone, made again, and refused where somebody was
faster."""

from __future__ import annotations

import json
from typing import Any

from playwright.async_api import Page, expect
from studio_bench import Studio, greeting, leave, read_until


def add(local: str, type: str, name: str) -> dict[str, Any]:
    return {"op": "add", "path": "/nodes/-", "value": {"localId": local, "type": type, "displayName": name}}


def edge(local: str) -> dict[str, Any]:
    ends = {"source": "merge", "sourceHandle": "merged_text", "targetLocalId": local, "targetHandle": "text"}
    return {"op": "add", "path": "/edges/-", "value": ends}


SEPARATOR = {"op": "replace", "path": "/nodes/merge/inputValues/separator", "value": "! "}
REPLIES: list[tuple[str, str, list[dict[str, Any]]]] = [
    (
        "Explain this workflow",
        "First [the name](node:trim) loses its blanks, then [all of it](node:merge) is joined.",
        [],
    ),
    ("Count the letters", "I count them: [Letters](node:n).", [add("n", "core:TextLength", "Letters"), edge("n")]),
    ("Make it loud", "In [capitals](node:up) now.", [add("up", "core:UpperCase", "Loud"), edge("up")]),
    ("Use an exclamation mark", "The separator of [the greeting](node:merge) changes.", [SEPARATOR]),
]


async def say(page: Page, text: str) -> None:
    await page.get_by_placeholder("Message the assistant…").fill(text)
    await expect(
        page.get_by_role("button", name="Send", exact=True)
    ).to_be_enabled()  # once it has done what it was asked before
    await page.keyboard.press("Enter")


async def test_the_assistant_changes_what_is_on_the_canvas(studio: Studio) -> None:
    page, nodes = studio.page, studio.page.locator(".vue-flow__node")
    answers = [
        {"when": {"last_contains": asked}, "reply": json.dumps({"reply": reply, "operations": operations})}
        for asked, reply, operations in REPLIES
    ]
    replies = studio.site.host.project.root / "agents" / "assistant.replies.yaml"
    replies.write_text(json.dumps(answers), encoding="utf-8")
    await greeting(studio)
    await page.get_by_role("button", name="Assistant", exact=True).click()
    panel = page.get_by_label("Inspector")

    await panel.get_by_role("button", name="Explain this workflow").click()
    await panel.get_by_role("link", name="the name").click()
    await expect(page.locator(".vue-flow__node[data-id=trim].selected")).to_be_visible()
    await studio.picture("assistant-explains")

    await say(page, "Count the letters")
    await expect(panel.get_by_role("heading", name="Proposed changes")).to_be_visible()
    await expect(page.locator(".node.added").get_by_text("added")).to_be_visible()
    assert (await (await studio.site.get("/api/workflows/greeting/draft")).json()).get("workflow") is None
    await studio.picture("assistant-proposes")
    await panel.get_by_role("button", name="Apply", exact=True).click()
    await expect(panel.get_by_role("heading", name="Changed")).to_be_visible()
    await expect(nodes).to_have_count(5)
    await studio.picture("assistant-changed")
    await panel.get_by_role("button", name="Undo", exact=True).click()
    await expect(nodes).to_have_count(4)
    await leave(page)
    await page.keyboard.press("Control+Shift+z")
    await expect(nodes).to_have_count(5)
    await expect(page.get_by_label("Status").get_by_text("Draft saved", exact=True)).to_be_visible()

    await panel.get_by_label("Show changes before they are made").uncheck()
    await say(page, "Make it loud")
    await expect(panel.get_by_role("heading", name="Changed")).to_be_visible()
    await expect(nodes).to_have_count(6)

    async def places() -> set[tuple[float, float]]:
        boxes = [await nodes.nth(index).bounding_box() for index in range(6)]
        return {(box["x"], box["y"]) for box in boxes if box}

    assert len(await read_until(lambda found: len(found) == 6, places)) == 6, "new nodes are laid out"
    await leave(page)
    await page.keyboard.press("Control+z")
    await expect(nodes).to_have_count(5)

    await panel.get_by_label("Show changes before they are made").check()
    await say(page, "Use an exclamation mark")
    await expect(panel.get_by_role("heading", name="Proposed changes")).to_be_visible()
    await expect(page.get_by_label("Status").get_by_text("Draft saved", exact=True)).to_be_visible()
    draft = await (await studio.site.get("/api/workflows/greeting/draft")).json()
    next(one for one in draft["workflow"]["nodes"] if one["id"] == "merge")["inputValues"]["separator"] = " - "
    body, tag = {"workflow": draft["workflow"], "reason": "by hand"}, {"If-Match": f'"{draft["revision"]}"'}
    assert (await studio.site.request("PUT", "/api/workflows/greeting/draft", json=body, headers=tag)).status == 200
    await expect(panel.get_by_role("button", name="Show on the canvas")).to_be_visible()
    await panel.get_by_role("button", name="Apply", exact=True).click()
    await expect(panel.get_by_role("heading", name="Nothing was changed")).to_be_visible()
    await page.set_viewport_size({"width": 420, "height": 800})
    await page.emulate_media(color_scheme="dark")
    await studio.picture("assistant-refused-narrow")
    now = await (await studio.site.get("/api/workflows/greeting/draft")).json()
    assert " - " in json.dumps(now), "what a person did stays"
    studio.mistakes[:] = [said for said in studio.mistakes if "409" not in said]  # the browser's word for the refusal
