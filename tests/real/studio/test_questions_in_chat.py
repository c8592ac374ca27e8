"""An agent asks a person in the chat: in words, by choices, a form and a file; what was answered stays to be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, expect
from studio_bench import Studio, show

from tavern_host.contracts.accounts import ACCOUNTS

QUESTIONS: list[dict[str, Any]] = [
    {"question": "What shall the **newsletter** be called?"},
    {"question": "Which tone fits your readers?", "choices": ["Warm and personal", "Short and factual", "Playful"]},
    {"question": "Which parts shall it have?", "choices": ["News", "Interview", "Recipe", "Letters"], "multiple": True},
    {
        "question": "Where does it go, and how often?",
        "schema": {
            "properties": {
                "city": {"type": "string", "title": "City", "maxLength": 80, "description": "Where most readers live."},
                "copies": {"type": "integer", "title": "Copies", "minimum": 1, "default": 100},
                "rhythm": {"title": "Rhythm", "enum": ["weekly", "monthly"], "default": "monthly"},
                "printed": {"type": "boolean", "title": "Printed, too", "default": False},
            },
            "required": ["city"],
        },
    },
    {"question": "Do you have a picture for the title?", "kind": "file"},
]


def call(question: dict[str, Any]) -> str:
    lines = ["command:「始」system:request_user_interaction「末」"]
    for name, value in question.items():
        lines.append(f"{name}:「始」{value if isinstance(value, str) else json.dumps(value)}「末」")
    return "\n".join(["<|[REQUEST_TOOL]|>", *lines, "<|[END_TOOL]|>"])


def prepare(project: Path) -> None:
    """Let the sample's agent ask all questions, one after the other."""
    profile = project / "agents" / "assistant.json"
    document = json.loads(profile.read_text())
    document["tool_ids_inventory"].append("system:request_user_interaction")
    profile.write_text(json.dumps(document))
    marks = ["newsletter, please", "The Harbour", "Short and factual", '"News", "Recipe"', "Ghent", "title.png"]
    asks = zip(marks, QUESTIONS, strict=False)
    replies: list[dict[str, Any]] = [{"when": {"last_contains": mark}, "reply": call(asked)} for mark, asked in asks]
    replies.insert(0, {"when": {"last_contains": marks[-1]}, "reply": "All is set. The first issue goes to Ghent."})
    replies.insert(0, {"when": {"last_contains": "declined"}, "reply": "Then I choose a name myself."})
    replies.insert(0, {"when": {"last_contains": "nobody answered"}, "reply": "I went on without an answer."})
    replies.insert(0, {"when": {"last_contains": "quickly"}, "reply": call({**QUESTIONS[0], "seconds": 1})})
    path = project / "agents" / "assistant.replies.yaml"
    path.write_text(json.dumps(replies))


async def begin(page: Page, text: str = "A newsletter, please") -> None:
    field = page.locator("textarea").last
    await field.fill(text)
    await page.keyboard.press("Enter")


