"""Runs `tavern serve` as a process for benchmarks, and looks at what it holds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout, TCPConnector

TOKEN = "let-me-in"
START = 60.0
"""Seconds that a server has to be ready."""


@dataclass
class Served:
    """A server of a project, and a client with the operator's token."""

    process: asyncio.subprocess.Process
    url: str
    session: ClientSession

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Mapping[str, str]]:
        """Return the status, the JSON and the headers that a request is answered with."""
        async with self.session.request(method, self.url + path, json=body, headers=headers) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text else None, answer.headers

    def memory(self) -> int:
        """Return the bytes that are its own."""
        return private_memory(self.process.pid)

    def descriptors(self) -> list[str]:
        """Return the targets of the server's open file descriptors, as Linux names them."""
        links = []
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links.append(str(link.readlink()))
        return links

    def threads(self) -> int:
        """Return how many threads it has."""
        return len([*Path(f"/proc/{self.process.pid}/task").iterdir()])

    async def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        await self.process.wait()


def private_memory(pid: int) -> int:
    """Return the bytes that are a process's own: what it shares with others is left out."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Private_"))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that all threads of a process have taken."""
    return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3), which Python has for threads alone


@asynccontextmanager
async def server_of(place: Path, **environment: str) -> AsyncIterator[Served]:
    """Serve the project `place/project` with the operator's folders beside it until the end of the `with`; then it must
    end well, unless it was killed before."""
    folders = {f"XDG_{name.upper()}_HOME": str(place / name) for name in ("config", "state", "data")}
    log = place / "log"
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tavern_host.cli", "--project", str(place / "project"), "serve"),
            *("--port", "0", "--json", "--log-level", "ERROR"),
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **folders, "TAVERN_TOKEN": TOKEN, **environment},
        )
    try:
        url = await _url(process, log)
        headers, most = {"Authorization": f"Bearer {TOKEN}"}, TCPConnector(limit=0)
        async with ClientSession(headers=headers, timeout=ClientTimeout(total=60), connector=most) as session:
            yield Served(process, url, session)
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(START):
                if await process.wait():
                    raise RuntimeError(f"the server ended with {process.returncode}; its log is {log}")
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _url(process: asyncio.subprocess.Process, log: Path) -> str:
    assert process.stdout is not None
    said = b""
    async with asyncio.timeout(START):
        while not said.endswith(b"}\n"):
            line = await process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server did not start; its log is {log}")
            said += line
    return str(json.loads(said)["url"]).partition("/?")[0]
