"""The process that answers: a host on one port, and on another a bare aiohttp application with the same bytes.

`python -m benchmarks.serverchild PLACE PATH…` says both ports as JSON, and goes on until its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from aiohttp import ClientSession, web

from benchmarks.harness import frozen
from tavern_host import Host
from tavern_host.projects import Folders
from tavern_host.server.app import make_app

TOKEN = "let-me-in"


async def _listening(app: web.Application, port: int = 0) -> web.AppRunner:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner


def _bare(answers: dict[str, bytes]) -> web.Application:
    app = web.Application()
    for path, body in answers.items():

        async def answer(request: web.Request, body: bytes = body) -> web.Response:
            return web.Response(body=body, content_type="application/json")

        app.router.add_get(path, answer)
    return app


async def _answer(place: Path, paths: list[str]) -> None:
    reserved = await _listening(web.Application())
    port = reserved.addresses[0][1]
    await reserved.cleanup()
    folders = Folders(*(place / name for name in ("config", "state", "data")))
    async with Host(place / "project", third_party=False, folders=folders) as host:
        ours = await _listening(make_app(host, token=TOKEN, port=port), port)
        answers = {}
        async with ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
            for path in paths:
                async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                    response.raise_for_status()
                    answers[path] = await response.read()
        bare = await _listening(_bare(answers))
        with frozen():
            print(json.dumps([port, bare.addresses[0][1]]), flush=True)
            await asyncio.to_thread(sys.stdin.read)
        await bare.cleanup()
        await ours.cleanup()


if __name__ == "__main__":
    asyncio.run(_answer(Path(sys.argv[1]), sys.argv[2:]))
