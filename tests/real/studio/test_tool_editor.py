"""Tools are made in the page of a script and of a node, edits of one do not collide; knowledge is written and found."""

from __future__ import annotations

import asyncio
import json

from playwright.async_api import Page, Route, expect
from studio_bench import Studio, answered_late

CODE = '''def greet(name: str, times: int = 1) -> str:
    """Greet somebody.

    Args:
        name: Whom to greet.
    """
    return "Hello, " * times + name
'''


async def write(page: Page, field: str, text: str) -> None:
    """Replace what is in a field of code."""
    await page.get_by_role("textbox", name=field, exact=True).click()
    await page.keyboard.press("Control+A")
    await page.keyboard.insert_text(text)


async def cut_off(route: Route) -> None:
    """Let a request come to the server, and its answer to nobody."""
    await route.fetch()
    await route.abort()


async def test_tools_and_knowledge_are_written_and_kept(studio: Studio) -> None:
    await _script_becomes_a_tool(studio)
    await _node_becomes_a_tool(studio)
    await _knowledge_is_written_and_found(studio)


async def _script_becomes_a_tool(studio: Studio) -> None:
    page, root = studio.page, studio.site.host.project.root
    await studio.open("/tools")
    await page.get_by_role("button", name="New tool").click()
    await page.get_by_role("menuitem", name="From a script").click()
    await expect(page.get_by_role("heading", name="New tool from a script")).to_be_visible()
    await page.get_by_label("Id", exact=True).fill("text:greet")
    await expect(page.get_by_label("Script", exact=True)).to_have_value("text-greet.py")
    await expect(page.get_by_label("Function", exact=True)).to_have_value("run")
    await write(page, "Code", CODE)
    name = page.get_by_role("textbox", name="Name", exact=True)
    async with answered_late(page, "**/api/tool-draft?*", "POST") as drafted:
        await page.get_by_role("button", name="Draft from the code").click()
        await drafted.wait()
        await name.fill("Greeter")
    await expect(page.get_by_label("Function", exact=True)).to_have_value("greet")
    await expect(name).to_have_value("Greeter")  # what is typed meanwhile stays
    await expect(page.get_by_label("What it does")).to_have_value("Greet somebody.")
    row = page.get_by_role("group", name="name", exact=True)
    await expect(row.get_by_label("What it means")).to_have_value("Whom to greet.")

    await page.get_by_label("Hosts in the network").fill("example.com")
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_text("is not granted: host 'example.com'")).to_be_visible()
    await studio.picture("tool-editor")
    await page.get_by_label("Hosts in the network").fill("")
    await write(page, "Code", CODE.replace("greet(", "greet(("))
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_text("1: invalid syntax")).to_be_visible()
    await write(page, "Code", CODE)
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
    await page.get_by_label("name", exact=True).last.fill("Ada")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.get_by_text("Hello, Ada")).to_be_visible()
    assert not (root / "tools" / "text-greet.tool.json").exists()

    async with answered_late(page, "**/api/tool-files/*") as saved:
        await page.get_by_role("button", name="Save").click()
        await saved.wait()
        await name.fill("Greeter of all")
    await expect(page.get_by_text("Saved.", exact=True)).to_be_visible()
    await expect(page.get_by_text("changes of yours that were not saved")).to_be_visible()
    await expect(name).to_have_value("Greeter of all")
    assert (root / "scripts" / "text-greet.py").read_text() == CODE
    await page.route("**/api/tool-files/*", cut_off)  # the server saves it, and nobody hears of that
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    await page.unroute_all()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_have_count(0)
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()
    studio.mistakes.clear()  # the browser names the requests that were cut and refused
    file = root / "tools" / "text-greet.tool.json"
    assert json.loads(file.read_text())["implementation"]["entryPoint"] == "greet"
    await page.get_by_role("region", name="Tools of the project").get_by_role("link", name="text:greet").click()
    await page.get_by_role("button", name="Add to agent").click()
    await page.get_by_role("dialog").get_by_role("button", name="Mira").click()
    await expect(page.get_by_text("Mira may call text:greet now.")).to_be_visible()

    await page.get_by_role("link", name="Edit", exact=True).click()
    await page.get_by_label("What it does").fill("Greets anybody.")
    file.write_text(file.read_text().replace("Greet somebody.", "Greets nobody."))
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("Somebody else has changed this tool")
    studio.mistakes.clear()  # the browser names the refused request
    await page.reload()
    await expect(page.get_by_text("changes of yours that were not saved")).to_be_visible()
    await expect(page.get_by_label("What it does")).to_have_value("Greets anybody.")
    await page.get_by_role("button", name="Discard them").click()
    await expect(page.get_by_label("What it does")).to_have_value("Greets nobody.")
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("link", name="text:greet")).to_have_count(0)
    await expect(page.get_by_role("button", name="Call", exact=True)).to_be_visible()  # of the tool that is first now
    assert not file.exists() and not (root / "scripts" / "text-greet.py").exists()


