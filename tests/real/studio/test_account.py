"""A user makes a token in the browser, uses it and ends it; an operator says who may enter the project."""

from __future__ import annotations

import aiohttp
from playwright.async_api import Browser, expect
from studio_bench import WAIT, Studio, read_until

from tavern_host.testing.http import HttpClient

ANN = {"name": "ann", "password": "a long enough password", "role": "creator"}


async def test_a_user_makes_a_token_that_works_until_it_is_ended(site: HttpClient, browser: Browser) -> None:
    await site.post("/api/users", json=ANN)
    base = f"http://127.0.0.1:{site.port}"
    context = await browser.new_context(locale="en")
    context.set_default_timeout(WAIT)
    page = await context.new_page()
    answer = await context.request.post(f"{base}/api/login", data={key: ANN[key] for key in ("name", "password")})
    assert answer.ok
    await page.goto(f"{base}/#/settings/account")
    await page.get_by_role("button", name="Make a token").click()
    await page.get_by_label("Name").fill("ci")
    await page.get_by_label("Days until it ends").fill("7")
    await page.get_by_role("dialog").get_by_role("button", name="Make a token").click()
    token = await page.get_by_role("status").locator("code").inner_text()

    async def answers() -> int:
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession() as session, session.get(f"{base}/api/me", headers=headers) as answer:
            return answer.status

    assert await answers() == 200
    await page.reload()
    await expect(page.get_by_text(token)).to_have_count(0)
    row = page.get_by_role("row", name="ci token")
    await expect(page.get_by_role("row", name="this one").get_by_role("button")).to_have_count(0)
    await row.get_by_role("button", name="End").click()
    await expect(row).to_have_count(0)
    assert await answers() == 401
    await context.close()


async def test_an_operator_says_who_may_enter_the_project(studio: Studio) -> None:
    page = studio.page
    await studio.site.post("/api/users", json=ANN)
    await studio.site.post("/api/users", json={**ANN, "name": "bob"})
    await studio.open("/settings")
    await expect(page.get_by_role("link", name="My access")).to_have_count(0)  # the operator is no user
    await studio.open("/settings/users")
    await expect(page.get_by_label("Every user may enter this project.")).to_be_checked()
    await page.get_by_label("New member").select_option("ann")
    await page.get_by_role("button", name="Let in").click()
    await page.get_by_label("Role of ann in this project").select_option("viewer")
    await expect(page.get_by_label("Every user may enter this project.")).not_to_be_checked()
    await expect(page.get_by_label("New member").get_by_role("option", name="ann")).to_have_count(0)
    await studio.picture("members")

    async def members() -> dict[str, object]:
        found: dict[str, object] = await (await studio.site.get("/api/members")).json()
        return found

    async def become(wanted: dict[str, object]) -> None:
        assert await read_until(lambda found: found == wanted, members) == wanted

    await become({"open": False, "members": [{"user": "ann", "role": "viewer"}]})
    await page.get_by_role("button", name="Take out").click()
    await expect(page.get_by_label("Role of ann in this project")).to_have_count(0)
    await page.get_by_label("Every user may enter this project.").check()
    await become({"open": True, "members": []})
    await expect(page.get_by_label("Every user may enter this project.")).to_be_checked()
