"""What agent nodes do is seen while it happens: in a run by hand beside its results, and in the chat of an agent whose
loop is drawn."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.async_api import expect
from studio_bench import Studio

CALL = """<|[REQUEST_TOOL]|>
command:「始」text:shout「末」
text:「始」{}「末」
<|[END_TOOL]|>"""


def prepare(project: Path) -> None:
    """Let the sample's agent think with a drawn loop, and its model call a tool twice."""
    replies = [
        {"when": {"last_contains": "EVENING"}, "reply": "Both are written in capitals."},
        {"when": {"last_contains": "MORNING"}, "reply": "And the other one. " + CALL.format("good evening")},
        {"when": {"last_contains": "loud"}, "reply": "First the morning. " + CALL.format("good morning")},
    ]
    (project / "agents" / "assistant.replies.yaml").write_text(json.dumps(replies))
    profile = project / "agents" / "assistant.json"
    about = {**json.loads(profile.read_text()), "core_deliberation_workflow_id": "agents/deliberation-with-loop"}
    profile.write_text(json.dumps(about))


async def test_steps_are_shown_in_the_editor_and_in_the_chat(studio: Studio) -> None:
    prepare(studio.site.host.project.root)
    page = studio.page
    await studio.open("/workflows/agents/deliberation-with-loop")
    field = page.get_by_label("Messages", exact=True)
    await field.fill('[{"role": "user", "content": "loud"}]')
    await page.get_by_role("button", name="Run", exact=True).last.click()
    steps = page.locator("summary", has_text="3 steps · 2 calls")
    await expect(steps).to_be_visible()
    calls = page.locator("summary", has_text="text:shout")
    await expect(calls.nth(0)).to_contain_text("GOOD MORNING")
    await expect(calls.nth(1)).to_contain_text("GOOD EVENING")
    await expect(page.get_by_text("First the morning.").first).to_be_visible()
    await steps.scroll_into_view_if_needed()
    await studio.picture("steps-by-hand")
    await studio.open("/chat?agent=assistant")
    await page.get_by_placeholder("Message Assistant…").fill("loud, please")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Both are written in capitals.")).to_be_visible()
    await expect(calls.nth(0)).to_contain_text("GOOD MORNING")
    await expect(calls.nth(1)).to_contain_text("GOOD EVENING")
    await expect(steps).to_be_visible()
    await studio.picture("steps-in-chat")
