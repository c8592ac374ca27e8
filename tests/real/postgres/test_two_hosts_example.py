"""The example of two hosts: its services run as processes of this machine, and do what its page says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import yaml
from helpers.ports import free_port
from helpers.postgres import shared_server
from helpers.serve_process import Listener

EXAMPLE = Path(__file__).parents[3] / "docs/examples/two-hosts"
SECRETS = {"TAVERN_TOKEN": "open-sesame", "POSTGRES_PASSWORD": "a secret/of: the %database"}
PROGRAMS = {"tavern": "tavern_host.cli", "dask": "dask"}
SECONDS = 200


class Composed:
    """The services of the file as processes; the database is the tests' own. Each port that the file names is another
    one here, each service's name and 0.0.0.0 are 127.0.0.1, each host's /project is a copy of the folder."""

    def __init__(self, folder: Path, database: str, session: aiohttp.ClientSession) -> None:
        services = yaml.safe_load((EXAMPLE / "compose.yaml").read_text(encoding="utf-8"))["services"]
        self.services, self.folder, self.database, self.session = services, folder, database, session
        self.ports: dict[str, str] = {}
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    def here(self, text: str, project: Path) -> str:
        """Return the text of the file as it is on this machine."""
        text = re.sub(rf"(?<=//)({'|'.join(self.services)}):", "127.0.0.1:", text).replace("0.0.0.0", "127.0.0.1")
        text = re.sub(r"\b8[17]8\d\b", lambda found: self.port(found[0]), text)
        text = text.replace("/project", str(project)).replace("postgresql://tavern@database/tavern", self.database)
        return re.sub(r"\$\{(\w+)[^}]*\}", lambda found: SECRETS[found[1]], text)

    def port(self, named: str) -> str:
        """Return the port that stands for one of the file."""
        while named not in self.ports:
            if (port := str(free_port())) not in self.ports.values():  # those before may not be in use yet
                self.ports[named] = port
        return self.ports[named]

    async def start_all(self) -> list[str]:
        """Start each service once those that it depends on are healthy; return them in this order."""
        waiting = TopologicalSorter({name: about.get("depends_on", {}) for name, about in self.services.items()})
        waiting.prepare()
        started: list[str] = []
        while waiting.is_active():
            ready = waiting.get_ready()
            mine = [name for name in ready if name != "database"]
            await asyncio.gather(*map(self.start, mine))
            started += mine
            waiting.done(*ready)
        return started

    async def start(self, name: str) -> None:
        """Start a service, and return when it is healthy."""
        project, operator = self.folder / name / "project", self.folder / name / "operator"
        shutil.copytree(EXAMPLE / "project", project, dirs_exist_ok=True)
        program, *arguments = [self.here(part, project) for part in self.services[name]["command"]]
        settings = self.services[name].get("environment", {})
        kinds = ("CONFIG", "STATE", "DATA")
        with (self.folder / name / "log").open("ab") as log:
            self.processes[name] = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", PROGRAMS[program], *arguments),
                cwd=self.folder / name,
                env={
                    **{**os.environ, **{f"TAVERN_{kind}_DIR": str(operator / kind) for kind in kinds}},
                    **{key: self.here(value, project) for key, value in settings.items()},
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        health = self.here(self.services[name]["healthcheck"]["test"][-1], project)
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+/\w+", health)
        async with asyncio.timeout(SECONDS):
            while not await self._is_healthy(url):
                assert process.returncode is None, self.log(name)
                await asyncio.sleep(0.05)

    async def _is_healthy(self, url: str) -> bool:
        try:
            async with self.session.get(url) as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def stop(self, name: str) -> int:
        """Stop a service as Docker does; return its exit code when no process of it is left."""
        process = self.processes[name]
        process.terminate()
        async with asyncio.timeout(SECONDS):
            code = await process.wait()
            while has_processes(process.pid):
                await asyncio.sleep(0.05)
        del self.processes[name]
        return code

    async def kill(self, name: str) -> None:
        """Kill a service with all its processes, stopped ones too."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    def log(self, name: str) -> str:
        return (self.folder / name / "log").read_text(encoding="utf-8", errors="replace")

    def page(self, name: str) -> str:
        """Return the address of a host, from the port that it publishes."""
        return "http://127.0.0.1:" + self.ports[self.services[name]["ports"][0].rpartition(":")[2]]

    async def run(self, name: str, end: int) -> str:
        """Run the workflow at a host; return the run's id as soon as it is accepted."""
        body = {"workflowId": "statistics", "inputs": {"end": end}}
        async with self.session.post(self.page(name) + "/api/prompt", json=body) as answer:
            said = await answer.json()
            assert answer.status == 200, said
            return str(said["promptId"])

    async def ended(self, name: str, run_id: str) -> dict[str, Any]:
        """Return a run as a host shows it, once it has ended there."""
        async with asyncio.timeout(SECONDS):
            while True:
                async with self.session.get(f"{self.page(name)}/api/runs/{run_id}") as answer:
                    run: dict[str, Any] = await answer.json()
                assert answer.status == 200, run
                if run["status"] not in ("queued", "running"):
                    return run
                await asyncio.sleep(0.05)


