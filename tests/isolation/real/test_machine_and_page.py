"""What an isolated plugin can use up of the machine while others work, and what it can bring into the page."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from helpers.repetition import Failures
from helpers.waiting import until

from tavern_host import Host
from tavern_host.contracts.errors import Vetoed
from tavern_host.testing.http import served
from tavern_isolation import supervisor
from tests.isolation.attempts import attempt, attempted, write_attempting

MEMORY = 128
"""Megabytes that the plugin may take."""

ENDS = ("memory", "SIGKILL", "has ended")
BOMBS = {
    "forks in every process that it has forked": (
        """
        for _ in range(12):
            try:
                os.fork()
            except OSError as error:
                failed = error.errno
                break
        else:
            failed = 0
        if os.getpid() != STARTED:
            time.sleep(60)
            os._exit(0)
        return failed
        """,
        ("11", *ENDS),
    ),
    "memory of many processes together": (
        """
        for _ in range(8):
            if os.fork() == 0:
                kept = [bytes([1]) * (1 << 20) for _ in range(40)]
                time.sleep(60)
        await asyncio.sleep(8)
        return "kept"
        """,
        ENDS,
    ),
    "memory that is shared and has no name": (
        """
        import mmap
        kept = [mmap.mmap(-1, 32 << 20) for _ in range(16)]
        for one in kept:
            for at in range(0, 32 << 20, 4096):
                one[at] = 1
        await asyncio.sleep(8)
        return "kept"
        """,
        ENDS,
    ),
    "buffers of sockets": (
        """
        import socket
        kept = []
        try:
            for _ in range(2_000):
                pair = socket.socketpair()
                kept.append(pair)
                for one in pair:
                    one.setblocking(False)
                    try:
                        while True:
                            one.send(bytes(1 << 16))
                    except BlockingIOError:
                        pass
        except OSError as error:
            return error.errno
        await asyncio.sleep(8)
        return "kept"
        """,
        ("24", *ENDS),
    ),
}
"""What is tried, and what must become of it: a part of what it returns, or of why its process ended."""


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setattr(supervisor, "DELAYS", (0.01,) * 10)
    runtime = {"placement": "process", "memory": MEMORY}
    write_attempting(tmp_path / "project" / "plugins" / "acme", code="\nSTARTED = os.getpid()\n", runtime=runtime)
    async with Host(tmp_path / "project", create=True, trust=["acme"]) as host:
        yield host


@pytest.mark.timeout(120)
async def test_what_uses_up_the_machine_ends_with_its_process_alone(host: Host) -> None:
    with Failures() as failures:
        for name, (code, expected) in BOMBS.items():
            try:
                became = await attempt(host, code)
            except Vetoed as error:
                process = host.plugin("acme").process
                became = f"{error.message} {process.last_error if process else ''}"
            with failures.row(name):
                assert any(one in became for one in expected), became
            process = host.plugin("acme").process
            user = (host.project.private / "plugins" / "acme").stat().st_uid
            if process is not None and process.pid is not None:
                await host.reload("acme")
            if user != os.geteuid():
                with failures.row(f"{name}: what is left"):
                    await until(lambda user=user: len(of(user)) <= 1, "none of its processes is left but a new one")
    assert await attempt(host, "return 1") == "1", "it is started for the next call"


def of(user: int) -> list[int]:
    """The processes of a user."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            found += [int(folder.name)] if folder.stat().st_uid == user else []
        except OSError:
            continue
    return found


PAGE = """
from tavern_host import *

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/page", handler=f"{__name__}:page", access="read")]

async def page(request, context):
    headers = {"Content-Security-Policy": "script-src *", "Set-Cookie": "tavern=mine"}
    headers["Access-Control-Allow-Origin"] = "*"
    return HttpResponse(body=b"<script>alert(1)</script>", content_type="text/html", headers=headers)
"""
SCRIPTS = {
    "its own script": "Path(__file__).parent.joinpath('web', 'index.js').write_text('evil()')",
    "another script": "Path(__file__).parent.joinpath('web', 'more.js').write_text('evil()')",
    "a link beside it": "Path(__file__).parent.joinpath('web', 'data').symlink_to(context.data_dir)",
    "its manifest": "Path(__file__).parent.joinpath('plugin.yaml').write_text('name: tavern-studio')",
}


async def test_it_brings_no_script_that_was_not_reviewed_and_no_page_that_runs_one(tmp_path: Path) -> None:
    folder = tmp_path / "project" / "plugins" / "acme"
    (folder / "web").mkdir(parents=True)
    (folder / "web" / "index.js").write_text("export const reviewed = 1;\n")
    hooked, front = ["tavern_register_routes"], {"vanilla": {"entry": "web/index.js"}}
    write_attempting(folder, code=PAGE, hooked=hooked, frontend=front)
    async with Host(tmp_path / "project", create=True, trust=["acme"]) as host, served(host) as site:
        found = await attempted(host, SCRIPTS)
        assert [one for one in found.values() if "Read-only file system" not in one] == []
        await attempt(host, "context.data_dir.joinpath('evil.js').write_text('evil()')")
        shown = (await (await site.get("/api/plugins/acme")).json())["frontend"]
        for path, status in ((shown["entryUrl"], 200), ("/plugins/acme/more.js", 404), ("/plugins/acme/evil.js", 404)):
            assert (await site.get(path)).status == status, path
        page = await site.get("/api/x/acme/page")
    assert "sandbox" in page.headers["Content-Security-Policy"] and "script-src *" not in str(page.headers)
    assert "mine" not in str(page.cookies) and "Access-Control-Allow-Origin" not in page.headers
