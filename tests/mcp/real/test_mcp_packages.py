"""MCP servers by the name of their package alone: installed once in the sandbox, run without a network."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.mcp_desk import SERVERS, Desk, make_project
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.errors import TavernError
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
        problems = dict(zip(servers, await asyncio.gather(*(connected(host, name) for name in servers)), strict=True))
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
        assert await connected(host, "time") == "", "what is installed is there for the next host"


async def connected(host: Host, name: str) -> str:
    """Connect a server, which installs it first; return why that was not possible."""
    from tavern_mcp.entry import servers_of

    try:
        return await (await servers_of(host._manager.active["tavern-mcp"].context)).connect(name)
    except TavernError as error:
        return error.message
