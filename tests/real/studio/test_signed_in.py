"""A page through a restart of its server, through the end of its session, and with drafts that the server refuses."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.ports import free_port
from helpers.serve_process import Serving, serving
from playwright.async_api import Browser, Page, Request, Route, expect
from studio_bench import WIDE, Studio, greeting, not_new, read_until

NAME = "Name of the workflow"


async def _picture(page: Page, name: str) -> None:
    await Studio(None, page, []).picture(name)  # type: ignore[arg-type]


async def _rename(page: Page, name: str) -> None:
    await page.get_by_label(NAME).fill(name)
    await page.get_by_label(NAME).press("Tab")


async def _draft_is(server: Serving, name: str) -> None:
    """Wait until the server has a draft of this name."""
    async with asyncio.timeout(60):
        while ((await server.get("/api/workflows/greeting/draft")).get("workflow") or {}).get("name") != name:
            await asyncio.sleep(0.02)


async def test_a_page_outlives_its_server_and_its_session(tmp_path: Path, browser: Browser) -> None:
    project, port = tmp_path / "inn", str(free_port())
    assert (await asyncio.to_thread(tavern, "init", project)).code == 0
    context = await browser.new_context(**WIDE)
    await not_new(context)
    page = await context.new_page()
    lost, signed_out = page.get_by_text("The server does not answer; trying"), page.get_by_text("You are signed out.")
    async with serving(project, options=["--port", port]) as first:
        await page.goto(f"{first.url}#/workflows/greeting")
        await expect(page.locator(".vue-flow__node")).to_have_count(4)
        await first.stop(signal.SIGKILL)
    await _rename(page, "Typed while nobody listened")
    await expect(lost).to_be_visible()
    async with serving(project, options=["--port", port]) as again:
        began = time.monotonic()
        await expect(lost).to_have_count(0)
        found = time.monotonic() - began
        await _draft_is(again, "Typed while nobody listened")
        await expect(page.get_by_label("Status").get_by_text("Draft saved", exact=True)).to_be_visible()
        assert found < 3, "the page's longest wait is two seconds"

        renewed = await asyncio.to_thread(tavern, "--project", project, "token", "--renew")
        again.session.headers["Authorization"] = f"Bearer {renewed.out.strip()}"
        await expect(signed_out).to_be_visible()
        await _rename(page, "Typed while signed out")
        await expect(page.get_by_text("The server does not take")).to_have_count(0)  # it is said once
        await _picture(page, "signed-out")
        field = page.get_by_label("Token of the server")
        await field.fill("wrong")
        await field.press("Enter")
        await expect(page.get_by_text("That is not the token of this server.")).to_be_visible()
        await field.fill(renewed.out.strip())
        await page.get_by_role("button", name="Sign in").click()
        await expect(signed_out).to_have_count(0)
        await _draft_is(again, "Typed while signed out")
        await expect(page.get_by_label(NAME)).to_have_value("Typed while signed out")

        renewed = await asyncio.to_thread(tavern, "--project", project, "token", "--renew")
        await expect(signed_out).to_be_visible()
        other = await context.new_page()
        await other.goto(f"{again.base}/#/workflows/greeting")
        await expect(other.get_by_role("heading", name="You are signed out")).to_be_visible()
        await _picture(other, "signed-out-page")
        await other.get_by_label("Token").fill("wrong")
        await other.get_by_label("Token").press("Enter")
        await expect(other.get_by_role("alert")).to_contain_text("That is not the token")
        await _picture(other, "signed-out-page-wrong")
        await other.get_by_label("Token").fill(renewed.out.strip())
        await other.get_by_role("button", name="Enter").click()
        await expect(other.get_by_label(NAME)).to_have_value("Typed while signed out")
        assert "token=" not in other.url
        await page.bring_to_front()
        await page.evaluate("dispatchEvent(new Event('focus'))")  # as a window gets it that is chosen
        await expect(signed_out).to_have_count(0)
    await context.close()


@pytest.mark.parametrize(("status", "said"), [(413, "Take large values out"), (403, "Ask an operator")])
async def test_a_draft_that_is_refused_is_sent_once_and_says_why(studio: Studio, status: int, said: str) -> None:
    page, puts = studio.page, list[str]()
    await greeting(studio)

    async def refuse(route: Route) -> None:
        problem = {"code": "refused", "detail": "it has 17 MiB, at most 16 are taken"}
        await route.fulfill(status=status, json=problem, content_type="application/problem+json")

    def note(request: Request) -> None:
        if request.method == "PUT":
            puts.append(request.url)

    page.on("request", note)
    draft = "**/api/workflows/greeting/draft?*"
    await page.clock.install()
    await page.route(draft, lambda route: refuse(route) if route.request.method == "PUT" else route.fallback())
    await _rename(page, "Too much")
    await page.clock.run_for(2_000)
    alert = page.get_by_role("alert").filter(has_text="The server does not take this draft")
    await expect(alert).to_contain_text("it has 17 MiB, at most 16 are taken")
    await expect(alert).to_contain_text(said)
    await studio.picture(f"refused-{status}")
    await page.clock.run_for(120_000)
    assert len(puts) == 1
    await page.get_by_role("button", name="Close Too much").click()
    await page.clock.run_for(120_000)
    assert len(puts) == 1, "a draft ends with its tab"

    await studio.open("/workflows/greeting")
    await expect(page.get_by_label(NAME)).to_have_value("Too much")
    await page.unroute_all()
    await page.clock.run_for(6_000)
    await expect(page.get_by_label("Status").get_by_text("Draft saved", exact=True)).to_be_visible()
    studio.mistakes.clear()  # the browser names what was refused


async def test_a_draft_ends_with_its_tab_where_the_server_is_gone(studio: Studio) -> None:
    page, puts = studio.page, list[str]()
    await greeting(studio)

    async def cut(route: Route) -> None:
        if route.request.method == "PUT":
            puts.append(route.request.url)
        await route.abort()

    async def later(milliseconds: int) -> int:
        await page.clock.run_for(milliseconds)
        return len(puts)

    await page.clock.install()
    await page.route("**/api/workflows/greeting/draft?*", cut)
    await _rename(page, "Alone")
    await read_until(lambda count: count > 1, lambda: later(1_000))
    assert len(puts) > 1, "it is tried again while it is open"
    await page.get_by_role("button", name="Close Alone").click()
    await page.clock.run_for(1_000)
    count = len(puts)
    await page.clock.run_for(120_000)
    assert len(puts) == count
    studio.mistakes.clear()


async def test_a_run_that_is_gone_says_so(studio: Studio) -> None:
    page = studio.page
    await studio.open("/workflows/greeting?run=run_gone")
    await expect(page.get_by_role("alert").filter(has_text="The run run_gone is not there any more.")).to_be_visible()
    await expect(page.get_by_label("Status").get_by_text("queued")).to_have_count(0)
    studio.mistakes.clear()


async def test_a_user_logs_in_on_a_page_that_looks_like_one(studio: Studio) -> None:
    user = {"name": "ann", "password": "a long enough password", "role": "creator"}
    await studio.site.post("/api/users", json=user)
    assert studio.page.context.browser is not None
    context = await studio.page.context.browser.new_context(**WIDE)
    page = await context.new_page()
    await page.goto(f"http://127.0.0.1:{studio.site.port}/")
    await page.get_by_role("link", name="log in").click()
    assert await page.evaluate("getComputedStyle(document.querySelector('main')).borderRadius") == "8px"
    await page.get_by_label("Name").fill("ann")
    await page.get_by_label("Password").fill("wrong")
    await page.get_by_label("Password").press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("the name or the password is wrong", timeout=10_000)
    await _picture(page, "log-in-page")
    await page.get_by_label("Name").fill("ann")
    await page.get_by_label("Password").fill(user["password"])
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    await context.close()
