"""What the figures of `trust` are measured on: a server in a process of its own, and one with its host in this one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import unused_port

from tavern_host import Host
from tavern_host.projects import Folders
from tavern_host.server.app import make_app

TOKEN = "benchmark"
WORKFLOW = "one"
"""The id of the stored workflow that the server has: one node, which joins a text."""

_NODE = {"id": "n", "type": "core:TextMerge", "inputValues": {"text_inputs": ["a"]}}
_OPEN = re.compile(r"(http://[\d.:]+)/?\?token=(\S+)")


@dataclass
class Server:
    """`tavern serve` with a connection to it that stays open."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads of the server so far, in seconds; Linux only."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    async def run(self, body: dict[str, Any]) -> str:
        """Submit a run; return its id."""
        async with self.session.post("/api/prompt", json=body) as answer:
            return str((await answer.json())["promptId"])

    async def read(self) -> dict[str, Any]:
        """Ask for the queue: about the least that a request of a plugin's route can be."""
        async with self.session.get("/api/executions") as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def until_idle(self) -> None:
        """Return when nothing runs and nothing waits, and what is written later is written."""
        while any((await self.read()).values()):  # noqa: ASYNC110 -- it is another process
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)

    async def status(self, run_id: str) -> str:
        """Return how a run ended, or stands."""
        async with self.session.get(f"/api/prompt/{run_id}") as answer:
            return str((await answer.json())["status"])


@asynccontextmanager
async def server() -> AsyncIterator[Server]:
    """Start `tavern serve` on a project with one workflow, as an operator does. Raises `RuntimeError`."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "inn" / "workflows").mkdir(parents=True)
        (root / "inn" / "tavern.yaml").write_text("name: inn\n")
        document = {"name": WORKFLOW, "nodes": [_NODE], "edges": []}
        (root / "inn" / "workflows" / f"{WORKFLOW}.json").write_text(json.dumps(document))
        folders = {f"TAVERN_{name}_DIR": str(root / name.lower()) for name in ("CONFIG", "STATE", "DATA")}
        command = [sys.executable, "-m", "tavern_host.cli", "--project", str(root / "inn"), "serve", "--port", "0"]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **folders}
        )
        reading: asyncio.Task[bytes] | None = None
        try:
            assert process.stdout is not None
            said = ""
            while (found := _OPEN.search(said)) is None:
                line = await process.stdout.readline()
                said += line.decode()
                if not line:
                    raise RuntimeError(f"tavern serve ended: {said}")
            headers = {"Authorization": f"Bearer {found[2]}"}
            reading = asyncio.create_task(process.stdout.read())  # else its log would stand still when the pipe is full
            async with aiohttp.ClientSession(found[1], headers=headers) as session:
                subject = Server(process, session)
                await subject.run({"workflowId": WORKFLOW})  # imports and makes what runs need
                await asyncio.sleep(1)  # threads of the start end, and what they used is no longer told
                await subject.until_idle()
                yield subject
        finally:
            process.terminate()
            await (reading or process.communicate())
            await process.wait()


@dataclass
class Served:
    """A host and its server in this process, so that other tasks of its event loop can be watched."""

    host: Host
    session: aiohttp.ClientSession

    async def submit(self, body: bytes) -> str:
        """Submit a run. Raises `AssertionError` where it is refused."""
        headers = {"Content-Type": "application/json"}
        async with self.session.post("/api/prompt", data=body, headers=headers) as answer:
            said = await answer.json()
            assert answer.status == 200, said
            return str(said["promptId"])

    async def ended(self, run_id: str) -> None:
        """Return when a run has ended, without a look at what it gave. Raises `AssertionError` where it failed."""
        async for event in self.host.events.subscribe("EXECUTION_STATUS_UPDATE", since=0):
            payload = getattr(event, "payload", {})
            if payload.get("promptId") == run_id and payload["status"] in ("complete", "error", "interrupted"):
                assert payload["status"] == "complete", payload
                return


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    """Start a host with the nodes of the benchmark, and its server, with a client of `/ws` that reads all messages."""
    with tempfile.TemporaryDirectory() as place:
        root, port = Path(place), unused_port()
        folders = Folders(root / "config", root / "state", root / "data")
        plugin = Path(__file__).parent / "tooldesk"
        async with Host(root / "project", plugins=[plugin], trust=["tool-desk"], folders=folders) as host:
            runner = web.AppRunner(make_app(host, token=TOKEN, port=port))
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with (
                aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as session,
                session.ws_connect("/ws", max_msg_size=0) as socket,
            ):
                reading = asyncio.create_task(_read_all(socket))
                made = Served(host, session)
                first = {"nodes": [{"id": "n", "fullType": "core:TextMerge", "inputs": _NODE["inputValues"]}]}
                await made.ended(await made.submit(json.dumps(first).encode()))  # imports and makes what runs need
                yield made
                await socket.close()
                await reading
            await runner.cleanup()


async def _read_all(socket: aiohttp.ClientWebSocketResponse) -> None:
    async for _ in socket:
        pass
