"""What is drawn is never lost: drafts, a history on the canvas, undo over sessions, deleted workflows."""

from __future__ import annotations

import asyncio
import json
import shutil

from playwright.async_api import Page, Response, Route, expect
from studio_bench import Studio, answered_late, canvas_node, greeting, leave, node_library, publish, read_until


async def add(page: Page, name: str) -> None:
    library = await node_library(page)
    await library.get_by_label("Search nodes…").fill(name)
    await library.get_by_role("button", name=name, exact=True).click()


async def kept(page: Page) -> None:
    await expect(page.get_by_label("Status").get_by_text("Draft saved", exact=True)).to_be_visible()


async def test_drafts_are_kept_with_their_history(studio: Studio) -> None:
    await _history(studio)
    await _file_that_git_changed(studio)
    await _late_answers(studio)


async def _history(studio: Studio) -> None:
    page, nodes = studio.page, studio.page.locator(".vue-flow__node")
    await greeting(studio)
    await add(page, "Upper case")
    await kept(page)
    await canvas_node(page, "trim").locator("strong").click()
    await page.keyboard.press("Delete")
    await kept(page)

    await page.reload()
    await expect(nodes).to_have_count(4)
    name = page.get_by_label("Name of the workflow")
    async with answered_late(page, "**/history/*", "GET") as read:
        await page.keyboard.press("Control+z")
        await read.wait()
        await name.fill("Typed meanwhile")
        await name.press("Tab")
    await expect(name).to_have_value("Typed meanwhile")
    await leave(page)
    await page.keyboard.press("Control+z")
    await expect(name).not_to_have_value("Typed meanwhile")
    await page.keyboard.press("Control+z")  # what was done before the page was opened anew
    await expect(nodes).to_have_count(5)
    await page.keyboard.press("Control+Shift+z")
    await expect(nodes).to_have_count(4)
    await kept(page)

    await page.get_by_role("button", name="History", exact=True).click()
    panel = page.get_by_label("Inspector")
    await panel.get_by_role("button", name="From the file").click()
    await expect(nodes).to_have_count(5)  # what was removed is shown too
    await expect(page.locator(".node.added").get_by_text("added")).to_be_visible()
    await expect(page.locator(".node.removed").get_by_text("removed")).to_be_visible()
    await studio.picture("history")
    await panel.get_by_role("button", name="Name it").click()
    await page.get_by_role("dialog").get_by_label("Name it").fill("as it came")
    await page.keyboard.press("Enter")
    await expect(panel.get_by_role("button", name="as it came")).to_be_visible()
    await panel.get_by_role("button", name="Restore").click()
    await expect(canvas_node(page, "trim")).to_be_visible()
    await expect(canvas_node(page, "upper-case")).to_have_count(0)
    await expect(page.locator(".node.removed")).to_have_count(0)


async def _file_that_git_changed(studio: Studio) -> None:
    page, file = studio.page, studio.site.host.project.root / "workflows" / "versioned.json"
    shutil.copy(file.with_name("greeting.json"), file)
    await studio.open("/workflows/versioned")
    await expect(page.locator(".vue-flow__node")).to_have_count(4)
    await add(page, "Upper case")
    await kept(page)
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "name": "By git"}))
    await studio.site.get("/api/workflows/versioned/draft")  # a host that serves looks by itself
    await page.reload()
    await expect(page.get_by_role("alert")).to_contain_text("The published version has changed")
    await expect(page.locator(".vue-flow__node")).to_have_count(5)
    await page.get_by_role("button", name="Publish", exact=True).click()
    assert json.loads(file.read_text())["name"] == "By git", "nobody's work is overwritten"
    await page.get_by_role("button", name="Take theirs").click()
    await page.get_by_role("dialog").get_by_role("button", name="Take theirs").click()
    await expect(page.get_by_label("Name of the workflow")).to_have_value("By git")
    await page.keyboard.press("Control+z")  # which is a step as any other
    await expect(page.locator(".vue-flow__node")).to_have_count(5)


async def _late_answers(studio: Studio) -> None:
    page, status, name = studio.page, studio.page.get_by_label("Status"), "Name of the workflow"
    shown, saved, published, puts = asyncio.Event(), asyncio.Event(), asyncio.Event(), 0

    async def late_save(route: Route) -> None:
        nonlocal puts
        if route.request.method == "PUT":
            puts += 1
            if puts == 1:  # comes to the server when the page that asked has been loaded again
                await shown.wait()
                await route.fetch()
                saved.set()
                return
            await saved.wait()
        await route.continue_()

    await page.route("**/api/workflows/versioned/draft?*", late_save)
    await page.get_by_label(name).fill("Typed")
    await page.get_by_label(name).press("Tab")
    await read_until(bool, lambda: asyncio.sleep(0, puts))
    await page.reload()
    await expect(page.get_by_label(name)).to_have_value("Typed")
    shown.set()
    await publish(page)  # nobody else has changed the draft
    await page.unroute_all()
    studio.mistakes.clear()  # the browser names the save that was refused

    looks = answers = 0

    def count(response: Response) -> None:
        nonlocal answers
        is_look = response.url.partition("?")[0].endswith(("/versioned", "/draft"))
        answers += is_look and response.request.method == "GET"

    async def late_look(route: Route) -> None:
        nonlocal looks
        response = await route.fetch()
        looks += route.request.method == "GET"
        if looks == 1 and route.request.method == "GET":
            await published.wait()
        await route.fulfill(response=response)

    await page.route("**/api/workflows/versioned?*", late_look)
    page.on("response", count)
    studio.site.host.events.publish("WORKFLOW_CHANGED", {"workflowId": "versioned", "change": "draft"})
    await read_until(bool, lambda: asyncio.sleep(0, looks))
    await page.get_by_label(name).fill("Typed again")
    await page.get_by_label(name).press("Tab")
    await publish(page)
    published.set()  # what was read before is not what there is now
    await read_until(lambda n: n >= 4, lambda: asyncio.sleep(0, answers))  # of two looks
    assert looks > 1  # and one more where it hears late of its own draft
    await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await expect(status.get_by_text("Published", exact=True)).to_be_visible()
    await page.unroute_all()
    await _publications(studio)


