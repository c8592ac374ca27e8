"""Comments on the canvas: written, moved, resized, undone, published, and never run."""

from __future__ import annotations

from playwright.async_api import expect
from studio_bench import Studio, drag, greeting, leave, publish, read_until


async def test_a_comment_is_written_moved_published_and_undone(studio: Studio) -> None:
    page = studio.page
    await greeting(studio)
    await leave(page)
    await page.keyboard.press("Shift+C")
    await page.get_by_label("Text of the comment").fill("Why **two**?\n\n<b>not HTML</b>")
    await page.keyboard.press("Escape")
    note = page.get_by_role("complementary", name="Comment")
    await expect(note.locator("strong", has_text="two")).to_be_visible()
    await expect(note.get_by_text("<b>not HTML</b>")).to_be_visible()
    before = await note.bounding_box()
    assert before is not None
    await drag(page, note, (100, 80), at=(20, 25))
    after = await read_until(lambda box: box is not None and box["x"] > before["x"] + 50, note.bounding_box)
    assert after is not None and after["x"] > before["x"] + 50
    await drag(page, note.locator(".grip"), (80, 40))
    wanted = round(after["width"] + 80)
    larger = await read_until(lambda box: box is not None and round(box["width"]) == wanted, note.bounding_box)
    assert larger is not None
    assert (round(larger["x"]), round(larger["width"])) == (round(after["x"]), wanted)
    await studio.picture("comment")

    await page.get_by_label("Name", exact=True).fill("Ada")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Inspector").get_by_text("Hello, Ada")).to_be_visible()
    await publish(page)
    kept = (await (await studio.site.get("/api/workflows/greeting")).json())["comments"]
    assert [one["text"] for one in kept] == ["Why **two**?\n\n<b>not HTML</b>"]
    await page.reload()
    await expect(note.locator("strong", has_text="two")).to_be_visible()

    await note.hover()
    await note.get_by_role("button", name="Remove the comment").click()
    await expect(note).to_have_count(0)
    await page.keyboard.press("Control+z")
    await expect(note).to_have_count(1)
    await note.dblclick()
    await page.get_by_label("Text of the comment").fill("Because.")
    await leave(page)
    await expect(note.get_by_text("Because.")).to_be_visible()
