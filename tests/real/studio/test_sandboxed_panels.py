"""Panels that run in frames: what they have, and all that they try in vain."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, Frame, Page, expect
from studio_bench import WAIT, WIDE, read_until, show

from tavern_host import Host
from tavern_host.testing.http import served

ACME = Path(__file__).parent / "plugins" / "acme_frame"


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve an empty page to everybody; give its address and the first line of whatever comes."""
    heard: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), 0.3)
        except TimeoutError:
            heard.append("connected")
            line = await reader.readline()  # of one that was slow
        heard.append(line.decode().partition(" HTTP")[0] or "connected")
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nAccess-Control-Allow-Origin: *\r\n"
        page = '<link rel="icon" href="data:,">'  # else a whole Chromium asks for /favicon.ico by itself
        writer.write(f"{head}Content-Length: {len(page)}\r\nConnection: close\r\n\r\n{page}".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


async def in_panel(page: Page, title: str) -> Frame:
    """Open a panel, and return its frame."""
    await page.get_by_role("button", name=title, exact=True).click()
    handle = await page.locator("aside iframe").element_handle()
    frame = await handle.content_frame() if handle is not None else None
    assert frame is not None
    return frame


async def test_a_sandboxed_panel_reaches_nothing_but_its_plugin(browser: Browser, tmp_path: Path) -> None:
    host = Host(tmp_path / "inn", plugins=[ACME], trust=["acme-frame"])
    async with listening() as (outside, heard), host, served(host) as site:
        free = await browser.new_page()
        free.set_default_timeout(WAIT)
        freely = f"{outside}/free"
        await free.goto(freely)
        script = (ACME / "web" / "panel.js").read_text()
        address = "URL.createObjectURL(new Blob([script], {type: 'text/javascript'}))"
        leaving = ["leave at the top", "form", "link to the top"]
        attack = f"async ([script, ...given]) => (await import({address})).attack(...given)"

        def heard_of_panels() -> set[str]:
            return {line for line in heard if "/free" not in line}

        async def reached_freely() -> set[str]:
            told = await free.evaluate(attack, [script, freely, freely, leaving])
            return {name for name, became in told.items() if became.startswith("REACHED")}

        wanted = {"cookie", "localStorage", "parent document", "fetch without cors", "worker", "eval"}
        may = await read_until(lambda may: wanted <= may, reached_freely)  # each attack has a second
        assert wanted <= may
        elements = {"window", "fetch", "ws", "events", "module.js", "picture", "style.css", "script.js", "frame"}
        quiet = {"beacon", "preload", "prefetch", "import.css", "back", "font", "ping", "connected"}
        while missing := (elements | quiet) - {line.rpartition("/")[2] for line in heard}:
            await asyncio.sleep(0.1)  # until the test's deadline
            print("not heard of yet:", missing)
        await free.close()

        answer = await site.post("/api/plugins/acme-frame/settings", json={"outside": outside})
        assert answer.status == 200, await answer.text()
        context = await browser.new_context(**WIDE)
        studio = await show(context, site)
        page = studio.page
        frame = await in_panel(page, "Attack")
        await expect(frame.locator("main")).to_contain_text("told")
        await studio.picture("sandboxed-panel")
        found = json.loads(await frame.locator("main").inner_text())
        reached = {name: became for name, became in found["told"].items() if became.startswith("REACHED")}
        # A connection for a frame that is then refused may be there; nothing is sent (docs/security.md).
        assert (reached, heard_of_panels() - {"connected"}) == ({}, set())
        assert found["told"]["peer connection"] == "refused: ReferenceError"
        assert found["echoed"] == {"sent": {"a": 1}}
        assert (found["color"], found["plugin"]["name"]) == ("rgb(1, 2, 3)", "acme-frame")

        await page.keyboard.press("Control+Shift+U")
        await expect(frame.locator("main")).to_have_text("SHOUTED")
        await site.post("/api/plugins/acme-frame/settings", json={"outside": f"{outside}/b"})
        await expect(frame.locator("main")).to_have_text(f"CHANGED {outside}/b")

        for title, why in (("Flood", "asked too much"), ("Garbage", "what is no message"), ("Leave", "another page")):
            await page.get_by_role("button", name=title, exact=True).click()
            await expect(page.locator("aside").get_by_role("alert")).to_contain_text(why)
            assert await page.locator("aside iframe").count() == 0
        await late_ones_are_closed(page)
        await host.disable("acme-frame")
        await expect(page.locator("iframe")).to_have_count(0)
        assert heard_of_panels() <= {"connected"}
        await context.close()


async def late_ones_are_closed(page: Page) -> None:
    """Let ten seconds pass for a panel that does not begin, and for one whose document does not come; try it again."""
    aside = page.locator("aside")
    await page.clock.install()
    await in_panel(page, "Late")
    await page.clock.fast_forward(10_000)
    await expect(aside.get_by_role("alert")).to_contain_text("did not begin within ten seconds")
    await page.route("**/sandbox?*", lambda route: None)  # nobody answers
    await aside.get_by_role("button", name="Try again").click()
    await expect(aside.locator("iframe")).to_have_count(1)
    await page.clock.fast_forward(10_000)
    await expect(aside.get_by_role("alert")).to_contain_text("did not begin within ten seconds")
    await page.unroute("**/sandbox?*")
    await aside.get_by_role("button", name="Try again").click()
    await expect(aside.locator("iframe")).to_have_count(1)