async def _publications(studio: Studio) -> None:
    page, name, status = (
        studio.page,
        studio.page.get_by_label("Name of the workflow"),
        studio.page.get_by_label("Status"),
    )

    async def type_name(text: str) -> None:
        await name.fill(text)
        await name.press("Tab")

    async def cut_off(route: Route) -> None:
        if route.request.method == "PUT":
            await route.fetch()
            await route.abort()
        else:
            await route.continue_()

    await type_name("Published, and nobody hears of it")
    await kept(page)
    await page.route("**/api/workflows/versioned?*", cut_off)
    await page.get_by_role("button", name="Publish", exact=True).click()
    await expect(page.get_by_text("The server does not answer")).to_be_visible()
    await page.unroute_all()
    await type_name("Typed once more")
    await publish(page)
    await type_name("Published by two presses")
    async with answered_late(page, "**/api/workflows/versioned?*") as written:
        await page.keyboard.press("Control+s")
        await written.wait()
        await page.keyboard.press("Control+s")
    await expect(status.get_by_text("Published", exact=True)).to_be_visible()
    await expect(page.get_by_text("The published version has changed")).to_have_count(0)
    studio.mistakes.clear()  # the browser names the requests that were cut and refused

    address = page.url
    await page.goto("about:blank")  # so that no request of the page before is held
    async with answered_late(page, "**/api/workflows/versioned/draft?*", "GET") as read:
        await page.goto(address)
        await read.wait()
        workflow = await (await studio.site.get("/api/workflows/versioned")).json()
        body = {"workflow": {**workflow, "name": "By somebody else"}, "reason": "theirs"}
        put = await studio.site.request("PUT", "/api/workflows/versioned/draft", json=body, headers={"If-Match": "*"})
        assert put.status == 200, await put.text()
    await expect(name).to_have_value("By somebody else")


async def test_workflows_and_drafts_come_back_after_deletion(studio: Studio) -> None:
    await _found_renamed_deleted_and_restored(studio)
    await _drafts_of_what_is_gone(studio)


async def _found_renamed_deleted_and_restored(studio: Studio) -> None:
    page = studio.page
    await page.get_by_label("Search workflows").fill("core:trim")
    await page.get_by_role("link", name="Greeting › trim").click()
    await expect(page.get_by_label("Inspector").get_by_text("core:Trim")).to_be_visible()
    await studio.open("/")
    for command in ("Rename", "Delete"):
        await page.get_by_role("button", name="What can be done with Greeting", exact=True).click()
        await page.get_by_role("menuitem", name=command).click()
        if command == "Rename":
            await page.get_by_label("Id", exact=True).fill("polite/greeting")
        await page.get_by_role("dialog").get_by_role("button", name=command).click()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.get_by_role("link", name="polite/greeting")).to_have_count(int(command == "Rename"))
    folder = studio.site.host.project.root / "workflows"
    await expect(page.get_by_text("Deleted workflows (1)")).to_be_visible()
    assert not (folder / "polite" / "greeting.json").exists() and not (folder / "greeting.json").exists()
    await page.get_by_text("Deleted workflows (1)").click()
    await page.get_by_role("button", name="Restore").click()
    await expect(page.get_by_role("link", name="polite/greeting")).to_be_visible()
    assert (folder / "polite" / "greeting.json").is_file()


async def _drafts_of_what_is_gone(studio: Studio) -> None:
    page, file = studio.page, studio.site.host.project.root / "workflows" / "drawn.json"
    shutil.copy(file.with_name("polite") / "greeting.json", file)
    left = page.get_by_role("region", name="Drafts of workflows that are gone")
    gone = page.get_by_role("alert").filter(has_text="This workflow was deleted elsewhere.")
    saves = list[str]()

    async def draw_and_lose(name: str) -> None:
        await studio.open("/workflows/drawn")
        await expect(page.locator(".vue-flow__node")).not_to_have_count(0)
        await page.route(
            "**/draft*", lambda route: route.abort() if route.request.method == "PUT" else route.continue_()
        )
        await page.get_by_label("Name of the workflow").fill(name)
        await page.get_by_label("Name of the workflow").press("Tab")
        await expect(page.get_by_label("Status").get_by_text("Draft saved in this browser")).to_be_visible()
        await studio.site.request("DELETE", "/api/workflows/drawn", headers={"If-Match": "*"})
        await gone.get_by_role("button", name="Close").click()
        await page.unroute_all()
        await studio.open("/")
        await expect(left.get_by_text(name)).to_be_visible()

    await draw_and_lose("Drawn here")
    await studio.picture("left-drafts")
    await left.get_by_role("button", name="Restore").click()
    await expect(page.get_by_label("Name of the workflow")).to_have_value("Drawn here")
    assert json.loads(file.read_text())["name"] == "Drawn here"
    await page.clock.install()
    await draw_and_lose("Drawn again")
    await left.get_by_role("button", name="Discard").click()
    await expect(left).to_have_count(0)
    page.on("request", lambda one: saves.append(one.url) if one.method == "PUT" else None)
    await page.clock.run_for(10_000)
    await page.reload()
    await expect(page.get_by_text("Deleted workflows (1)")).to_be_visible()
    await expect(left).to_have_count(0)
    assert saves == [], "the tab that is still open does not keep it again"
    studio.mistakes.clear()  # the browser names the requests that were cut
