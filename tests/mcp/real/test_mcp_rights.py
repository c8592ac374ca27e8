"""What a server may reach of the machine and the network, in each sandbox: what its declaration names, nothing else.

As an ordinary user it is run by tests/scripts/real/test_sandbox_as_an_ordinary_user.py, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from helpers.mcp_desk import ALLOWED, SERVERS, Desk, make_project, odd
from helpers.repetition import Failures

from tavern_host import Host
from tavern_mcp.api.servers import MCP_SERVERS
from tavern_scripts.sandbox import choose, landlock
from tests.scripts.sandboxes import IS_ROOT

pytest.importorskip("mcp", reason="needs the extra: pip install tavern-host[mcp]")
DEGRADED = "extensions.tavern-scripts.allowDegraded"


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
async def test_servers_have_the_rights_of_their_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    if sandbox == "landlock":
        if IS_ROOT or landlock.version() < landlock.NEEDED:
            pytest.skip(f"Landlock: version {landlock.version()}, and for an ordinary user only")
        monkeypatch.setattr(choose, "find_bubblewrap", list)
    for name in ("seen", "changed", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    tmp_path.chmod(0o755)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="from the net")

    site = web.Application()
    site.router.add_get("/", answer)
    async with TestServer(site) as there, TestServer(site) as elsewhere:
        hosts, seen = [f"127.0.0.1:{there.port}"], [str(Path(__file__).parents[1]), str(tmp_path / "seen")]
        servers = {
            "odd": odd(read=seen, write=[str(tmp_path / "changed")]),
            "net": odd(hosts=hosts),
            "greedy": odd(hosts=["example.org"]),
            "typo": {"comand": "x", "env": {"A": 5}, "seconds": 0},
        }
        folders = make_project(tmp_path, {SERVERS: servers, ALLOWED: hosts, DEGRADED: True})
        fetched = "from the net" if sandbox == "bubblewrap" else None
        async with Host(tmp_path / "project", folders=folders) as host:
            desk = Desk(host)
            for name in ("odd", "net"):  # on a busy machine they take long
                await desk.connect(name)
            with Failures() as failures:
                for server, tool, about, works in (
                    ("odd", "read", str(tmp_path / "seen" / "file"), "seen"),
                    ("odd", "read", str(tmp_path / "changed" / "file"), "changed"),
                    ("odd", "read", str(tmp_path / "hidden" / "file"), None),
                    ("odd", "write", str(tmp_path / "changed" / "new"), "done"),
                    ("odd", "write", str(tmp_path / "changed" / "file"), "done"),
                    ("odd", "write", str(tmp_path / "seen" / "file"), None),
                    ("odd", "write", str(tmp_path / "seen" / "new"), None),
                    ("odd", "write", str(tmp_path / "hidden" / "new"), None),
                    ("odd", "fetch", f"http://127.0.0.1:{there.port}/", None),
                    ("net", "fetch", f"http://127.0.0.1:{there.port}/", fetched),
                    ("net", "fetch", f"http://127.0.0.1:{elsewhere.port}/", None),
                    ("net", "write", str(tmp_path / "changed" / "other"), None),
                    ("greedy", "echo", "x", None),
                ):
                    with failures.row(f"{server}: {tool} {about}"):
                        result = await desk.call(f"mcp:{server}/{tool}", text=about)
                        assert result.structured == works, result.error
                        assert works is not None or result.error is not None
                problems = {one.name: one.problem for one in await host.services.get(MCP_SERVERS).servers()}
                with failures.row("what is said"):
                    assert problems["odd"] == ""
                    assert problems["typo"].split("; ") == [
                        "env.A: it must be a text, or {env: NAME}",
                        "seconds: input should be greater than 0",
                        "unknown key 'comand' (did you mean command?)",
                    ]
                    assert "'example.org': the operator does not allow it" in problems["greedy"]
                    said = "" if fetched else "this sandbox has no network to grant: allow none, or install bubblewrap"
                    assert problems["net"] == said
    assert sorted(path.name for path in (tmp_path / "changed").iterdir()) == ["file", "new"]
    assert {path.read_text() for path in (tmp_path / "changed").iterdir()} == {"written"}
    assert [path.read_text() for path in (tmp_path / "seen").iterdir()] == ["seen"]
