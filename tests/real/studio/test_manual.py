"""The documentation in the page: found by words, read, and followed by its links, in both languages."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from studio_bench import Studio, show

from tavern_host import Host
from tavern_host.testing.http import served


@pytest.mark.parametrize("locale", ["en", "zh-CN"])
async def test_an_answer_is_found_read_and_followed(browser: Browser, tmp_path: Path, locale: str) -> None:
    is_chinese = locale.startswith("zh")
    async with Host(tmp_path / "inn") as host, served(host) as site:
        context = await browser.new_context(locale=locale, viewport={"width": 1280, "height": 800})
        studio: Studio = await show(context, site)
        page = studio.page
        await page.goto(f"http://127.0.0.1:{site.port}/docs")
        first = page.get_by_role("heading", level=1, name="入门" if is_chinese else "Get started")
        await expect(first).to_be_visible()
        assert page.url.endswith("#/docs/get-started")

        words = "语言模型 预算" if is_chinese else "limit what models cost"
        await page.get_by_role("searchbox").fill(words)
        await page.locator(".list a", has_text="语言模型" if is_chinese else "Language models").first.click()
        await expect(page.locator(".manual h1")).to_have_text("语言模型" if is_chinese else "Language models")

        await page.get_by_role("searchbox").fill("cron")
        await page.locator(".list a", has_text="Triggers").first.click()
        await expect(page.locator(".manual h1")).to_have_text("Triggers")
        assert await page.get_by_text("本页为英文。").count() == is_chinese
        await page.get_by_role("searchbox").fill("")
        link = page.locator(".manual a[href^='#/docs/']").first
        target = str(await link.get_attribute("href"))
        await link.click()
        await page.wait_for_url(f"**/{target}")
        heading = target.split("#")[2] if target.count("#") > 1 else ""
        if heading:
            await expect(page.locator(f"[id='{heading}']")).to_be_in_viewport()
        await page.go_back()
        await expect(page.locator(".manual h1")).to_have_text("Triggers")
        await context.close()
