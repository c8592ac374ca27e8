"""`tavern serve`: starts a host and its server, and stops both on SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tavern_host.cli.garbage import collect_in_pauses
from tavern_host.common.system import NEEDS_LINUX, on_signals
from tavern_host.contracts.commands import CommandOutput
from tavern_host.host import Host
from tavern_host.runtime.installed import first_party_part

if TYPE_CHECKING:
    from tavern_host.server.reach import Reach
    from tavern_host.server.served import ServedProjects

DRAIN = 10.0
"""Seconds that work in flight has to end once the server is stopped."""


async def serve(
    host: Host,
    reach: Reach,
    *,
    also: Sequence[Path] = (),
    make_host: Callable[[Path], Host] | None = None,
    drain: float = DRAIN,
) -> AsyncIterator[CommandOutput]:
    """Serve a started host until a signal comes, and the projects in `also` beside it, each with a host of its own that
    `make_host` makes. Port 0 is any free one. The token is `TAVERN_TOKEN`, else the operator's.

    The first signal refuses new work and lets what is in flight end, for `drain` seconds at most; a second one stops at
    once. What is left then is journalled, and resumes at the next start. With TLS, SIGHUP reads the certificate again.

    Raises `InvalidInput` where the port cannot be used or a folder is no project, `Misconfigured` where the operator's
    token cannot be used.
    """
    from tavern_host.server.app import make_app
    from tavern_host.server.connections import listening, listening_socket
    from tavern_host.server.holder import Server
    from tavern_host.server.operator_token import OperatorToken
    from tavern_host.server.served import ServedProjects

    token = OperatorToken.of_environment(host.folders.state).make()
    listener = listening_socket(reach.port, reach.address)
    reach = replace(reach, port=listener.getsockname()[1])
    said: asyncio.Queue[str | None] = asyncio.Queue()  # None: stop
    here = Server(os.getpid(), reach.local_url, token.fixed)
    try:
        served = ServedProjects(host, make_host, say=said.put_nowait, server=here)
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

    forget = on_signals({"SIGINT": stop, "SIGTERM": stop} | ({"SIGHUP": reach.reload} if reach.tls else {}))
    notify, stay_watched = first_party_part("systemd:notify"), first_party_part("systemd:stay_watched")
    tasks = [asyncio.create_task(stay_watched(), name="say to systemd that the server is alive")]
    try:
        async with listening(make_app(served, token=token, port=reach.port, reach=reach), listener, reach):
            try:
                for folder in also:
                    await served.open(folder)
                tasks.append(asyncio.create_task(collect_in_pauses(), name="collect garbage"))
                for output in _opened(served, f"{reach.url}/?token={quote(token(), safe='')}", reach.port):
                    yield output
                notify("READY=1")
                routes = [one.registrations.routes.values() for one in served.all()]
                tasks.append(asyncio.create_task(first_party_part("warming:warm_up")(routes), name="warm up"))
                while (change := await said.get()) is not None:
                    yield CommandOutput(kind="progress", text=change)
                notify("STOPPING=1")
                yield CommandOutput(kind="progress", text=_stopping(served.begin_draining(), drain))
                await served.drained(drain)
            finally:
                for one in served.all():
                    await one.events.close()
    finally:
        for task in tasks:
            task.cancel()
        served.let_go()
        forget()


def _opened(served: ServedProjects, url: str, port: int) -> Iterator[CommandOutput]:
    """Yield where a server that is ready can be reached."""
    which = [f"Serving the project {one.project.name} ({one.project.root})" for one in served.all()]
    which += [f"Tested on Linux alone: whatever runs in a sandbox {NEEDS_LINUX}."] if NEEDS_LINUX else []
    for line in (*which, f"Open {url}", "Stop with Ctrl-C."):
        yield CommandOutput(kind="message", text=line)
    yield CommandOutput(kind="result", data={"url": url, "port": port, "project": str(served.default.project.root)})


def _stopping(count: int, seconds: float) -> str:
    many = f"Stopping: {count} in flight may end within {seconds:g} s; once more stops at once …"
    return many if count else "Stopping …"
