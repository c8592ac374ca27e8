"""How much comes to a browser that opens the editor."""

from __future__ import annotations

from helpers.repetition import Failures
from playwright.async_api import Browser
from studio_bench import Studio

from benchmarks.studio import transferred
from tavern_host.testing.http import TOKEN


async def test_the_editor_is_packed_and_kept(studio: Studio, browser: Browser) -> None:
    await studio.site.get("/api/nodes")  # plugins begin work with their first use, which changes the list of them
    context = await browser.new_context()
    page, url = await context.new_page(), f"http://127.0.0.1:{studio.site.port}"
    cold, again = await transferred(page, f"{url}/?token={TOKEN}#/workflows/greeting")
    assert 100_000 < cold <= 400_000
    assert 0 < again <= 20_000
    await context.close()


async def test_files_are_sent_as_their_browser_takes_them(studio: Studio) -> None:
    with Failures() as failures:
        for path, taken, encoding in (
            ("studio.js", "gzip, br", "br"),
            ("studio.js", "gzip", "gzip"),
            ("studio.js", "identity", None),
            ("icon.svg", "gzip, br", None),
        ):
            with failures.row((path, taken)):
                headers = {"Accept-Encoding": taken}
                where = f"/plugins/tavern-studio/{path}"
                answer = await studio.site.get(where, headers=headers, auto_decompress=False)
                assert (answer.headers.get("Content-Encoding"), answer.status) == (encoding, 200)
                assert answer.headers["Cache-Control"] == "private, no-cache"
                known = {**headers, "If-None-Match": answer.headers["ETag"]}
                assert (await studio.site.get(where, headers=known)).status == 304
