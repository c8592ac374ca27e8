"""What feeds become in a knowledge base, read by the tool and by the trigger from a server of 127.0.0.1."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tavern_host import EXECUTION_ENGINE, TOOL_MANAGER, Host
from tavern_host.contracts.executions import RunRequest
from tavern_host.testing import MakeHost
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, ActivationCriteria, KnowledgeEntry
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult
from tavern_triggers.api.triggers import TRIGGER_MANAGER

pytest.importorskip("feedparser")
pytestmark = pytest.mark.tavern(plugins=["../rss_to_knowledge"])

FEEDS = "extensions.rss-to-knowledge.feeds"


def rss(*items: tuple[str, str, str], head: str = "") -> str:
    """Return an RSS feed with items, each a guid, a title and a description."""
    parts = "".join(
        f"<item><guid>{guid}</guid><title>{title}</title><link>https://example.org/{guid}</link>"
        f"<description>{text}</description><pubDate>Mon, 30 Nov 2026 08:00:00 +0100</pubDate></item>"
        for guid, title, text in items
    )
    return f'<?xml version="1.0"?>{head}<rss version="2.0"><channel><title>Harbour</title>{parts}</channel></rss>'


ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Tides</title><entry><id>urn:1</id><title>High tide</title>
<link href="https://example.org/tide"/><updated>2026-11-30T08:00:00Z</updated>
<content type="html">&lt;p&gt;At &lt;b&gt;nine&lt;/b&gt;.&lt;/p&gt;</content></entry></feed>"""


class Site:
    """What each path answers with; a path that is not there is 404."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.address = ""

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/moved":
            return web.Response(status=301, headers={"Location": "https://example.org/other"})
        page = self.pages.get(request.path)
        return web.Response(status=404) if page is None else web.Response(text=page, content_type="text/xml")

    def settings(self, *paths: str) -> dict[str, Any]:
        return {FEEDS: "\n".join(self.address + path for path in paths)}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site, app = Site(), web.Application()
    app.router.add_get("/{path:.*}", site.handle)
    async with TestServer(app) as server:
        site.address = str(server.make_url("")).rstrip("/")
        yield site


async def read(host: Host) -> ToolResult:
    return await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id="rss:read"))


async def entries(host: Host) -> list[KnowledgeEntry]:
    page = await host.services.get(KNOWLEDGE_BASE).list_entries("news")
    return [one.entry for one in page.entries]


async def test_items_become_entries_that_are_found(make_host: MakeHost, site: Site) -> None:
    site.pages = {"/rss": rss(("1", "Fog &amp; rain", "&lt;p&gt;No ships today.&lt;/p&gt;")), "/atom": ATOM}
    async with make_host(settings=site.settings("/rss", "/atom")) as host:
        result = await read(host)
        assert result.structured == {"new": 2, "updated": 0, "problems": []}
        found = await host.services.get(KNOWLEDGE_BASE).search("ships", bases=["news"])
        assert [(hit.name, hit.tags) for hit in found] == [("Fog & rain", ["Harbour"])]
        tide = (await entries(host))[1]
    assert (tide.display_name, tide.content.value) == ("High tide", "At nine.\nhttps://example.org/tide")
    assert tide.management_metadata.created_at == "2026-11-30T08:00:00+00:00"


async def test_an_item_is_one_entry_which_is_updated_and_never_removed(make_host: MakeHost, site: Site) -> None:
    site.pages = {"/rss": rss(("1", "One", "first"), ("2", "Two", "second"))}
    async with make_host(settings=site.settings("/rss")) as host:
        await read(host)
        one, two = await entries(host)
        mine = one.model_copy(update={"activation_criteria": ActivationCriteria(keywords=["somebody's own"])})
        await host.services.get(KNOWLEDGE_BASE).put("news", [mine])
        assert (await read(host)).structured == {"new": 0, "updated": 0, "problems": []}
        site.pages = {"/rss": rss(("3", "Three", "third"), ("1", "One, corrected", "better"))}
        assert (await read(host)).structured == {"new": 1, "updated": 1, "problems": []}
        now = await entries(host)
    assert [entry.display_name for entry in now] == ["One, corrected", "Two", "Three"]
    assert (now[0].id, now[0].activation_criteria.keywords) == (one.id, ["somebody's own"])
    assert now[1] == two


async def test_a_feed_that_fails_is_named_and_the_others_are_read(make_host: MakeHost, site: Site) -> None:
    site.pages = {
        "/rss": rss(("1", "One", "first")).replace("<link>https://example.org/1</link>", ""),
        "/page": "<html><body>Hello</body></html>",
    }
    async with make_host(settings=site.settings("/gone", "/moved", "/page", "/rss")) as host:
        result: Any = (await read(host)).structured
        (entry,) = await entries(host)
    assert (result["new"], entry.content.value) == (1, "first")  # its guid is not taken for a link
    said = ["answered with 404", "has moved to https://example.org/other", "no RSS or Atom feed"]
    assert [text in problem for text, problem in zip(said, result["problems"], strict=True)] == [True] * 3


async def test_entities_neither_read_files_nor_grow(make_host: MakeHost, site: Site) -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    head = f'<!DOCTYPE rss [<!ENTITY l0 "ha">{laughs}<!ENTITY f SYSTEM "file:///etc/passwd">]>'
    site.pages = {"/rss": rss(("1", "One", "&l9;"), ("2", "Two", "&f;"), head=head)}
    async with make_host(settings=site.settings("/rss")) as host:
        await read(host)
        text = " ".join(entry.content.value for entry in await entries(host))
    assert len(text) < 1000
    assert "root:" not in text


async def test_what_stands_before_a_feed_cannot_hold_the_host_up(make_host: MakeHost, site: Site) -> None:
    site.pages = {"/a": rss(("1", "One", "")), "/b": rss(("2", "Two", ""), head="\n<!ENTITY " * 3_000)}
    async with make_host(settings=site.settings("/a", "/b")) as host:
        result: Any = (await read(host)).structured
    (problem,) = result["problems"]
    assert (result["new"], "/b: what is there is no RSS or Atom feed" in problem) == (1, True)


async def test_the_trigger_is_off_until_somebody_enables_it_and_runs_the_workflow(
    make_host: MakeHost, site: Site
) -> None:
    site.pages = {"/rss": rss(("1", "One", "first"))}
    async with make_host(settings=site.settings("/rss")) as host:
        trigger = await host.services.get(TRIGGER_MANAGER).get("rss-to-knowledge")
        assert (trigger.status, trigger.plugin) == ("off", "rss-to-knowledge")
        run = await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow_id="rss-to-knowledge/read"))
        assert run.outputs == {"new": 1, "updated": 0, "problems": []}


async def test_without_feeds_it_says_what_to_set(host: Host) -> None:
    result = await read(host)
    assert result.error is not None
    assert "set rss-to-knowledge.feeds" in result.error.message
