"""Walks without help: few actions from an empty project to an exported workflow, and a workflow by keyboard alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect
from studio_bench import WIDE, Studio, canvas_node, node_library, show

from tavern_host import Host
from tavern_host.testing.http import served

MOST_ACTIONS = 25


@pytest_asyncio.fixture(loop_scope="session")
async def newcomer(browser: Browser, tmp_path: Path) -> AsyncIterator[Studio]:
    """Return the page on an empty project."""
    async with Host(tmp_path / "empty") as host, served(host) as site:
        context = await browser.new_context(**WIDE)
        studio = await show(context, site)
        yield studio
        await context.close()
        assert studio.mistakes == []


class Counted:
    """What a person does at a page, counted: each click, text, key and drag is one action."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.actions = 0

    async def click(self, what: Locator) -> None:
        self.actions += 1
        await what.click()

    async def write(self, what: Locator, text: str) -> None:
        self.actions += 1
        await what.fill(text)

    async def press(self, key: str) -> None:
        self.actions += 1
        await self._page.keyboard.press(key)

    async def drag(self, what: Locator, to: Locator) -> None:
        self.actions += 1
        await what.drag_to(to)


async def test_a_newcomer_draws_runs_repairs_and_exports_a_workflow_in_few_actions(newcomer: Studio) -> None:
    page = newcomer.page
    person = Counted(page)
    await person.click(page.get_by_role("button", name="New workflow").first)
    await person.write(page.get_by_label("Name"), "First")
    await person.press("Enter")
    closed = page.get_by_role("button", name="Open the node library")
    await person.click(closed)
    library = await node_library(page)
    for words in ("Text", "Parse JSON"):
        await person.write(page.get_by_label("Search nodes…"), words)
        await person.click(library.get_by_role("button", name=words, exact=True))
    text, parse, output = (canvas_node(page, name) for name in ("text", "parse-json", "output"))
    await person.drag(text.locator(".source").first, parse.locator(".target").first)
    await person.drag(parse.locator(".source").first, output.locator(".target").first)
    await expect(page.locator(".vue-flow__edge")).to_have_count(2)
    field = page.get_by_label("Inspector").get_by_label("text").first
    await person.click(text.locator("header"))
    await person.write(field, '{"name": ')
    await person.press("Control+Enter")
    await expect(parse.locator(".fault")).to_be_visible()
    await newcomer.picture("walk-failed")
    await person.write(field, '{"name": "Ada"}')
    await person.press("Control+Enter")
    await expect(parse.locator(".result")).to_contain_text("Ada")
    await newcomer.picture("walk-repaired")
    await person.press("Control+k")
    await person.write(page.get_by_role("combobox", name="Commands"), "Export the workflow")
    async with page.expect_download() as downloading:
        await person.press("Enter")
    exported = json.loads(Path(await (await downloading.value).path()).read_text())
    assert {node["type"] for node in exported["nodes"]} >= {"core:Text", "core:ParseJson", "core:GroupOutput"}
    assert person.actions <= MOST_ACTIONS, person.actions


async def _reach_text(page: Page) -> None:
    """Press Tab until a field for text of several lines has the focus."""
    for _ in range(120):
        if await page.evaluate("() => document.activeElement?.tagName === 'TEXTAREA'"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError("Tab does not lead to the field")


async def _command(page: Page, words: str) -> None:
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Commands")).to_be_focused()
    await page.keyboard.type(words)
    await page.keyboard.press("Enter")


async def test_eight_nodes_are_drawn_run_repaired_and_continued_by_keyboard_alone(newcomer: Studio) -> None:
    page, keyboard = newcomer.page, newcomer.page.keyboard
    await _command(page, "New workflow")
    await expect(page.get_by_label("Name")).to_be_focused()
    await keyboard.type("By keyboard")
    await keyboard.press("Enter")
    await expect(page.locator(".vue-flow__node")).to_have_count(2)
    target = "output"
    names = ["Parse JSON", "To JSON", "Parse JSON", "Trim", "Upper case", "Trim", "Text"]
    ids = ["parse-json", "to-json", "parse-json-2", "trim", "upper-case", "trim-2", "text"]
    for number, (name, node) in enumerate(zip(names, ids, strict=True), 1):
        await _command(page, "Add a node")
        await expect(page.get_by_role("dialog").get_by_label("Search nodes…")).to_be_focused()
        await keyboard.type(name)
        await expect(page.get_by_role("dialog").get_by_text(name, exact=True).first).to_be_visible()
        await keyboard.press("Enter")
        await expect(page.locator(".vue-flow__node")).to_have_count(2 + number)
        await _command(page, "Connect to…")
        await expect(page.get_by_role("dialog").get_by_label("Filter…")).to_be_focused()
        await keyboard.type(target)
        await keyboard.press("Enter")
        await expect(page.locator(".vue-flow__edge")).to_have_count(number)
        target = node
    await _reach_text(page)
    await keyboard.type('{"a": ')
    await keyboard.press("Control+Enter")
    await expect(page.locator(".node.error")).to_have_count(1)
    await newcomer.picture("keyboard-failed")
    await _reach_text(page)
    await keyboard.press("Control+a")
    await keyboard.type('{"A": 1}')
    await _command(page, "Continue")
    await expect(page.locator(".node.error")).to_have_count(0)
    await expect(page.locator(".node.complete")).to_have_count(9)  # the input is one too
    await newcomer.picture("keyboard-continued")
