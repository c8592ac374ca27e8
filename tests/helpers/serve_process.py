"""Runs `tavern serve` as a process, and talks to it over HTTP and its socket, as a page or a script does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import aiohttp

from helpers.command_line import COMMAND

SECONDS = 100.0


@dataclass
class Serving:
    """A running `tavern serve`. `url` is the address that it printed, with the token."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    url: str

    @property
    def base(self) -> str:
        return self.url.partition("/?")[0]

    async def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        return await self._json("GET", path)

    async def post(self, path: str, body: Any) -> Any:
        """Return the JSON that a body is answered with."""
        return await self._json("POST", path, json=body)

    async def delete(self, path: str) -> Any:
        """Return the JSON that a DELETE is answered with."""
        return await self._json("DELETE", path)

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        async with self.session.request(method, self.base + path, **options) as answer:
            body = await answer.json()
            assert answer.status == 200, body
            return body

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit code and what was still written to stderr."""
        self.process.send_signal(how)
        async with asyncio.timeout(SECONDS):
            _, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


class Listener:
    """A socket with all that came over it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.messages: list[dict[str, Any]] = []

    async def until(self, type: str, **payload: Any) -> dict[str, Any]:
        """Read on to the first message of a type with these values in its payload; return it."""
        async with asyncio.timeout(SECONDS):
            while True:
                message = await self.socket.receive_json()
                self.messages.append(message)
                if message["type"] == type and payload.items() <= message["payload"].items():
                    return message  # type: ignore[no-any-return]

    def of(self, prompt_id: str) -> list[dict[str, Any]]:
        """Return the events of one run, in order."""
        return [m for m in self.messages if m["payload"].get("promptId") == prompt_id and "seq" in m]


@asynccontextmanager
async def serving(
    project: Path,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    before: Sequence[str] = (),
    as_json: bool = True,
    descriptors: int | None = None,
) -> AsyncIterator[Serving]:
    """Run `tavern serve` on a free port until the end of the `with`; `before` are options before the command. Without
    `as_json` it speaks as to a person; `descriptors` is how many file descriptors it may have.

    Of the log, only what the audit log and the libraries warn of is written, unless `options` say otherwise: on a busy
    machine the watchdog has something to say at any time."""
    limit = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
    process = await asyncio.create_subprocess_exec(
        *limit,
        *COMMAND,
        "--project",
        str(project),
        *before,
        "serve",
        "--port",
        "0",
        *(["--json"] if as_json else []),
        *("--log-level", "CRITICAL", "--log-level", "audit=WARNING"),
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    try:
        url = (await _first_document(process))["url"] if as_json else await _said_url(process)
        token = unquote(url.partition("token=")[2])
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
            yield Serving(process, session, url)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _said_url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        while not (line := (await process.stdout.readline()).decode()).startswith("Open "):
            assert line, "tavern serve ended"
        await process.stdout.readline()  # how to stop it
    return line.removeprefix("Open ").strip()


async def _first_document(process: asyncio.subprocess.Process) -> Any:
    text = ""
    async with asyncio.timeout(SECONDS):
        while True:
            line = (await process.stdout.readline()).decode()
            if not line:
                raise RuntimeError(f"tavern serve ended: {(await process.stderr.read()).decode()}")
            text += line
            if line == "}\n":
                return json.loads(text)
