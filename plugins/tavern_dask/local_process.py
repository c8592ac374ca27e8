"""One process of a local cluster: its scheduler or a worker. It reads what to be from standard input, and ends with it:
so it never outlives the host. Everything listens on 127.0.0.1 alone and asks for a certificate."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

import dask
from distributed import Scheduler, Worker
from distributed.security import Security

HERE = "127.0.0.1"
CONFIG: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.scheduler.allowed-failures": 1,
}
"""No pages, which would be open to every user of the machine; and it is left to the host how often a node is run again
whose worker is lost."""


async def main(about: dict[str, Any]) -> None:
    """Run until standard input ends, or the worker is closed."""
    stdin = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    security = Security(require_encryption=True, **about["security"])
    common = {"host": HERE, "security": security, "dashboard": False, "dashboard_address": f"{HERE}:0"}
    if about["role"] == "scheduler":
        server: Any = Scheduler(protocol="tls://", port=about.get("port", 0), **common)
    else:
        server = Worker(about["scheduler"], nthreads=1, memory_limit=0, local_directory=about["folder"], **common)
    async with server:
        print(server.address, flush=True)
        finished = asyncio.ensure_future(server.finished())
        await asyncio.wait([finished, asyncio.ensure_future(stdin.read())], return_when=asyncio.FIRST_COMPLETED)


if __name__ == "__main__":
    logging.getLogger("distributed").setLevel(logging.WARNING)
    about = json.loads(sys.stdin.readline())
    with dask.config.set(CONFIG):
        asyncio.run(main(about))
