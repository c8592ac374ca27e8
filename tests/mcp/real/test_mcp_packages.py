"""MCP servers by the name of their package alone: installed once in the sandbox, run without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from helpers.mcp_desk import ALLOWED, SERVERS, Desk, make_project
from helpers.repetition import Failures

from tavern_host import Host
from tavern_mcp.api.servers import MCP_SERVERS

pytest.importorskip("mcp", reason="needs the extra: pip install tavern-host[mcp]")


async def test_servers_are_run_by_the_name_of_their_package(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    servers = {
        "time": {"pypi": "mcp-server-time", "args": ["--local-timezone=UTC"]},
        "memory": {
            "npm": "@modelcontextprotocol/server-memory",
            "env": {"MEMORY_FILE_PATH": str(notes / "memory.jsonl")},
            "write": [str(notes)],
        },
        "none": {"pypi": "packaging"},
        "other": {"npm": "@modelcontextprotocol/server-memory", "command": "mcp-server-memorial"},
        "absent": {"npm": "@tavern-host/there-is-no-such-package"},
        "odd": {"npm": "../../etc", "start_seconds": 5},
    }
    folders = make_project(tmp_path, {SERVERS: {**servers, "both": {"npm": "a", "url": "http://127.0.0.1:9/"}}})
    async with Host(tmp_path / "project", folders=folders) as host:
        desk, service = Desk(host), host.services.get(MCP_SERVERS)
        problems = dict(zip(servers, await asyncio.gather(*(desk.connect(name) for name in servers)), strict=True))
        if "could not" in problems["time"] or "resolve" in problems["time"]:
            pytest.skip(f"no registry can be reached: {problems['time'][:300]}")
        with Failures() as failures:
            with failures.row("PyPI"):
                now = await desk.call("mcp:time/get_current_time", timezone="UTC")
                assert now.error is None and "UTC" in str(now.structured), now
            with failures.row("npm"):
                entity = {"name": "Ada", "entityType": "guest", "observations": ["likes tea"]}
                made = await desk.call("mcp:memory/create_entities", entities=[entity])
                assert made.error is None, made
                assert "likes tea" in (notes / "memory.jsonl").read_text()
            for name, said in (
                ("none", "the package packaging has no one program that is meant; it has none"),
                ("other", "has no program 'mcp-server-memorial'; it has mcp-server-memory"),
                ("absent", "there-is-no-such-package"),
                ("odd", "the package ../../etc"),
            ):
                with failures.row(name):
                    assert said in problems[name]
            shown = {one.name: one for one in await service.servers()}
            with failures.row("what is shown"):
                assert shown["time"].shown == [
                    "installs mcp-server-time from PyPI, and runs it with --local-timezone=UTC"
                ]
                assert shown["both"].problem == 'it needs one of "command", "npm", "pypi" and "url"'
    async with Host(tmp_path / "project", folders=folders) as host:
        assert await Desk(host).connect("time") == "", "what is installed is there for the next host"


async def test_the_server_for_files_changes_its_folder_alone(tmp_path: Path) -> None:
    shared, hidden = tmp_path / "shared", tmp_path / "hidden"
    for folder in (shared, hidden):
        folder.mkdir()
        (folder / "note.txt").write_text(f"a note in {folder.name}\n")
    (shared / "way out").symlink_to(hidden)
    package = "@modelcontextprotocol/server-filesystem"
    servers = {
        "files": {"npm": package, "args": [str(shared)], "write": [str(shared)]},
        "greedy": {"npm": package, "args": [str(shared), str(hidden)], "write": [str(shared)], "read": [str(hidden)]},
    }
    folders = make_project(tmp_path, {SERVERS: servers})
    async with Host(tmp_path / "project", folders=folders) as host:
        desk = Desk(host)
        await connected(desk, *servers)
        change = {"oldText": "a note", "newText": "one note"}
        steps: list[tuple[str, str, dict[str, Any], str]] = [
            ("files", "read_text_file", {"path": f"{shared}/note.txt"}, "a note in shared"),
            ("files", "write_file", {"path": f"{shared}/主题.txt", "content": "灯塔"}, ""),
            ("files", "read_text_file", {"path": f"{shared}/主题.txt"}, "灯塔"),
            ("files", "edit_file", {"path": f"{shared}/note.txt", "edits": [change]}, "one note in shared"),
            ("files", "create_directory", {"path": f"{shared}/old"}, ""),
            ("files", "move_file", {"source": f"{shared}/note.txt", "destination": f"{shared}/old/note.txt"}, ""),
            ("files", "list_directory", {"path": str(shared)}, "[DIR] old"),
            ("files", "search_files", {"path": str(shared), "pattern": "**/*.txt"}, f"{shared}/old/note.txt"),
            ("greedy", "read_text_file", {"path": f"{hidden}/note.txt"}, "a note in hidden"),
        ]
        refused: list[tuple[str, str, dict[str, Any], str]] = [
            ("files", "read_text_file", {"path": f"{hidden}/note.txt"}, "outside allowed directories"),
            ("files", "read_text_file", {"path": f"{shared}/../hidden/note.txt"}, "outside allowed directories"),
            ("files", "write_file", {"path": f"{hidden}/new.txt", "content": "x"}, "outside allowed directories"),
            ("files", "write_file", {"path": f"{shared}/way out/new.txt", "content": "x"}, ""),
            ("greedy", "write_file", {"path": f"{hidden}/new.txt", "content": "x"}, "EROFS"),
            ("greedy", "edit_file", {"path": f"{hidden}/note.txt", "edits": [change]}, "EROFS"),
        ]
        with Failures() as failures:
            for server, tool, arguments, said in steps:
                with failures.row(f"{server}: {tool} {arguments}"):
                    result = await desk.call(f"mcp:{server}/{tool}", **arguments)
                    assert result.status == "done" and said in str(result.content), result
            for server, tool, arguments, said in refused:
                with failures.row(f"{server}: {tool} {arguments} is refused"):
                    result = await desk.call(f"mcp:{server}/{tool}", **arguments)
                    assert result.status == "error" and said in str(result.error), result
    assert [path.name for path in hidden.iterdir()] == ["note.txt"]
    assert (hidden / "note.txt").read_text() == "a note in hidden\n"
    assert (shared / "主题.txt").read_text() == "灯塔"
    assert (shared / "old" / "note.txt").read_text() == "one note in shared\n"


@pytest.fixture
async def site() -> AsyncIterator[TestServer]:
    """Give a site with pages; robots are asked to leave one of them."""
    pages = {
        "/robots.txt": ("text/plain", "User-agent: *\nDisallow: /private\n"),
        "/page": ("text/html", "<html><body><h1>The lighthouse</h1><p>Its keeper is <b>Ada</b>.</p></body></html>"),
        "/private": ("text/html", "<html><body><p>not for robots</p></body></html>"),
    }

    async def answer(request: web.Request) -> web.Response:
        kind, text = pages[request.path]
        return web.Response(content_type=kind, text=text)

    app = web.Application()
    for path in pages:
        app.router.add_get(path, answer)
    async with TestServer(app) as server:
        yield server


async def test_the_server_for_pages_reaches_its_hosts_alone(tmp_path: Path, site: TestServer) -> None:
    address = f"127.0.0.1:{site.port}"
    fetch = {"pypi": "mcp-server-fetch", "args": ["--allow-private-ips"], "env": {"PATH": "/none"}, "startSeconds": 60}
    servers = {"fetch": {**fetch, "hosts": [address]}, "offline": fetch}
    folders = make_project(tmp_path, {SERVERS: servers, ALLOWED: [address]})
    async with Host(tmp_path / "project", folders=folders) as host:
        desk = Desk(host)
        await connected(desk, *servers)
        with Failures() as failures:
            for server, path, more, status, said in (
                ("fetch", "page", {}, "done", "# The lighthouse\n\nIts keeper is Ada."),
                ("fetch", "page", {"raw": True}, "done", "<h1>The lighthouse</h1>"),
                ("fetch", "page", {"raw": True, "max_length": 20, "start_index": 6}, "done", "<body>"),
                ("fetch", "private", {}, "error", "robots.txt"),
                ("offline", "page", {}, "error", "connection issue"),
            ):
                with failures.row(f"{server}: {path} {more}"):
                    result = await desk.call(f"mcp:{server}/fetch", url=f"http://{address}/{path}", **more)
                    told = result.error.message if result.error else str(result.content[0].text)
                    assert result.status == status and said in told, result
            with failures.row("a host that is not granted"):
                async with TestServer(web.Application()) as other:
                    result = await desk.call("mcp:fetch/fetch", url=f"http://127.0.0.1:{other.port}/")
                    assert result.status == "error", result


async def connected(desk: Desk, *servers: str) -> None:
    """Connect servers; the test is skipped where their packages cannot be had."""
    problems = await asyncio.gather(*(desk.connect(name) for name in servers))
    if any("could not" in problem or "resolve" in problem for problem in problems):
        pytest.skip(f"no registry can be reached: {problems[0][:300]}")
    assert problems == [""] * len(servers)
