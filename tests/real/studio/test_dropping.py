"""What was exported is dropped on the page, in each of its forms."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

from helpers.waiting import until
from playwright.async_api import Page, expect
from studio_bench import Studio, answered_late

COMFYUI = Path(__file__).parents[2] / "importers" / "files" / "comfy_ui.json"
DROP = """async ([files, on]) => {
  const data = new DataTransfer();
  for (const [name, text] of files)
    data.items.add(new File([Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0))], name));
  document.querySelector(on).dispatchEvent(new DragEvent("drop", {
    dataTransfer: data, bubbles: true, cancelable: true
  }));
}"""


async def drop(page: Page, *files: tuple[str, str | bytes], on: str = "main, .view") -> None:
    encoded = [
        (name, base64.b64encode(content.encode() if isinstance(content, str) else content).decode())
        for name, content in files
    ]
    await page.evaluate(DROP, [encoded, on])


async def test_dropped_workflows_are_opened_and_other_files_refused(studio: Studio) -> None:
    page = studio.page
    kept = await (await studio.site.get("/api/workflows/greeting")).json()
    await studio.open("/")
    await expect(page.get_by_role("button", name="New workflow").first).to_be_visible()
    await drop(page, ("greeting.json", json.dumps(kept)))
    await expect(page.locator(".vue-flow__node")).to_have_count(4)
    await expect(page).to_have_url(re.compile("/workflows/Greeting$"))
    assert await (await studio.site.get("/api/workflows/greeting")).json() == kept, "nothing was overwritten"

    await drop(page, ("House plan.json", json.dumps({"nodes": [], "edges": []})))
    await expect(page.get_by_label("Name of the workflow")).to_have_value("House plan")

    await studio.open("/tools")
    await expect(page.get_by_role("heading", name="Tools")).to_be_visible()
    said = {
        "{": "is not JSON",
        "[]": "it holds a list",
        '{"edges": []}': "an object with 'edges'",
        "null": "it holds no content",
    }
    for number, (text, why) in enumerate(said.items()):
        await drop(page, (f"notes{number}.json", text))
        await expect(page.get_by_text(re.compile(f"notes{number}.json.*{why}")).first).to_be_visible()
    await drop(page, ("picture.png", "…"))
    await expect(page.get_by_text(re.compile("picture.png is no file")).first).to_be_visible()
    found = await (await studio.site.get("/api/workflows")).json()
    assert not [one["id"] for one in found if one["id"].startswith("notes")]
    await until(lambda: len(studio.mistakes) == 5, "the browser notes that the server refused them")
    studio.mistakes.clear()


async def test_why_a_file_is_refused_stays_when_a_list_comes_and_opens_its_first_item(studio: Studio) -> None:
    page = studio.page
    await studio.open("/")
    async with answered_late(page, "**/api/tools?*", "GET") as asked:
        await page.goto(f"{studio.site.client.make_url('/')}#/tools")
        await asked.wait()
        await drop(page, ("notes.json", "[]"))
        await expect(page.get_by_text(re.compile("notes.json.*it holds a list")).first).to_be_visible()
    await expect(page).to_have_url(re.compile("/tools/."))
    await expect(page.get_by_text(re.compile("notes.json.*it holds a list")).first).to_be_visible()
    await until(lambda: studio.mistakes, "the browser notes that the server refused it")
    studio.mistakes.clear()


async def test_a_graph_of_another_program_is_drawn_and_what_is_to_do_is_said(studio: Studio) -> None:
    page = studio.page
    await studio.open("/")
    await drop(page, ("图.json", COMFYUI.read_bytes()))
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading", name="Imported: ComfyUI workflow")).to_be_visible()
    await expect(dialog.get_by_text("7 of its nodes are placeholders")).to_be_visible()
    await expect(dialog.get_by_text("SaveImage (9) was muted")).to_be_visible()
    await studio.picture("import-report")
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.locator(".vue-flow__node .missing-type")).to_have_count(7)
    await expect(page.get_by_text("Stands for KSampler of ComfyUI")).to_be_visible()
    await expect(page.locator(".vue-flow__edge")).to_have_count(9)
    await studio.picture("import-comfyui")


async def test_a_picture_of_a_workflow_is_the_workflow(studio: Studio) -> None:
    page = studio.page
    await studio.open("/")
    card = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="Greeting"))
    await expect(card.locator(".sketch rect")).to_have_count(4)
    await studio.picture("home-sketches")
    await card.get_by_role("button", name="What can be done with Greeting").click()
    async with page.expect_download() as downloading:
        await page.get_by_role("menuitem", name="Export as a picture").click()
    picture = Path(await (await downloading.value).path()).read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 4000
    await drop(page, ("whatever.png", picture))
    await expect(page.locator(".vue-flow__node")).to_have_count(4)
    await expect(page).to_have_url(re.compile("/workflows/Greeting$"))


async def test_conversations_and_agents_are_kept_under_ids_of_their_own(studio: Studio) -> None:
    page = studio.page
    await studio.open("/chat?agent=assistant")
    await page.get_by_placeholder("Message Assistant…").fill("Hello there")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("I am a scripted model")).to_be_visible()
    (one,) = await (await studio.site.get("/api/histories")).json()
    exported = await (await studio.site.get(f"/api/histories/{one['id']}/export")).json()
    agent = await (await studio.site.get("/api/agents/assistant")).json()

    await drop(page, ("talk.json", json.dumps(exported)))
    await expect(page).to_have_url(re.compile(f"/chat/{one['id']}-2$"))
    await expect(page.get_by_text("I am a scripted model")).to_be_visible()
    first, *_ = await (await studio.site.get(f"/api/histories/{one['id']}-2/messages")).json()
    await page.goto(f"{page.url}?message={first['id']}")
    await expect(page.locator(".message.found")).to_have_text(re.compile("Hello there"))

    await drop(page, ("assistant.agent.json", json.dumps(agent)))
    await expect(page).to_have_url(re.compile("/agents/assistant-2$"))
    assert (await (await studio.site.get("/api/agents/assistant")).json()) == agent


async def test_a_project_is_exported_and_shown_before_it_comes(studio: Studio) -> None:
    page = studio.page
    await studio.open("/")
    await page.get_by_role("button", name="Export project").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text("workflows/")).to_be_visible()
    await studio.picture("project-export")
    async with page.expect_download() as downloading:
        await dialog.get_by_role("button", name=re.compile("^Export \\(")).click()
    whole = json.loads(Path(await (await downloading.value).path()).read_bytes())
    assert whole["format"] == "tavern-project" and "workflows/greeting.json" in whole["files"]
    await expect(dialog).to_have_count(0)

    kept = await (await studio.site.get("/api/workflows/greeting")).json()
    other = json.loads(whole["files"]["workflows/greeting.json"])
    other["name"] = "Another greeting"
    whole["files"]["workflows/greeting.json"] = json.dumps(other)
    whole["files"]["workflows/brought.json"] = json.dumps(other | {"name": "Brought along"})
    await drop(page, ("inn.json", json.dumps(whole)))
    await expect(dialog.get_by_role("heading", name="Import the project inn.json")).to_be_visible()
    await dialog.get_by_text("workflows/", exact=True).click()
    await expect(dialog.get_by_text("different, stays", exact=True)).to_be_visible()
    await expect(dialog.get_by_role("button", name="Import 1 file", exact=True)).to_be_enabled()
    await studio.picture("project-import")
    assert (await studio.site.get("/api/workflows/brought")).status == 404, "nothing has come yet"
    await dialog.get_by_role("button", name="Import 1 file", exact=True).click()
    await expect(dialog.get_by_role("link", name="workflows/brought.json")).to_be_visible()
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("link", name="Brought along")).to_be_visible()
    assert await (await studio.site.get("/api/workflows/greeting")).json() == kept

    await drop(page, ("inn.json", json.dumps(whole)))
    await dialog.get_by_label(re.compile("Replace the file that is different")).check()
    await dialog.get_by_role("button", name="Import 1 file", exact=True).click()
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("link", name="Another greeting")).to_be_visible()
