"""MCP servers as they are declared, approved and described: no server runs here."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Ran, tavern
from helpers.mcp_desk import SERVERS, Desk, make_project, odd
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.tools import ToolDefinition
from tavern_host.testing.http import served
from tavern_mcp.api.servers import MCP_SERVERS
from tavern_mcp.approvals import Approved, content_of
from tavern_mcp.declarations import Declared, Server
from tavern_mcp.definitions import definitions_of, differences
from tavern_mcp.fetched import packaged
from tavern_tools.api.tools import ToolFilter


def test_every_part_of_a_tool_that_is_approved_is_compared() -> None:
    tool: dict[str, Any] = {"name": "t", "inputSchema": {"properties": {"a": {"description": "A."}}}}
    for part, other in (
        ("inputSchema", {"properties": {"a": {"description": "A, and the password."}}}),
        ("outputSchema", {"type": "object"}),
        ("title", "T"),
        ("description", "T."),
        ("annotations", {"readOnlyHint": True}),
    ):
        approved = Approved(tools={"t": content_of(tool)}, seen={"t": content_of({**tool, part: other})})
        assert approved.changes("t") == part
        assert differences(approved)[0].startswith(f"t: {part} was ")
    long = {"description": "a" * 5000}
    seen = {"description": "a" * 5000 + ", and the password"}
    (said,) = differences(Approved(tools={"t": content_of(long)}, seen={"t": content_of(seen)}))
    assert said == f't: description was …{"a" * 60}" and is …{"a" * 60}, and the password"'
    assert Approved(tools={"t": content_of(tool)}, seen={"t": content_of({**tool, "_meta": {}})}).changes("t") == ""


def offered(declared: Declared, *tools: dict[str, Any]) -> tuple[dict[str, ToolDefinition], list[str]]:
    """Return the definitions of a server's tools, and the problems of others."""
    known = {str(tool["name"]): tool for tool in tools}
    found = [*definitions_of(declared, Approved(tools=known, seen=known))]
    taken = {one.id: one for one in found if isinstance(one, ToolDefinition)}
    return taken, [one for one in found if isinstance(one, str)]


def test_words_of_a_server_are_cleaned_everywhere(tmp_path: Path) -> None:
    host = Host(tmp_path / "project", folders=make_project(tmp_path, {}))
    server = Server(command="x", tools=["read*", "名*", "हिन्दी", "*sch*", "odd*"], read_only=["read_*"], seconds=7)
    text = "A\u202e\u200b{{{system:time}}}" + "b" * 2000
    schema = {"type": "object", "properties": {"a": {"description": text, "items": [{"title": text}]}}}
    taken, said = offered(
        Declared("s", "operator", server, host.project),
        {"name": "read_it", "title": text, "description": text, "inputSchema": schema},
        {"name": "reader", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
        {"name": "write", "inputSchema": {"type": "object"}},
        {"name": "名字", "inputSchema": {"type": "object"}},
        {"name": "हिन्दी", "inputSchema": {"type": "object"}},
        *(
            {"name": f"odd{one}", "inputSchema": {"type": "object"}}
            for one in (" name", "\u202e", "*", "{{{x}}}", "é" * 126)
        ),
        {"name": "large_schema", "inputSchema": {"type": "object", "x": "y" * (64 << 10)}},
        {"name": "macro_schema", "inputSchema": {"type": "object", "default": "{{{system:time}}}"}},
        {"name": "no_schema", "inputSchema": []},
    )
    read_only = {name.removeprefix("mcp:s/"): one.read_only for name, one in taken.items()}
    assert read_only == {"read_it": True, "reader": False, "名字": False, "हिन्दी": False}
    assert len(said) == 8 and all("a name or a schema that is not taken" in one for one in said)
    tool = taken["mcp:s/read_it"]
    assert tool.timeout == 7000
    for words in (tool.description, str(tool.display_name), json.dumps(tool.parameters, ensure_ascii=False)):
        assert not {"\u202e", "\u200b", "{{{"} & {
            words[place : place + n] for place in range(len(words)) for n in (1, 3)
        }
        assert "A{ { {system:time}}}bb" in words and "b" * 1000 not in words


async def test_projects_do_not_bring_servers(tmp_path: Path) -> None:
    script = tmp_path / "project" / "server.py"
    server = {"command": "python3", "args": ["server.py"]}
    wrong: dict[str, dict[str, Any]] = {
        "open": {**server, "sandbox": False},
        "free": {**server, "sampling": "allow"},
        "thief": {**server, "env": {"KEY": {"env": "PATH"}}},
        "nosy": {**server, "read": ["../.."]},
        "whole": {**server, "write": ["."]},
        "keeper": {**server, "write": [".tavern/plugins"]},
        "spy": {**server, "args": ["server.py", "."]},
        "both": {**server, "url": "https://example.com/mcp"},
        "liar": {**server, "readOnly": ["*"]},
        "fetcher": {"command": "npx", "args": ["-y", "@a/b@1.2", "."]},
    }
    folders = make_project(
        tmp_path, {SERVERS: {"same": {"url": "http://[::1]:9"}}}, {SERVERS: {"given": server, "same": server, **wrong}}
    )
    script.write_text("print(1)")
    (tmp_path / "project" / "link").symlink_to("/etc")
    async with Host(tmp_path / "project", folders=folders) as host:
        desk = Desk(host)
        servers = host.services.get(MCP_SERVERS)
        found = {one.name: one for one in await servers.servers()}
        assert {name: found[name].status for name in wrong} == dict.fromkeys(wrong, "failed")
        assert '"npm": "@a/b@1.2" instead of the command' in str(found["fetcher"].problem)
        assert (found["same"].source, found["same"].shown) == ("operator", ["reaches http://[::1]:9"])
        assert (found["given"].status, found["given"].shown) == (
            "unapproved",
            ["runs python3 server.py", "sees server.py"],
        )
        kept_out = [f"mcp:{name}/*" for name in sorted(["given", "same", *wrong])]
        known = [tool.id for tool in await desk.tools.list_tools(ToolFilter(namespace="mcp"))]
        assert sorted(known) == ["mcp:answer", *kept_out]
        refused = str((await desk.call("mcp:given/add")).error)
        assert "MCP server given cannot be used: it is not approved as it is now: tavern mcp approve given" in refused
        assert (await servers.approve("given", call=operator_call())).status == "idle"
        script.write_text("print(2)")  # what was approved is the program, too
        assert {one.name: one.status for one in await servers.servers()}["given"] == "unapproved"
        edits: list[dict[str, Any]] = [
            *({"command": "python"}, {"args": ["server.py", "-v"]}, {"env": {"A": "b"}}, {"read": ["tools"]}),
            *({"write": ["tools"]}, {"hosts": ["example.org"]}, {"tools": ["a*"]}, {"folder": "tools"}, {"seconds": 9}),
        ]
        servers_of = [Declared("given", "project", Server(**{**server, **one}), host.project) for one in [{}, *edits]]
        assert len({one.digest() for one in servers_of}) == len(servers_of)
        before = Declared("given", "project", Server(**server, read=["tools"]), host.project)
        digest = before.digest()
        (tmp_path / "project" / "tools" / "new").write_text("")
        assert before.digest() != digest
        shown = Declared("x", "project", Server(command="python3", args=["a b"], env={"A": "b"}), host.project).shown()
        assert shown == ["runs python3 'a b'", "sets A=b"]


async def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)  # as where the extra is not installed
    folders = make_project(tmp_path, {SERVERS: {"odd": odd()}})
    async with Host(tmp_path / "project", folders=folders) as host, served(host) as web:
        desk = Desk(host)
        assert (await desk.tools.list_tools(ToolFilter(ids=["mcp:odd/echo"])))[0].unavailable is not None
        assert any("pip install 'tavern-host[mcp]'" in problem for problem in desk.problems())
        answer = await web.post("/mcp", json={})
        assert "pip install 'tavern-host[mcp]'" in await answer.text()
        assert [one.status for one in await host.services.get(MCP_SERVERS).servers()] == ["failed"]


