"""`tavern serve`: starts a host and its server, and stops both on SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from tavern_host.cli.garbage import collect_again
from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.errors import InvalidInput
from tavern_host.host import Host

ADDRESS = "127.0.0.1"
DRAIN = 2.0
"""Seconds that requests in flight have to finish when the server stops; aiohttp waits as long again for those that it
has cancelled."""


async def serve(
    host: Host, *, port: int, also: Sequence[Path] = (), make_host: Callable[[Path], Host] | None = None
) -> AsyncIterator[CommandOutput]:
    """Serve a started host until a signal comes, and the projects in `also` beside it, each with a host of its own that
    `make_host` makes. `port` 0 takes any free one.

    The token is `TAVERN_TOKEN`, else a fresh one. Raises `InvalidInput` where the port cannot be used or a folder is no
    project.
    """
    from aiohttp import web

    from tavern_host.server.app import make_app
    from tavern_host.server.served import ServedProjects

    listener = _listen(port)
    port = listener.getsockname()[1]
    token = os.environ.get("TAVERN_TOKEN", "").strip() or secrets.token_urlsafe(24)
    said: asyncio.Queue[str | None] = asyncio.Queue()  # None: stop
    served = ServedProjects(host, make_host, say=said.put_nowait)
    runner = web.AppRunner(make_app(served, token=token, port=port), shutdown_timeout=DRAIN, access_log=None)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, said.put_nowait, None)
    try:
        await runner.setup()
        for folder in also:
            await served.open(folder)
        await web.SockSite(runner, listener).start()
        collect_again()
        url = f"http://{ADDRESS}:{port}/?token={quote(token, safe='')}"
        for one in served.all():
            yield CommandOutput(kind="text", text=f"Serving the project {one.project.name} ({one.project.root})")
        yield CommandOutput(kind="text", text=f"Open {url}")
        yield CommandOutput(kind="text", text="Stop with Ctrl-C.")
        yield CommandOutput(kind="result", data={"url": url, "port": port, "project": str(host.project.root)})
        while (line := await said.get()) is not None:
            yield CommandOutput(kind="progress", text=line)
        yield CommandOutput(kind="progress", text="Stopping …")
    finally:
        for one in served.all():
            await one.events.close()
        await runner.cleanup()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise InvalidInput(f"--port {port}: a port is a number from 0 to 65535; 0 takes any free one")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
    except OSError as error:
        listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise InvalidInput(f"port {port} cannot be used ({error.strerror}); give another with --port") from None
        raise
    return listener
