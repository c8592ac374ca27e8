"""A scene in the chat: several agents speak, each with its name and avatar, and a person among them."""

from __future__ import annotations

import re
from itertools import pairwise

from playwright.async_api import Browser, expect
from studio_bench import WIDE, Studio, show


async def test_a_scene_is_started_read_and_joined(studio: Studio, browser: Browser) -> None:
    page = studio.page
    await studio.open("/chat")
    await page.get_by_role("button", name=re.compile("2 agents")).click()
    await expect(page.get_by_role("list", name="Who is in the scene").get_by_role("listitem")).to_have_count(2)
    await expect(page.locator("article").get_by_text("There, a light at last")).to_be_visible()
    speakers = page.locator("article .message strong")
    await expect(page.get_by_role("button", name="Let them continue")).to_be_visible()
    names = await speakers.all_text_contents()
    assert {"Mira", "Tomas"} == set(names) and len(names) >= 4, names
    assert all(one != other for one, other in pairwise(names)), "each speaks in a turn of its own"
    await expect(page.get_by_role("button", name="Answer again")).to_have_count(0)
    await studio.picture("scene-chat")

    field = page.locator("textarea").last
    await field.fill("Good evening, all.")
    await page.keyboard.press("Enter")
    own = page.locator(".message.own")
    await expect(own.get_by_text("Good evening, all.")).to_be_visible()
    await expect(own.locator("strong")).to_have_text("You")
    await expect(page.get_by_role("button", name="Let them continue")).to_be_visible()
    last = page.locator("article").last
    await expect(last.locator("strong").last).to_have_text(re.compile("Mira|Tomas"))

    for width, height, scheme, language in ((1920, 1080, "dark", "en"), (420, 800, "light", "zh-CN")):
        window = {**WIDE, "viewport": {"width": width, "height": height}, "color_scheme": scheme, "locale": language}
        async with await browser.new_context(**window) as context:
            other = await show(context, studio.site)
            await other.page.goto(page.url)
            await expect(other.page.get_by_text("Good evening, all.").last).to_be_visible()
            await other.picture(f"scene-chat-{width}-{scheme}-{language}")
    await page.get_by_role("button", name="End the scene").click()
    await expect(page.get_by_text("Ended", exact=True)).to_be_visible()
    await expect(page.locator("textarea")).to_have_count(0)
    studio.mistakes.clear()  # the browser notes that nothing was said at first


async def test_a_scene_is_made_of_agents_and_begun(studio: Studio) -> None:
    page = studio.page
    await studio.open("/chat")
    await page.get_by_role("button", name="New scene").first.click()
    dialog = page.get_by_role("dialog", name="New scene")
    begin = dialog.get_by_role("button", name="Begin the scene")
    await dialog.get_by_label("Name", exact=True).fill("At the quay")
    await expect(begin).to_be_disabled()  # nobody is in it
    await dialog.get_by_label("What it is about").fill("Fog over the water.")
    await dialog.get_by_label("Tomas").check()
    await dialog.get_by_label("Mira").check()
    await studio.picture("scene-new")
    await begin.click()
    members = page.get_by_role("list", name="Who is in the scene").get_by_role("listitem")
    await expect(members).to_have_count(2)
    await expect(members.first).to_contain_text("Tomas")
    field = page.locator("textarea").last
    await field.fill("Is anybody here?")
    await page.keyboard.press("Enter")
    await expect(page.locator("article .message strong").filter(has_text="Mira").first).to_be_visible()
    scenes = await (await studio.site.get("/api/scenes")).json()
    made = next(one for one in scenes if one["name"] == "At the quay")
    assert (made["agents"], made["description"]) == (["tomas", "mira"], "Fog over the water.")

    await studio.open("/chat")  # it can be begun again
    await expect(page.get_by_role("button", name=re.compile("At the quay"))).to_be_visible()
    studio.mistakes.clear()  # the browser notes that nothing was said at first
