"""A person talks to an agent in the browser: calls as they happen, an approval, another wording, another answer."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path

from playwright.async_api import Route, expect
from studio_bench import Studio, answered_late

ASKS = """
- when: {last_contains: "Tool text:shout executed"}
  reply: It is written in capitals.
- when: {last_contains: "loud"}
  reply: |
    <|[REQUEST_TOOL]|>
    command:「始」text:shout「末」
    text:「始」hello「末」
    <|[END_TOOL]|>
"""

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
"""A picture of one pixel."""

CHARACTER = (
    "(() => { const x = document.createElement('i'); x.style.cssText = 'position:absolute;width:1ch';"
    " one.append(x); const wide = x.getBoundingClientRect().width; x.remove(); return wide; })()"
)
"""How wide a character of an element is: that of its digit 0."""


def prepare(project: Path) -> None:
    """Let the sample's tool ask a person, and the sample's model use it."""
    tool = project / "tools" / "shout.tool.json"
    tool.write_text(json.dumps({**json.loads(tool.read_text()), "requiresApproval": True}))
    replies = project / "agents" / "assistant.replies.yaml"
    replies.write_text(ASKS + replies.read_text())


async def test_messages_are_edited_and_answered_again_and_nothing_is_lost(studio: Studio) -> None:
    prepare(studio.site.host.project.root)
    page = studio.page
    await studio.open("/chat?agent=assistant")
    await page.get_by_placeholder("Message Assistant…").fill("Greet Ada, **please**")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Done. I greeted Ada for you")).to_be_visible()
    await expect(page.locator("summary", has_text="workflow:greeting")).to_be_visible()
    await expect(page.locator(".markdown strong", has_text="please")).to_be_visible()

    await page.get_by_role("button", name="Edit and send again").click()
    await page.get_by_role("textbox", name="Edit and send again").fill("Greet Bob <b>now</b>")
    await page.get_by_role("button", name="Send").first.click()
    await expect(page.get_by_text("I am a scripted model")).to_be_visible()
    await expect(page.get_by_text("Greet Bob <b>now</b>")).to_be_visible()  # HTML is text
    await expect(page.get_by_text("2 of 2")).to_be_visible()
    await page.get_by_role("button", name="Answer again").click()
    await expect(page.get_by_text("2 of 2")).to_have_count(2)
    await studio.picture("chat-versions")

    await page.get_by_role("button", name="The version before").first.click()
    await expect(page.get_by_text("Done. I greeted Ada for you")).to_be_visible()
    await page.reload()
    await expect(page.get_by_text("Done. I greeted Ada for you")).to_be_visible()
    await expect(page.get_by_role("link", name="Greet Ada, **please**")).to_be_visible()
    title = page.get_by_label("Title of the conversation")
    await title.fill("For Ada")
    await title.press("Enter")
    await expect(page.get_by_role("link", name="For Ada")).to_be_visible()
    await _an_answer_in_other_words(studio)
    await _trace_that_is_read_slowly(studio)


async def test_pictures_and_texts_go_along_with_a_message_and_an_answer_is_continued(studio: Studio) -> None:
    replies = studio.site.host.project.root / "agents" / "assistant.replies.yaml"
    more = [
        {"when": {"last_contains": "Continue."}, "reply": "And that is all."},
        {"when": {"last_contains": "what is this"}, "reply": "It is $x^2$, for $5."},
    ]
    replies.write_text("".join(f"- {json.dumps(one)}\n" for one in more) + replies.read_text())
    page = studio.page
    await studio.open("/chat?agent=assistant")
    field = page.get_by_placeholder("Message Assistant…")
    await field.fill("what is this")
    async with page.expect_file_chooser() as choosing:
        await page.get_by_role("button", name="Attach pictures or texts").click()
    files = [
        {"name": "dot.png", "mimeType": "image/png", "buffer": DOT},
        {"name": "notes.md", "mimeType": "text/markdown", "buffer": b"# Notes"},
        {"name": "film.mp4", "mimeType": "video/mp4", "buffer": b"film"},
    ]
    await (await choosing.value).set_files(files)  # type: ignore[arg-type]
    attached = page.get_by_label("Attached").get_by_role("listitem")
    await expect(attached).to_have_count(2)
    await expect(page.get_by_text("“film.mp4” is neither a picture")).to_be_visible()
    await page.get_by_role("button", name="Close").first.click()
    await studio.picture("chat-attached")
    await field.press("Enter")
    await expect(page.get_by_label("Pictures").get_by_role("img")).to_be_visible()
    assert await page.get_by_label("Pictures").get_by_role("img").evaluate("one => one.naturalWidth") == 1
    await expect(page.locator("figure code", has_text="# Notes")).to_be_visible()
    await expect(page.locator(".markdown math")).to_have_count(1)
    await expect(page.get_by_text("for $5.")).to_be_visible()
    await page.get_by_role("button", name="Continue").click()
    await expect(page.get_by_text("And that is all.")).to_be_visible()
    await studio.picture("chat-pictures")


async def _an_answer_in_other_words(studio: Studio) -> None:
    """Reword an answer; what was said before it stays, and the tree shows both wordings."""
    page = studio.page
    await page.get_by_role("button", name="Edit the answer").click()
    wording = page.get_by_role("textbox", name="Edit the answer")
    await expect(wording).to_have_value(re.compile("Done. I greeted Ada"))
    await wording.fill("Ada was greeted.\n\n```json\n[1]\n```")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Ada was greeted.")).to_be_visible()
    await expect(page.get_by_text("Done. I greeted Ada for you")).to_have_count(0)
    await expect(page.locator("summary", has_text="workflow:greeting")).to_be_visible()
    await expect(page.locator("figure .tok-number", has_text="1")).to_be_visible()
    await page.get_by_role("button", name="Branches").click()
    tree = page.get_by_role("dialog", name="Branches")
    await tree.get_by_role("button", name=re.compile("Done. I greeted Ada")).click()
    await expect(page.get_by_role("button", name="Branches")).to_be_focused()
    await expect(page.get_by_text("Done. I greeted Ada for you")).to_be_visible()


async def _trace_that_is_read_slowly(studio: Studio) -> None:
    """Let the server's list of steps, and how the run was then, come after newer ones were heard: nothing is lost."""
    page, field, stop = (
        studio.page,
        studio.page.get_by_placeholder("Message"),
        studio.page.get_by_role("button", name="Stop"),
    )

    async with (
        answered_late(page, "**/trace?*", "GET") as steps,
        answered_late(page, "**/api/agent-runs/agent_*", "GET") as run,
    ):
        await field.fill("Say it loud")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Allow once").wait_for()
        await steps.wait()
        await run.wait()
        await field.fill("And again")
        await page.keyboard.press("Enter")
        await expect(field).to_have_value("And again")  # nothing can be said while it works
        async with page.expect_response(lambda one: "/trace?" in one.url):  # one that is read after its end
            await page.get_by_role("button", name="Allow once").click()
        await expect(page.get_by_text("It is written in capitals.")).to_be_visible()
        await expect(stop).to_have_count(0)
    await expect(page.get_by_text("It is written in capitals.")).to_be_visible()
    await expect(page.locator("summary", has_text="text:shout")).to_be_visible()
    await expect(stop).to_have_count(0)

    await page.route("**/runs?*", lambda route: route.abort())
    await field.press("Enter")
    await expect(page.get_by_text("The server does not answer")).to_be_visible()
    await expect(field).to_have_value("And again")
    await page.unroute_all()
    studio.mistakes.clear()  # the browser names the request that was cut