async def test_an_agent_asks_in_the_chat_and_goes_on_with_the_answers(studio: Studio, browser: Browser) -> None:
    project = studio.site.host.project.root
    prepare(project)
    page = studio.page
    await studio.open("/chat?agent=assistant")
    await begin(page)
    card = page.get_by_role("region", name="Assistant asks")
    await expect(card.get_by_text("newsletter")).to_be_visible()
    await expect(card.get_by_role("button", name="Answer", exact=True)).to_be_disabled()
    await studio.picture("question-text")
    await card.get_by_label("Your answer").fill("The Harbour")
    await page.keyboard.press("Enter")

    await expect(card.get_by_text("Which tone")).to_be_visible()
    await studio.picture("question-choice")
    await card.get_by_role("button", name="Short and factual").click()

    await expect(card.get_by_text("Which parts")).to_be_visible()
    await card.get_by_role("checkbox", name="Recipe").click()
    await card.get_by_role("checkbox", name="News").click()
    await studio.picture("question-several")
    await card.get_by_role("button", name="Answer", exact=True).click()

    await expect(card.get_by_text("Where does it go")).to_be_visible()
    await expect(card.get_by_role("button", name="Answer", exact=True)).to_be_disabled()
    await card.get_by_label("City").fill("Ghent")
    await card.get_by_label("Copies").fill("0")
    await studio.picture("question-form")
    await card.get_by_role("button", name="Answer", exact=True).click()
    await expect(card.get_by_role("alert").first).to_contain_text("0 is less than the minimum of 1")
    studio.mistakes.clear()  # the browser names the request that was refused
    await card.get_by_label("Copies").fill("80")
    await page.keyboard.press("Tab")
    await card.get_by_role("button", name="Answer", exact=True).click()

    await expect(card.get_by_text("Do you have a picture")).to_be_visible()
    await card.locator("input[type=file]").set_input_files(
        {"name": "title.png", "mimeType": "image/png", "buffer": b"\x89PNG"}
    )
    await studio.picture("question-file")
    await card.get_by_role("button", name="Answer", exact=True).click()
    await expect(page.get_by_text("All is set.")).to_be_visible()
    await expect(card).to_have_count(0)
    [kept] = (project / "files" / "answers").rglob("title.png")
    assert kept.read_bytes() == b"\x89PNG"
    await page.reload()
    for answer in ("The Harbour", "Short and factual", "News, Recipe", "city: Ghent"):
        await expect(page.locator(".asked", has_text=answer)).to_be_visible()
    await studio.picture("questions-answered")

    await begin(page, "Once more, a newsletter, please")
    await card.get_by_role("button", name="Decline to answer").click()
    await expect(page.locator(".asked", has_text="Not answered.")).to_be_visible()
    await expect(page.get_by_text("2 steps · 1 call")).to_be_visible()  # until then nothing else is sent
    await begin(page, "And quickly")
    await expect(page.locator(".asked", has_text="Nobody answered in time.")).to_be_visible()
    await expect(page.get_by_text("I went on without an answer.")).to_be_visible()
    await studio.picture("question-unanswered")
    window = {"locale": "zh-CN", "viewport": {"width": 900, "height": 760}, "color_scheme": "dark"}
    async with await browser.new_context(**window) as context:
        dark = await show(context, studio.site)
        await dark.open("/chat?agent=assistant")
        await begin(dark.page)
        card = dark.page.get_by_role("region", name="Assistant 想问您")
        await card.get_by_label("您的回答").fill("港口")
        await dark.picture("question-text-dark-chinese")
        await card.get_by_label("您的回答").fill("The Harbour")
        await card.get_by_role("button", name="回答", exact=True).click()
        await expect(card.get_by_role("button", name="Playful")).to_be_visible()
        await dark.picture("question-choice-dark-chinese")
        await card.get_by_role("button", name="Short and factual").click()
        await card.get_by_role("checkbox", name="News").click()
        await card.get_by_role("checkbox", name="Recipe").click()
        await card.get_by_role("button", name="回答", exact=True).click()
        await card.get_by_label("City").fill("Ghent")
        await dark.picture("question-form-dark-chinese")


async def test_a_guest_on_a_phone_is_asked_in_a_panel(studio: Studio, browser: Browser) -> None:
    site = studio.site
    prepare(site.host.project.root)
    talk = {"id": "talk", "kind": "agent", "target": "assistant", "title": "The editor"}
    panels = site.host.project.folder("panels")
    (panels / "desk.json").write_text(json.dumps({"name": "Desk", "published": True, "elements": [talk]}))
    await site.host.services.get(ACCOUNTS).add_user("eve", "good evening", role="guest")
    token = (await site.host.services.get(ACCOUNTS).make_token("eve", "phone")).token
    async with await browser.new_context(viewport={"width": 420, "height": 800}, color_scheme="dark") as phone:
        guest = await phone.new_page()
        await guest.goto(f"{site.client.make_url('/')}?token={token}#/panels/desk")
        await guest.get_by_placeholder("Message The editor").fill("A newsletter, please")
        await guest.keyboard.press("Enter")
        card = guest.get_by_role("region", name="The editor asks")
        await card.get_by_label("Your answer").fill("The Harbour")
        await Studio(site, guest, []).picture("panel-question-text")
        await card.get_by_role("button", name="Answer", exact=True).click()
        await card.get_by_role("button", name="Short and factual").click()
        await card.get_by_role("checkbox", name="Recipe").click()
        await card.get_by_role("checkbox", name="News").click()
        await card.get_by_role("button", name="Answer", exact=True).click()
        await expect(card.get_by_text("Where does it go")).to_be_visible()
        await guest.reload()  # the question is there again
        await card.get_by_label("City").fill("Ghent")
        await Studio(site, guest, []).picture("panel-question-form")
        await card.get_by_role("button", name="Answer", exact=True).click()
        await card.locator("input[type=file]").set_input_files(
            {"name": "title.png", "mimeType": "image/png", "buffer": b"\x89PNG"}
        )
        await card.get_by_role("button", name="Answer", exact=True).click()
        await expect(guest.get_by_text("All is set.")).to_be_visible()
        await expect(card).to_have_count(0)
        await Studio(site, guest, []).picture("panel-question-answered")