def has_processes(group: int) -> bool:
    """Return whether a process of this group runs."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


@pytest.fixture
async def composed(tmp_path: Path) -> AsyncIterator[Composed]:
    headers = {"Authorization": f"Bearer {SECRETS['TAVERN_TOKEN']}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        services = Composed(tmp_path, shared_server(), session)
        try:
            yield services
        finally:
            for name in [*services.processes]:
                await services.kill(name)


@asynccontextmanager
async def watching(composed: Composed, name: str) -> AsyncIterator[Listener]:
    async with composed.session.ws_connect(composed.page(name) + "/ws") as socket:
        yield Listener(socket)


async def test_the_example_does_what_its_page_says(composed: Composed) -> None:
    checks = {name: about["healthcheck"] for name, about in composed.services.items()}
    assert {name for name, check in checks.items() if check.get("start_period") != "60s"} == set()  # it takes its time
    started = await composed.start_all()
    async with watching(composed, "host-b") as page:
        first = await composed.run("host-a", 10)
        await page.until("EXECUTION_STATUS_UPDATE", promptId=first, status="complete")
        seen = await composed.ended("host-b", first)
        assert (seen["outputs"], seen["attempt"]) == ({"sum": 45}, 1)
        assert seen["nodes"]["statistics"]["remote"]["worker"].startswith("tcp://127.0.0.1:")
        assert seen["nodes"]["numbers"].get("remote") is None

        os.kill(composed.processes["worker"].pid, signal.SIGSTOP)
        held = await composed.run("host-a", 20)
        await page.until("NODE_EXECUTING", promptId=held, nodeId="statistics")
        await composed.kill("host-a")
        os.kill(composed.processes["worker"].pid, signal.SIGCONT)
        await page.until("EXECUTION_STATUS_UPDATE", promptId=held, status="complete")
        ended = await composed.ended("host-b", held)
        assert (ended["outputs"], ended["attempt"]) == ({"sum": 190}, 2)

        await composed.start("host-a")
        last = await composed.run("host-a", 30)
        await page.until("EXECUTION_STATUS_UPDATE", promptId=last, status="complete")
        statuses = [m["payload"]["status"] for m in page.of(held) if m["type"] == "EXECUTION_STATUS_UPDATE"]
        there = await composed.ended("host-a", held)
        same = ("status", "outputs", "attempt", "finishedAt")
        assert statuses.count("complete") == 1 and [there[key] for key in same] == [ended[key] for key in same]

    codes = {name: await composed.stop(name) for name in reversed(started)}
    assert codes == {"host-b": 0, "host-a": 0, "worker": 0, "scheduler": 0}
