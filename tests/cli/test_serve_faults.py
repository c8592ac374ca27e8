"""`tavern serve` where folders cannot be written, disks are full, and databases of the operator's are damaged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command_line import tavern, tavern_process
from helpers.serve_process import SECONDS, serving

DECISIONS = (
    ("POST", "/api/plugins/tavern-agents/settings", {"recordRuns": True}),
    ("PUT", "/api/plugins/tavern-demo/state", {"enabled": False}),
    ("POST", "/api/plugins/tavern-demo/grant", None),
    ("POST", "/api/packages", {"what": "acme"}),
    ("PUT", "/api/members", {"open": False}),
)
"""What is kept in the operator's state folder."""


def _mount(*arguments: str) -> None:
    try:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting is for root: {error}")


@contextlib.contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """Let nobody write below a folder, not even root."""
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,ro,bind", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert tavern("init", tmp_path / "inn").code == 0
    return tmp_path / "inn"


def _state() -> Path:
    return Path(os.environ["TAVERN_STATE_DIR"])


@pytest.mark.parametrize("which", ["project", "state"])
def test_a_new_project_that_cannot_be_written_is_refused_in_a_sentence(project: Path, which: str) -> None:
    folder = project if which == "project" else _state()
    folder.mkdir(parents=True, exist_ok=True)
    with _read_only(folder):
        refused = tavern_process("--project", project, "serve", "--port", "0")
    assert refused.code != 0
    (line,) = refused.err.splitlines()
    assert "nothing can be kept in " + str(folder) in line
    assert line.endswith("; a server writes there: change its rights, or make room")


@pytest.mark.parametrize(("which", "whose"), [("project", "project"), ("state", "operator")])
async def test_a_folder_that_cannot_be_written_any_more_is_said(project: Path, which: str, whose: str) -> None:
    async with serving(project) as site:
        run = (await site.post("/api/prompt", {"nodes": [], "edges": []}))["promptId"]
        async with asyncio.timeout(SECONDS):
            while (await site.get(f"/api/prompt/{run}"))["status"] in ("queued", "running"):
                await asyncio.sleep(0.05)
        with _read_only(project if which == "project" else _state()):
            async with site.session.get(f"{site.base}/readyz") as answer:
                problems = (await answer.json())["problems"]
                assert (answer.status, f"inn: the {whose}'s folder cannot be written" in problems) == (503, True)
            if which == "project":
                async with site.session.get(f"{site.base}/api/runs") as answer:
                    if answer.status != 200:  # it had not read its database before
                        said = (await answer.json())["error"]
                        assert (answer.status, said.split(": ")[-1]) == (503, "Read-only file system")
                        assert "runs.sqlite3" in said
            else:
                for method, path, body in DECISIONS:
                    async with site.session.request(method, f"{site.base}{path}", json=body) as answer:
                        said = (await answer.json())["error"]
                        assert (answer.status, said.split(": ")[-1]) == (503, "Read-only file system"), said
                        assert str(_state()) in said
        assert await site.get("/api/runs")
        assert (await site.get("/readyz"))["status"] == "ready"
        code, err = await site.stop()
    assert (code, "Traceback" in err) == (0, False)


async def test_a_full_disk_is_said_and_work_goes_on_once_there_is_room(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk"):
        project = tmp_path / "disk" / "inn"
        assert (await asyncio.to_thread(tavern, "init", project)).code == 0
        async with serving(project) as site:
            rest = tmp_path / "disk" / "rest"
            with contextlib.suppress(OSError), rest.open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            node = {"id": "w", "type": "core:Wait", "inputValues": {"value": "x" * 20_000}}
            body = {"id": "a", "workflow": {"nodes": [node], "edges": []}}
            async with site.session.post(f"{site.base}/api/workflows", json=body) as answer:
                said = (await answer.json())["error"]
                assert (answer.status, said.split(": ")[-1]) == (503, "No space left on device")
            async with site.session.get(f"{site.base}/readyz") as answer:
                problems = (await answer.json())["problems"]
                assert (answer.status, "inn: the disk with the project's folder is full" in problems) == (503, True)
            rest.unlink()
            await site.post("/api/prompt", {"nodes": [], "edges": []})
            async with asyncio.timeout(SECONDS):
                while True:
                    async with site.session.get(f"{site.base}/readyz") as answer:
                        if answer.status == 200:
                            break
                    await asyncio.sleep(0.1)
            code, err = await site.stop()
        assert (code, "Traceback" in err) == (0, False)


async def test_a_damaged_database_of_the_operator_is_moved_aside_when_a_server_starts(project: Path) -> None:
    async with serving(project) as site:
        ann = {"name": "ann", "password": "good evening", "role": "viewer"}
        async with site.session.post(f"{site.base}/api/users", json=ann) as answer:
            assert answer.status == 201
        await site.stop()
    path = _state() / "accounts" / "accounts.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as database:
        ((page,),) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'users'").fetchall()
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    path.write_bytes(content)

    async with serving(project) as site:
        async with asyncio.timeout(SECONDS):
            while not (warnings := (await site.get("/readyz")).get("warnings")):
                await asyncio.sleep(0.05)
        assert (await site.get("/api/users")) is not None
        code, _ = await site.stop()
    (name,) = {one.name.partition(".unread")[0] for one in path.parent.glob("*.damaged-*[0-9a-fd]")}
    assert (code, warnings) == (0, [f"inn: a database was damaged, and is kept as {name}; the log says more"])
