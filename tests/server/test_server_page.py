"""The page at `/`: every plugin with its state and reason, every node and tool, and nobody's markup."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from helpers.folder_plugins import INTERCEPTING, write_plugin

from tavern_host import Host
from tavern_host.testing.http import HttpClient, served

SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(2)>'


class Page(HTMLParser):
    """The text and the elements of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    @property
    def text(self) -> str:
        """The text, with one space between words."""
        return " ".join(" ".join(self._text).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of all elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


async def page_of(site: HttpClient) -> Page:
    answer = await site.get("/")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    return Page(await answer.text())


async def test_every_plugin_node_and_tool_is_on_the_page(site: HttpClient) -> None:
    page = await page_of(site)

    for plugin in site.host.plugins():
        assert f"{plugin.display_name} {plugin.name}" in page.text
    for shown in ("core:TextMerge", "core:LlmApiRequest", "text:shout", "workflow:greeting"):
        assert shown in page.text
    assert "Answer HTTP requests and socket messages of its own." in page.text


async def test_a_plugin_that_is_not_loaded_says_why_and_what_it_asks_for(tmp_path: Path) -> None:
    folder = tmp_path / "inn" / "plugins"
    write_plugin(folder / "waiting", {"__init__.py": ""}, **INTERCEPTING)
    write_plugin(folder / "failing", {"__init__.py": "raise RuntimeError('no luck')"})
    write_plugin(folder / "invalid", version="one")
    write_plugin(folder / "future", apiVersion=">=9")
    async with Host(tmp_path / "inn", trust=["failing"]) as host, served(host) as site:
        page = await page_of(site)

    assert "waiting 1.0.0 needs-review it asks for hook:server:workflow:before-execute, code:sha256:" in page.text
    assert "2 asked for, 2 not granted" in page.text
    assert "failing 1.0.0 failed" in page.text and "RuntimeError: no luck" in page.text
    assert "invalid" in page.text and "must be a version such as 1.0.0" in page.text
    assert "future 1.0.0 incompatible" in page.text and "it is made for tavern-host >=9" in page.text


async def test_a_tool_that_cannot_be_called_says_why(tmp_path: Path) -> None:
    tools = tmp_path / "inn" / "tools"
    tools.mkdir(parents=True)
    script = {"type": "script", "command": "true"}
    (tools / "x.tool.json").write_text(json.dumps({"id": "run:it", "implementation": script}))
    async with Host(tmp_path / "inn", without=["tavern-scripts"]) as host, served(host) as site:
        page = await page_of(site)

    assert "run:it script needs service scriptExecution" in page.text


@pytest.mark.parametrize("hostile", [SCRIPT, IMAGE], ids=["script", "image"])
async def test_nobodys_markup_becomes_part_of_the_page(tmp_path: Path, hostile: str) -> None:
    root = tmp_path / "inn"
    write_plugin(root / "plugins" / "guest", displayName=hostile, description=hostile)
    write_plugin(root / "plugins" / "broken", displayName=hostile, **{hostile: 1})
    write_plugin(root / "plugins" / "fails", {"__init__.py": f"raise RuntimeError({hostile!r})"}, displayName="Fails")
    (root / "tools").mkdir()
    node = {"type": "node", "nodeType": "core:UpperCase"}
    tool = {"id": hostile, "displayName": hostile, "description": hostile, "implementation": node}
    (root / "tools" / "x.tool.json").write_text(json.dumps(tool))
    (root / "tavern.yaml").write_text(f"name: {json.dumps(hostile)}\n")
    async with Host(root, trust=["fails"]) as host, served(host) as site:
        page = await page_of(site)

    assert page.text.count(hostile) >= 5
    assert page.all("script") == [
        {"type": "module", "src": f"/projects/{host.project.id}/plugins/tavern-studio/studio.js"}
    ]
    assert page.all("img") == []
    assert not [attributes for _, attributes in page.elements if any(name.startswith("on") for name in attributes)]


async def test_all_that_the_page_loads_is_there(site: HttpClient) -> None:
    page = await page_of(site)

    addresses = [e["src"] for e in page.all("script")] + [e["href"] for e in page.all("link")]
    assert len(addresses) == 3
    for address in addresses:
        assert address is not None and address.startswith("/")  # what the content security policy lets in
        assert (await site.get(address)).status == 200
    ids, which = {attributes.get("id") for _, attributes in page.elements}, f"?projectId={site.host.project.id}"
    assert {link["href"] for link in page.all("a")} <= {f"/{which}#{id}" for id in ids} | {f"/api/docs{which}"}


async def test_the_page_needs_no_script_or_style_of_its_own(site: HttpClient) -> None:
    page = await page_of(site)

    assert page.all("style") == []
    assert all("style" not in attributes for _, attributes in page.elements)
    assert all(script.get("src") for script in page.all("script"))


async def test_without_its_services_the_page_says_who_is_missing(tmp_path: Path, operator_folders: Path) -> None:
    (operator_folders / "config").mkdir(parents=True)
    (operator_folders / "config" / "host.yaml").write_text("disabled: [tavern-engine, tavern-tools]\n")
    async with Host(tmp_path / "inn") as host, served(host) as site:
        page = await page_of(site)

    assert "No plugin provides the service nodeManager." in page.text
    assert "No plugin provides the service toolManager." in page.text
    assert "the operator has disabled it" in page.text


async def test_the_page_of_the_http_interface_is_served_with_its_script(site: HttpClient) -> None:
    page = await site.get("/api/docs")
    assert (page.status, page.content_type) == (200, "text/html")
    address = f"/projects/{site.host.project.id}/plugins/tavern-studio/api.js"
    assert f'src="{address}"' in await page.text()
    script = await site.get(address)
    assert (script.status, script.content_type) in ((200, "text/javascript"), (200, "application/javascript"))
