"""`tavern serve` where folders cannot be written, and disks are full."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from helpers.command_line import tavern
from helpers.serve_process import SECONDS, serving
from helpers.unwritable import mount, small_disk

DECISIONS = (
    ("POST", "/api/plugins/tavern-agents/settings", {"recordRuns": True}),
    ("PUT", "/api/plugins/tavern-demo/state", {"enabled": False}),
    ("POST", "/api/plugins/tavern-demo/grant", None),
    ("POST", "/api/packages", {"what": "acme"}),
    ("PUT", "/api/members", {"open": False}),
)
"""What is kept in the operator's state folder."""


@contextlib.contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """Let nobody write below a folder, not even root."""
    mount("--bind", str(folder), str(folder))
    try:
        mount("-o", "remount,ro,bind", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _state() -> Path:
    return Path(os.environ["TAVERN_STATE_DIR"])


def test_a_new_project_that_cannot_be_written_is_refused(project: Path) -> None:
    _state().mkdir(parents=True, exist_ok=True)
    for folder in (project, _state()):
        with _read_only(folder):
            refused = tavern("--project", project, "serve", "--port", "0")
        (line,) = refused.err.splitlines()
        assert (refused.code, f"nothing can be kept in {folder}" in line) == (2, True)
        assert line.endswith("; a server writes there: change its rights, or make room")


async def test_a_folder_that_cannot_be_written_any_more_is_said(project: Path) -> None:
    async with serving(project) as site:
        run = (await site.post("/api/prompt", {"nodes": [], "edges": []}))["promptId"]
        async with asyncio.timeout(SECONDS):
            while (await site.get(f"/api/prompt/{run}"))["status"] in ("queued", "running"):
                await asyncio.sleep(0.05)
        for folder, whose in ((project, "project"), (_state(), "operator")):
            with _read_only(folder):
                async with site.session.get(f"{site.base}/readyz") as answer:
                    problems = (await answer.json())["problems"]
                    assert (answer.status, f"inn: the {whose}'s folder cannot be written" in problems) == (503, True)
                for method, path, body in DECISIONS if whose == "operator" else ():
                    async with site.session.request(method, f"{site.base}{path}", json=body) as answer:
                        said = (await answer.json())["error"]
                        assert (answer.status, said.split(": ")[-1]) == (503, "Read-only file system"), said
                        assert str(_state()) in said
                if whose == "project":
                    async with site.session.get(f"{site.base}/api/runs") as answer:
                        if answer.status != 200:  # it had not read its database before
                            said = (await answer.json())["error"]
                            assert (answer.status, said.split(": ")[-1]) == (503, "Read-only file system")
                            assert "runs.sqlite3" in said
            assert await site.get("/api/runs")
            assert (await site.get("/readyz"))["status"] == "ready"
        code, err = await site.stop()
    assert (code, "Traceback" in err) == (0, False)


async def test_a_full_disk_is_said_and_work_goes_on_once_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk"):
        project = tmp_path / "disk" / "inn"
        assert (await asyncio.to_thread(tavern, "init", "--empty", project)).code == 0
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
