"""Who types a short secret at the page reads that it is not masked within texts."""

from __future__ import annotations

import re

from helpers.model_server import model_server, says
from playwright.async_api import expect
from studio_bench import Studio

SHORT = re.compile(r"The secret is short \(7 of at least 8 characters\)")


async def test_a_short_secret_of_a_plugin_is_pointed_out_where_it_is_typed(studio: Studio) -> None:
    page = studio.page
    await studio.open("/settings/tavern-operations")
    for secret, shown in (("hunter2", 1), ("a long enough secret", 0)):
        await page.get_by_label("Secret of the webhook").fill(secret)
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("Saved.").first).to_be_visible()
        await expect(page.get_by_role("status").get_by_text(SHORT)).to_have_count(shown)
        await studio.picture(f"short-secret-{shown}")


async def test_a_short_key_of_a_model_is_pointed_out_where_it_is_typed(studio: Studio) -> None:
    page = studio.page
    async with model_server(key="hunter2", default=says("Hello.")) as server:
        await studio.open("/settings/models")
        await page.get_by_role("button", name="Add a model").click()
        await page.get_by_label("Name here").fill("mine")
        await page.get_by_label("Address of the server").fill(server.base_url)
        await page.get_by_label("API key").fill("hunter2")
        await page.get_by_role("button", name="Try and save").click()
        await expect(page.get_by_text(SHORT)).to_be_visible()
        await studio.picture("short-key")
