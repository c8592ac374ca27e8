"""Files of workflows are dropped on the page."""

from __future__ import annotations

import json
import re

from playwright.async_api import Page, expect
from studio_bench import Studio

DROP = """async ([files]) => {
  const data = new DataTransfer();
  for (const [name, text] of files) data.items.add(new File([text], name));
  document.querySelector("main, .view").dispatchEvent(new DragEvent("drop", {
    dataTransfer: data, bubbles: true, cancelable: true
  }));
}"""


async def drop(page: Page, *files: tuple[str, str]) -> None:
    await page.evaluate(DROP, [[list(file) for file in files]])


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
    for text in ("{", "[]", '{"edges": []}', "null"):
        await drop(page, ("notes.json", text))
        await expect(page.get_by_text("notes.json holds no workflow: a JSON object with nodes.").first).to_be_visible()
    await drop(page, ("picture.png", "…"))
    await expect(page.get_by_role("heading", name="Tools")).to_be_visible()
    found = await (await studio.site.get("/api/workflows")).json()
    assert "notes" not in [one["id"] for one in found]