async def test_all_of_it_works_in_a_narrow_window(studio: Studio) -> None:
    prepare(studio.site.host.project.root)
    page, allowed = studio.page, asyncio.Event()

    async def held(route: Route) -> None:
        response = await route.fetch()
        if "It is written in capitals." in await response.text():
            await allowed.wait()
        await route.fulfill(response=response)

    await page.set_viewport_size({"width": 420, "height": 800})
    await studio.open("/chat?agent=assistant")
    field = page.get_by_placeholder("Message Assistant…")
    await field.fill("Say it loud")
    await page.keyboard.press("Enter")
    card = page.get_by_role("region", name="text:shout needs your approval")
    await expect(card.get_by_label("text")).to_have_value("hello")
    await page.get_by_role("button", name="Stop").click()
    await expect(card).to_have_count(0)
    await page.get_by_role("button", name="Answer again").click()
    await card.get_by_label("text").fill("good evening")
    await studio.picture("chat-narrow-approval")
    await card.get_by_role("button", name="Allow once").click()
    await expect(page.get_by_text("It is written in capitals.")).to_be_visible()
    await page.locator("summary", has_text="2 steps · 1 call").click()
    await expect(page.locator(".timeline").get_by_text("text:shout")).to_be_visible()
    await page.locator("summary", has_text="text:shout").click()
    await expect(page.locator("pre", has_text="GOOD EVENING")).to_be_visible()
    await studio.picture("chat-narrow")
    await page.get_by_role("button", name="Edit and send again").click()
    await page.get_by_role("textbox", name="Edit and send again").fill("loud " * 60)
    await page.route("**/messages?*", held)
    await page.get_by_role("button", name="Send").first.click()
    older, newer = (page.get_by_role("button", name=f"The version {which}").first for which in ("before", "after"))
    await card.get_by_role("button", name="Allow once").click()
    await expect(page.get_by_text("It is written in capitals.")).to_be_visible()
    await expect(older).to_be_disabled()  # the answer is seen, and its message not yet read
    allowed.set()
    await older.click()
    await expect(page.get_by_role("article").get_by_text("Say it loud", exact=True)).to_be_visible()
    await newer.click()
    await expect(page.get_by_text("loud loud")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 420

    await page.set_viewport_size({"width": 1280, "height": 800})
    said = page.locator(".markdown", has_text="loud loud")
    assert await said.evaluate("one => one.offsetWidth <= 72.5 * measured(one)".replace("measured(one)", CHARACTER))
