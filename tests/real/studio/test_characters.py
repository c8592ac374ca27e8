"""A character's card is dropped on the page: it greets the person, is talked to, and goes out as a card again."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.async_api import expect
from studio_bench import Studio

from tests.characters.card_files import V3, png, webp
from tests.knowledge.cards import cards_in
from tests.real.studio.test_dropping import drop

REPLIES = [
    {"when": {"contains": "Good night"}, "reply": "Sleep well."},
    {"when": {"contains": "A dragon!"}, "reply": "Hush, Ada!"},
    {"when": {"contains": "Is there soup?"}, "reply": "Soup it is."},
]


async def drop_on_tools(studio: Studio, *files: tuple[str, str | bytes]) -> None:
    """Drop files where nothing else takes them."""
    await studio.open("/tools")
    await expect(studio.page.get_by_role("heading", name="Tools")).to_be_visible()
    await drop(studio.page, *files)


async def test_a_card_is_dropped_talked_to_and_taken_out_again(studio: Studio) -> None:
    replies = studio.site.host.project.root / "agents" / "assistant.replies.yaml"
    replies.write_text("".join(f"- {json.dumps(one)}\n" for one in REPLIES) + replies.read_text())
    page = studio.page
    await studio.site.request("PUT", "/api/persona", json={"name": "Ada", "description": "A baker."})
    await studio.open("/tools")
    await expect(page.get_by_role("heading", name="Tools")).to_be_visible()
    await drop(page, ("mira.png", png(V3, "ccv3")))
    await expect(page).to_have_url(re.compile("/chat/mira-vale-[0-9a-f]+[?]agent=mira-vale$"))
    greeting = page.get_by_text("Come in, Ada!")
    await expect(greeting).to_be_visible()
    await expect(page.locator(".turns img.avatar")).to_have_count(1)
    await studio.picture("character-greets")

    await page.get_by_role("button", name="The version after").click()
    await expect(page.get_by_text("The inn is closed, Ada.")).to_be_visible()
    await page.get_by_role("button", name="The version after").click()
    await expect(page.get_by_text("又是你，Ada？")).to_be_visible()
    # Two presses in one moment: the second waits for the first, and is no mistake.
    await page.evaluate(
        """() => {
          const press = () => document.querySelector('[aria-label="The version before"]').click();
          press(); setTimeout(press);
        }"""
    )
    await expect(page.get_by_text("The inn is closed, Ada.")).to_be_visible()
    await page.get_by_role("button", name="The version before").click()
    await expect(greeting).to_be_visible()

    field = page.get_by_placeholder("Message Mira Vale…")
    again = page.get_by_role("button", name="Answer again")
    turns = [("Is there soup?", "Soup it is."), ("A dragon!", "Hush, Ada!"), ("Good night", "Sleep well.")]
    for number, (said, answer) in enumerate(turns, 1):
        await field.fill(said)
        await field.press("Enter")
        await expect(page.get_by_text(answer)).to_be_visible()
        await expect(again).to_have_count(number)  # it is done: until then nothing is sent
    await again.last.click()
    await expect(page.get_by_text("2 of 2")).to_be_visible()
    await studio.picture("character-talks")
    await page.reload()
    await expect(page.get_by_text("Come in, Ada!")).to_be_visible()
    conversation = page.url.partition("/chat/")[2].partition("?")[0]
    await page.goto(page.url.partition("?")[0])  # nothing says who it is with but the conversation itself
    await expect(page.get_by_label("Agent", exact=True)).to_have_value("mira-vale")
    assert len(await (await studio.site.get(f"/api/histories/{conversation}/messages")).json()) == 7

    await studio.open("/agents/mira-vale")
    async with page.expect_download() as downloading:
        await page.get_by_role("link", name="Export as a card").click()
    card = Path(await (await downloading.value).path()).read_bytes()
    assert cards_in(card)["ccv3"] == V3
    await drop(page, ("mira.png", card))
    await expect(page).to_have_url(re.compile("/chat/mira-vale-2-[0-9a-f]+[?]agent=mira-vale-2$"))
    await expect(page.get_by_text("Come in, Ada!")).to_be_visible()
    assert await (await studio.site.get("/api/characters/mira-vale-2/export")).json() == V3


async def test_a_person_says_who_they_are_and_a_character_begins(studio: Studio) -> None:
    page = studio.page
    await studio.open("/tools")
    await drop(page, ("mira.webp", webp()))
    await expect(page.get_by_text("Come in, User!")).to_be_visible()
    await page.get_by_role("button", name="Who you are").click()
    await page.get_by_label("Name", exact=True).fill("Bob")
    await studio.picture("character-persona")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("link", name="New", exact=True).click()
    await page.get_by_role("button", name="Let Mira Vale begin").click()
    await expect(page.get_by_text("Come in, Bob!")).to_be_visible()

    chat = [{"user_name": "Bob", "character_name": "Mira Vale"}, {"name": "Mira Vale", "mes": "Long ago."}]
    await studio.open("/tools")
    await drop(page, ("chat.jsonl", "".join(f"{json.dumps(one)}\n" for one in chat)))
    await expect(page.get_by_text("Long ago.")).to_be_visible()
    await drop_on_tools(studio, ("own.json", json.dumps({"prompts": [], "prompt_order": []})))
    await expect(page).to_have_url(re.compile("/workflows/characters/own$"))

    await studio.open("/tools")
    await drop(page, ("book.json", json.dumps({"entries": [{"body": "Lost?"}]})))
    await expect(page.get_by_text("its text would be lost: there is 'body'").first).to_be_visible()
    await drop(page, ("plain.jpg", b"\xff\xd8\xff\xd9"))
    await expect(page.get_by_text("this JPEG picture holds no character card").first).to_be_visible()
    studio.mistakes.clear()  # the browser names the refused requests