async def _node_becomes_a_tool(studio: Studio) -> None:
    page, root, gone = studio.page, studio.site.host.project.root, asyncio.Event()

    async def late(route: Route) -> None:
        await gone.wait()
        await route.continue_()

    await studio.open("/tools?new=node")
    await page.get_by_label("Id", exact=True).fill("text:loud")
    await page.get_by_label("Type of the node").fill("core:UpperCase")
    await page.get_by_label("Type of the node").press("Tab")
    await expect(page.get_by_text("They follow from its inputs.")).to_be_visible()
    await page.get_by_label("text", exact=False).last.fill("hello")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.get_by_text("HELLO")).to_be_visible()
    await page.route("**/api/tool-files*", late)
    await expect(page.get_by_text("Saved.")).to_have_count(0)  # of the tool before
    await page.keyboard.press("Control+s")
    await expect(page.get_by_text("Saved.")).to_be_visible()
    await expect(page.get_by_text("It can be used; see the remarks below.")).to_be_visible()
    await expect(page.get_by_text("it has no description: language models are not told").first).to_be_visible()
    await studio.picture("tool-remarks")
    made = json.loads((root / "tools" / "text-loud.tool.json").read_text())
    assert made["implementation"]["nodeType"] == "core:UpperCase"
    await studio.open("/knowledge")
    async with page.expect_response("**/api/tool-files*"):
        gone.set()  # who has gone elsewhere is not taken back


async def _knowledge_is_written_and_found(studio: Studio) -> None:
    page, root = studio.page, studio.site.host.project.root
    await page.get_by_role("button", name="New base").click()
    await page.get_by_label("Name", exact=True).fill("Lore of the valley")
    await page.get_by_role("button", name="Make it").click()
    await page.get_by_role("button", name="New entry").click()
    await page.get_by_label("Name", exact=True).fill("Dragon")
    await page.get_by_label("Text", exact=True).fill("A dragon.")
    await page.get_by_label("Keywords").fill("dragon, red scales")
    async with answered_late(page, "**/entries?*", "POST") as made:
        await page.get_by_role("button", name="Save").click()
        await made.wait()
        await page.get_by_label("Text", exact=True).fill("A red dragon lives on Ember Hill.")
        await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="Dragon")).to_be_visible()
    await expect(page.get_by_label("Text", exact=True)).to_have_value("A red dragon lives on Ember Hill.")
    file = root / "knowledge" / "lore-of-the-valley.json"
    (entry,) = json.loads(file.read_text())["entries"]
    assert entry["activation_criteria"]["keywords"] == ["dragon", "red scales"]
    await page.get_by_label("Text", exact=True).fill("It is green.")
    await studio.picture("entry")
    file.write_text(file.read_text().replace("A red dragon", "A blue dragon"))
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("Somebody else has changed this entry")
    studio.mistakes.clear()  # the browser names the refused request
    await page.get_by_role("button", name="Reload").click()
    await expect(page.get_by_label("Text", exact=True)).to_have_value("A blue dragon lives on Ember Hill.")
    await page.get_by_role("link", name="All entries of Lore of the valley").click()
    async with answered_late(page, "**/knowledge-search?*", "POST") as searched:
        await page.get_by_label("Search in this base").fill("nobody")
        await page.get_by_label("Search in this base").press("Enter")
        await searched.wait()
        await page.get_by_label("Search in this base").fill("ember")
        await page.get_by_label("Search in this base").press("Enter")
        await expect(page.get_by_role("region", name="Found").get_by_role("link", name="Dragon")).to_be_visible()
    await page.get_by_role("region", name="Found").get_by_role("link", name="Dragon").click()
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("There are no entries yet.")).to_be_visible()
    await studio.picture("base")
