"""The files of plugins' front ends: those of loaded plugins, and nothing else of this machine."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.ui import FrontendFiles
from tavern_host.projects import Folders
from tavern_host.testing.http import TOKEN, HttpClient, served

ACME = Path(__file__).parent / "plugins" / "acme_web"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """Serve a copy of the plugin, in whose folder links appear once it is loaded."""
    tmp_path = tmp_path_factory.mktemp("files")
    plugin = tmp_path / "acme_web"
    shutil.copytree(ACME, plugin)
    folders = Folders(tmp_path / "config", tmp_path / "state", tmp_path / "data")
    host = Host(tmp_path / "inn", plugins=[plugin], trust=["acme-web"], folders=folders)
    async with host, served(host) as opened:
        (tmp_path / "outside.txt").write_text("secret\n")
        (plugin / "web" / "out.txt").symlink_to(tmp_path / "outside.txt")
        (plugin / "web" / "up").symlink_to(tmp_path)
        (plugin / "web" / "round").symlink_to(plugin / "web" / "round")
        (plugin / "web" / "inner.js").symlink_to(plugin / "web" / "index.js")
        yield opened


def files_of(host: Host) -> FrontendFiles:
    files = host.frontend_files("acme-web")
    assert files is not None
    return files


async def raw(site: HttpClient, path: str) -> bytes:
    """Send a path as it is, which no client library would, and return the whole answer."""
    assert site.host.plugin("acme-web").state.value == "started"
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode("utf-8", "surrogateescape"))
    answer = await reader.read()
    writer.close()
    return answer


async def test_files_of_a_loaded_plugin_are_served(site: HttpClient) -> None:
    for path, kind, begin in (
        ("index.js", "javascript", "export const hello"),
        ("style.css", "text/css", "p {"),
        ("parts/50%25%20off.txt", "text/plain", "half a price"),
    ):
        head, _, body = (await raw(site, f"/plugins/acme-web/{path}")).decode().partition("\r\n\r\n")
        assert head[:12] == "HTTP/1.1 200"
        assert kind in head.lower()
        assert body[: len(begin)] == begin
    shown = (await (await site.get("/api/plugins/acme-web")).json())["frontend"]
    version = str(shown["entryUrl"]).split("/")[3]
    assert re.fullmatch("@[0-9a-f]{32}", version)
    told = [shown["entryUrl"], *shown["styleUrls"]]
    assert told == [f"/plugins/acme-web/{version}/{file}" for file in ("index.js", "style.css")]
    for address in told:
        answer = await site.get(address)
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "private, max-age=31536000, immutable")


NOT_SERVED = """
    . .. parts parts/ nowhere.js index.js/more ../plugin.yaml ../__init__.py parts/../../plugin.yaml
    %2e%2e/plugin.yaml %2E%2E%2Fplugin.yaml %252e%252e/plugin.yaml ..%5Cplugin.yaml ..\\plugin.yaml
    /etc/passwd %2Fetc%2Fpasswd .secret .hidden/secret.txt parts/../.secret %2esecret
    out.txt up/outside.txt round index.js%00 index.js%00.css inner.js %ff
    @VERSION @VERSION/ @VERSION/. @VERSION/.. @VERSION/../index.js @VERSION/../../plugin.yaml
    @VERSION/%2e%2e/plugin.yaml @VERSION//index.js @VERSION/./index.js @VERSION/parts/../index.js
    @VERSION/parts%2F..%2Findex.js @VERSION/@VERSION/index.js @VERSION/.secret @VERSION/up/outside.txt
    @VERSION/index.js%00 @/index.js @VERSION0/index.js VERSION/index.js
