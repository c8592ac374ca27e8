"""`tavern serve`: starts a host and its server, and stops both on SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from tavern_host.cli.garbage import collect_again
from tavern_host.contracts.commands import CommandOutput
from tavern_host.host import Host

DRAIN = 10.0
"""Seconds that work in flight has to end once the server is told to stop."""


async def serve(
    host: Host,
    *,
    port: int,
    also: Sequence[Path] = (),
    make_host: Callable[[Path], Host] | None = None,
    drain: float = DRAIN,
) -> AsyncIterator[CommandOutput]:
    """Serve a started host until a signal comes, and the projects in `also` beside it, each with a host of its own that
    `make_host` makes. `port` 0 takes any free one.

    The first signal refuses new work and lets what is in flight end, for `drain` seconds at most; a second one stops at
    once. What is left then is journalled, and goes on at the next start. The token is `TAVERN_TOKEN`, else a fresh one.

    Raises `InvalidInput` where the port cannot be used or a folder is no project.
    """
    from tavern_host.server.app import make_app
    from tavern_host.server.connections import ADDRESS, listening, listening_socket
    from tavern_host.server.served import ServedProjects

    listener = listening_socket(port)
    port = listener.getsockname()[1]
    token = os.environ.get("TAVERN_TOKEN", "").strip() or secrets.token_urlsafe(24)
    said: asyncio.Queue[str | None] = asyncio.Queue()  # None: stop
    try:
        served = ServedProjects(host, make_host, say=said.put_nowait, address=f"http://{ADDRESS}:{port}")
    except BaseException:
        listener.close()
        raise
    stopping = asyncio.Event()

    def stop() -> None:
        """Stop after what is in flight; asked once more, at once."""
        if stopping.is_set():
            served.stop_waiting()
        stopping.set()
        said.put_nowait(None)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        async with listening(make_app(served, token=token, port=port), listener):
            try:
                for folder in also:
                    await served.open(folder)
                collect_again()
                url = f"http://{ADDRESS}:{port}/?token={quote(token, safe='')}"
                for one in served.all():
                    shown = f"{one.project.name} ({one.project.root})"
                    yield CommandOutput(kind="text", text=f"Serving the project {shown}")
                yield CommandOutput(kind="text", text=f"Open {url}")
                yield CommandOutput(kind="text", text="Stop with Ctrl-C.")
                yield CommandOutput(kind="result", data={"url": url, "port": port, "project": str(host.project.root)})
                while (line := await said.get()) is not None:
                    yield CommandOutput(kind="progress", text=line)
                yield CommandOutput(kind="progress", text=_stopping(served.begin_draining(), drain))
                await served.drained(drain)
            finally:
                for one in served.all():
                    await one.events.close()
    finally:
        served.let_go()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _stopping(count: int, seconds: float) -> str:
    if not count:
        return "Stopping …"
    return f"Stopping: {count} in flight may end within {seconds:g} s; once more stops at once …"
