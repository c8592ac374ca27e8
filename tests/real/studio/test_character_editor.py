"""The card of a character is edited on the page: by one person, by two at a time, and a new one from nothing."""

from __future__ import annotations

import re

from playwright.async_api import Locator, Page, expect
from studio_bench import Studio, show
from test_dropping import drop

from tests.characters.card_files import DOT, V3, png
from tests.knowledge.cards import chunk, picture

DATA = V3["data"]
PICTURE = picture(chunk(b"tIME", b"\x07\xea\x0b\x1e\x0a\x00\x00"))


async def save(page: Page) -> None:
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.get_by_text("Not saved", exact=True)).to_have_count(0)


def greeting(page: Page, number: int) -> Locator:
    return page.locator(f"#greeting-{number - 1}")


async def pictures(studio: Studio, name: str) -> None:
    """Keep pictures of a page in both widths and themes."""
    for width in (1280, 420):
        for theme in ("light", "dark"):
            await studio.page.set_viewport_size({"width": width, "height": 800})
            await studio.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            await studio.picture(f"{name}-{width}-{theme}")
    await studio.page.set_viewport_size({"width": 1280, "height": 800})
    await studio.page.emulate_media(color_scheme="light")


async def test_a_card_is_edited_and_goes_out_as_it_is_then(studio: Studio) -> None:
    page, site = studio.page, studio.site
    assert (await site.post("/api/characters?id=edited", data=png(V3, "ccv3"))).status == 201
    await studio.open("/agents/edited")
    await page.get_by_role("link", name="Character", exact=True).click()
    await expect(page.get_by_label("Name", exact=True)).to_have_value("Mira Vale")
    await expect(greeting(page, 3)).to_have_value(DATA["alternate_greetings"][1])
    await pictures(studio, "character-editor")

    await page.get_by_label("Name", exact=True).fill("Mira Hill")
    await page.get_by_label("Scenario").fill("It snows.")
    await page.get_by_label("Post-history instructions").fill("Stay warm, {{char}}.")
    await page.get_by_role("button", name="Move greeting 3 up").click()
    await page.get_by_role("button", name="Remove greeting 3").click()
    await page.get_by_role("button", name="Add a greeting").click()
    await expect(greeting(page, 3)).to_be_focused()
    await page.keyboard.type("Snow again, {{user}}.")
    await page.get_by_label("Tags").fill("inn, snow")
    await greeting(page, 3).scroll_into_view_if_needed()
    await pictures(studio, "character-greetings")

    await page.reload()  # what is not saved is still there
    await expect(page.get_by_text("Not saved", exact=True)).to_be_visible()
    await expect(greeting(page, 3)).to_have_value("Snow again, {{user}}.")
    await save(page)
    await expect(page.get_by_role("heading", name="Mira Hill")).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Scenario")).to_have_value("It snows.")
    await expect(page.locator(".list").get_by_text("Mira Hill")).to_be_visible()

    async with page.expect_file_chooser() as choosing:
        await page.get_by_role("button", name="Replace the picture").click()
    await (await choosing.value).set_files({"name": "new.png", "mimeType": "image/png", "buffer": PICTURE})
    await expect(page.get_by_text("Saved.").first).to_be_visible()
    assert await (await site.get("/api/characters/edited/picture")).read() == PICTURE
    assert PICTURE != DOT
    shown = page.get_by_role("img", name="Picture of Mira Hill")
    await page.get_by_role("button", name="Remove it").click()
    await expect(page.get_by_text("No picture", exact=True)).to_be_visible()
    await expect(shown).to_have_count(0)
    assert (await site.get("/api/characters/edited/picture")).status == 404
    await page.get_by_label("Scenario").fill("Not saved yet.")
    await drop(page, ("note.txt", b"no picture"), on=".picture")
    await expect(page.get_by_role("alert").filter(has_text="PNG, WebP or JPEG")).to_be_visible()
    await drop(page, ("dropped.png", PICTURE), on=".picture")
    await expect(shown).to_be_visible()
    await expect(page.get_by_label("Scenario")).to_have_value("Not saved yet.")
    assert await (await site.get("/api/characters/edited/picture")).read() == PICTURE
    await page.get_by_label("Scenario").fill("It snows.")
    studio.mistakes.clear()  # the browser notes the refused file
    wanted = {
        "name": "Mira Hill",
        "scenario": "It snows.",
        "post_history_instructions": "Stay warm, {{char}}.",
        "alternate_greetings": [DATA["alternate_greetings"][1], "Snow again, {{user}}."],
        "tags": ["inn", "snow"],
    }
    assert await (await site.get("/api/characters/edited/export")).json() == {**V3, "data": {**DATA, **wanted}}


async def test_two_tabs_lose_nothing(studio: Studio) -> None:
    page, site = studio.page, studio.site
    assert (await site.post("/api/characters?id=shared", data=png(V3, "ccv3"))).status == 201
    other = await show(page.context, site)
    for one in (studio, other):
        await one.open("/agents/shared/character")
        await expect(one.page.get_by_label("Scenario")).to_have_value("It rains.")
    await other.page.get_by_label("Scenario").fill("The sun shines.")
    await save(other.page)

    await page.get_by_label("Personality").fill("Cold.")  # another field: both are kept, unasked
    await save(page)
    await expect(page.get_by_label("Scenario")).to_have_value("The sun shines.")

    await other.page.get_by_label("Personality").fill("Mild.")
    await other.page.get_by_role("button", name="Save", exact=True).click()
    note = other.page.get_by_role("alert").filter(has_text="Somebody else has changed this character")
    await expect(note).to_contain_text("Changed by both of you: Personality.")
    await other.picture("character-conflict")
    await note.get_by_role("button", name="Take theirs").click()
    await expect(other.page.get_by_label("Personality")).to_have_value("Cold.")

    await other.page.get_by_label("Personality").fill("Mild.")
    await save(other.page)
    await page.get_by_label("Personality").fill("Cool.")
    await page.get_by_role("button", name="Save", exact=True).click()
    await page.get_by_role("button", name="Save mine").click()
    await expect(page.get_by_text("Not saved", exact=True)).to_have_count(0)
    said = await (await site.get("/api/characters/shared")).json()
    assert (said["personality"], said["scenario"]) == ("Cool.", "The sun shines.")
    assert all("412" in one for one in [*studio.mistakes, *other.mistakes])  # the browser names the refused requests
    studio.mistakes.clear()


async def test_a_character_is_made_of_nothing(studio: Studio) -> None:
    page = studio.page
    await studio.open("/agents")
    await page.get_by_role("button", name="New character").click()
    await page.get_by_label("Name", exact=True).last.fill("Nils")
    await page.get_by_role("dialog").get_by_role("button", name="New character").click()
    await expect(page).to_have_url(re.compile("/agents/nils/character$"))
    await expect(page.get_by_label("Name", exact=True)).to_have_value("Nils")
    await pictures(studio, "character-new")
    await greeting(page, 1).fill("Good day, {{user}}.")
    await save(page)
    await page.get_by_role("link", name="Talk to it").click()
    await page.get_by_role("button", name="Let Nils begin").click()
    await expect(page.get_by_text("Good day, User.")).to_be_visible()