"""
"""Below a plugin that is loaded."""


async def test_nothing_else_is_served(site: HttpClient) -> None:
    version = files_of(site.host).version
    zeros = "0" * 32
    paths = ["", "a" * 300, "a/" * 2000, f"@{zeros}/index.js", f"%40{zeros}/index.js", *NOT_SERVED.split()]
    others = ["nobody", "..", "%2e%2e", "tavern-engine", "acme_web", "ACME-WEB"]  # not loaded, or without a front end
    with Failures() as failures:
        for path in [*(f"acme-web/{path}" for path in paths), *(f"{name}/index.js" for name in others)]:
            asked = path.replace("@VERSION", version.rstrip("/")).replace("VERSION", version[1:-1])
            with failures.row(path[:60]):
                answer = (await raw(site, f"/plugins/{asked}")).decode()
                assert answer.startswith("HTTP/1.1 404"), answer[:200]
                assert "secret\n" not in answer and "displayName" not in answer


async def test_a_file_is_served_as_it_was_loaded(site: HttpClient) -> None:
    files = files_of(site.host)  # of a plugin that nobody had to review
    style, before = files.folder / "style.css", (files.folder / "style.css").read_bytes()
    style.write_text("p { background: url(//evil.example) }")
    try:
        for version in ("", files.version):
            answer = await site.get(f"/plugins/acme-web/{version}style.css")
            assert (answer.status, (await answer.json())["code"]) == (403, "not_reviewed")
    finally:
        style.write_bytes(before)
    assert (await site.get(f"/plugins/acme-web/{files.version}style.css")).status == 200


async def test_the_files_go_with_the_plugin(tmp_path: Path) -> None:
    async with Host(tmp_path / "inn", plugins=[ACME]) as host, served(host) as site:
        assert host.plugin("acme-web").state.value == "needs-review"
        for decision, status in (("", 404), ("grant", 200), ("revoke", 404)):
            assert not decision or (await site.post(f"/api/plugins/acme-web/{decision}")).status == 200
            for path in ("/plugins/acme-web/index.js", "/api/x/acme-web/page"):
                assert (await site.get(path)).status == status, (decision, path)


async def test_files_changed_since_their_review_are_not_served(tmp_path: Path) -> None:
    project = tmp_path / "inn"
    web = project / "plugins" / "acme_web" / "web"
    shutil.copytree(ACME, web.parent)
    (web / "link.css").symlink_to("style.css")
    host = Host(project, create=True)
    host.link()
    assert host.plugin("acme-web").state.value == "needs-review"
    await host.grant("acme-web")
    async with host, served(host) as site:
        version = files_of(host).version
        for file, kind in (("index.js", "text/javascript"), ("style.css", "text/css"), ("link.css", "text/css")):
            for address in (f"/plugins/acme-web/{file}", f"/plugins/acme-web/{version}{file}"):
                before = await site.get(address)
                told = (before.status, before.content_type, await before.read())
                assert told == (200, kind, (web / file).read_bytes())
                (web / file).write_text("steal()")
                after = await site.get(address)
                assert (after.status, (await after.json())["code"]) == (403, "not_reviewed")
                assert after.headers["Cache-Control"] == "no-store"
                shutil.copy(ACME / "web" / (web / file).resolve().name, web / file)
        (web / "style.css").unlink()
        (web / "style.css").symlink_to("/dev/zero")  # what never ends is not read
        assert (await site.get(f"/plugins/acme-web/{version}style.css")).status == 404
        (web / "style.css").unlink()
        (web / "style.css").write_text("p { color: red }")
        (web / "new.js").write_text("steal()")
        assert (await site.get("/plugins/acme-web/new.js")).status == 404

        await host.reload("acme-web")
        assert (await site.get(f"/plugins/acme-web/{version}index.js")).status == 404  # it waits for a review
        await host.grant("acme-web")
        now = files_of(host).version
        assert (await site.get(f"/plugins/acme-web/{now}new.js")).status == 200
        assert (await site.get(f"/plugins/acme-web/{version}index.js")).status == 404, "an address of another version"


async def test_a_plugin_whose_front_end_is_a_link_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    plugin = tmp_path / "acme_web"
    shutil.copytree(ACME, plugin)
    (plugin / "web").rename(tmp_path / "elsewhere")
    (plugin / "web").symlink_to(tmp_path / "elsewhere")

    async with Host(tmp_path / "inn", plugins=[plugin], trust=["acme-web"]) as host, served(host) as site:
        assert "started" not in {p.state.value for p in host.plugins() if not p.first_party}
        assert (await site.get("/plugins/acme-web/index.js")).status == 404
