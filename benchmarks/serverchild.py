"""The process that answers: a host on one port, and on another a bare aiohttp application with the same bytes.

`python -m benchmarks.serverchild PLACE METHOD PATH BODY` says both ports as JSON, and ends when its standard input is
closed. Each line there, `COUNT RUNS`, is so many events of so many runs, 100 a second.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from pathlib import Path

from aiohttp import ClientSession, web

from benchmarks.harness import frozen
from benchmarks.toolsubject import ARGUMENTS, TOOL
from tavern_host import Host
from tavern_host.projects import Folders
from tavern_host.server.app import make_app

TOKEN = "let-me-in"
SERVICE_TOOL, NODE_TOOL = TOOL, "shout"
RATE = 100
"""How many events are published in a second."""

__all__ = ["ARGUMENTS", "NODE_TOOL", "RATE", "SERVICE_TOOL", "TOKEN"]


async def _listening(app: web.Application, port: int = 0) -> web.AppRunner:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    return runner


def _bare(method: str, path: str, body: bytes) -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_route(method, path, answer)
    return app


def _write_tool(project: Path) -> None:
    tool = {"id": NODE_TOOL, "implementation": {"type": "node", "nodeType": "core:UpperCase"}}
    (project / "tools").mkdir(parents=True)
    (project / "tools" / f"{NODE_TOOL}.tool.json").write_text(json.dumps(tool), encoding="utf-8")


async def _publish(host: Host, count: int, runs: int) -> None:
    began = time.monotonic()
    for number, run in zip(range(count), itertools.cycle(range(runs)), strict=False):
        payload = {"promptId": f"run-{run}", "nodeId": "n", "at": time.monotonic()}
        host.events.publish("NODE_COMPLETE", payload)
        await asyncio.sleep(max(0, began + (number + 1) / RATE - time.monotonic()))


async def _answer(place: Path, method: str, path: str, body: str) -> None:
    reserved = await _listening(web.Application())
    port = reserved.addresses[0][1]
    await reserved.cleanup()
    folders = Folders(*(place / name for name in ("config", "state", "data")))
    desk = Path(__file__).parent / "tooldesk"
    _write_tool(place / "project")
    async with Host(place / "project", plugins=[desk], trust=["tool-desk"], folders=folders) as host:
        ours = await _listening(make_app(host, token=TOKEN, port=port), port)
        async with (
            ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
            session.request(method, f"http://127.0.0.1:{port}{path}", json=json.loads(body)) as response,
        ):
            response.raise_for_status()
            body_of_answer = await response.read()
        assert b'"status": "failed"' not in body_of_answer, body_of_answer
        bare = await _listening(_bare(method, path, body_of_answer))
        with frozen():
            print(json.dumps([port, bare.addresses[0][1]]), flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                await _publish(host, *map(int, line.split()))
        await bare.cleanup()
        await ours.cleanup()


if __name__ == "__main__":
    asyncio.run(_answer(Path(sys.argv[1]), *sys.argv[2:]))