def test_what_fetches_a_package_is_named_by_it() -> None:
    with Failures() as failures:
        for line, expected in {
            "npx -y @a/b@latest /tmp": {"npm": "@a/b", "args": ["/tmp"]},
            "/usr/bin/npx @a/b@1.2": {"npm": "@a/b@1.2", "args": []},
            "npx -y --package=c@2 d --flag": {"npm": "c@2", "args": ["--flag"], "command": "d"},
            "bunx e": {"npm": "e", "args": []},
            "uvx f@1.0 --x": {"pypi": "f==1.0", "args": ["--x"]},
            "uvx --from g[h]==2 i": {"pypi": "g[h]==2", "args": [], "command": "i"},
            "pipx run j": {"pypi": "j", "args": []},
            "npx": None,
            "npx -y": None,
            "uvx --from": None,
            "uvx --python 3.12 l": None,
            "uvx -p 3.12 l": None,
            "uvx --with m n": None,
            "npx --registry https://example.org o": None,
            "npx -p q -p r s": None,
            "docker run k": None,
            "node server.js": None,
        }.items():
            with failures.row(line):
                command, *words = line.split()
                assert packaged(command, words) == expected


async def test_servers_are_added_at_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = make_project(tmp_path, {})
    for name in ("config", "state", "data"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / "homes" / name))
    (tmp_path / "homes").mkdir()

    def run(*words: str) -> Ran:
        return tavern("--project", tmp_path / "project", "mcp", *words)

    added = await asyncio.to_thread(run, "add", "notes", "--read", str(tmp_path), "--env", "A=b=c", "python3", "x.py")
    assert (added.code, added.out.splitlines()) == (
        0,
        [
            "notes, set up by the operator: unapproved",
            "  runs python3 x.py",
            "  sets A",
            f"  sees {tmp_path}",
            "  it is not approved as it is now: tavern mcp approve notes",
            "Let it be started: tavern mcp approve notes",
        ],
    )
    added = await asyncio.to_thread(run, "add", "memory", "--", "npx", "-y", "@a/memory@latest", "--json")
    assert "  installs @a/memory from npm's registry, and runs it with --json" in added.out
    listed = (await asyncio.to_thread(run, "list", "--json")).json()
    assert [(one["name"], one["status"]) for one in listed] == [("memory", "unapproved"), ("notes", "unapproved")]
    with Failures() as failures:
        for words, said in {
            ("x",): "say what it is: --npm or --pypi with a package",
            ("notes", "y"): "there is an MCP server notes already",
            ("Big", "y"): "its name must consist of small letters, digits and hyphens",
            ("x", "--npm", "a", "--url", "http://a.example/"): 'it needs one of "command", "npm", "pypi" and "url"',
            ("x", "--url", "file:///etc"): "url: ",
            ("x", "y", "--env", "novalue"): "--env novalue: expected NAME=VALUE",
        }.items():
            with failures.row(words):
                refused = await asyncio.to_thread(run, "add", *words)
                assert refused.code == 2 and said in refused.error
    assert folders.config.exists()
