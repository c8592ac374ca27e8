"""A cluster on this machine: a scheduler and workers, each a process of its own that ends with the host. A worker that
ends is replaced. Their environment has what Python needs, and no secrets of the host's."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import os
import sys
import tempfile
from typing import Any

from distributed.security import Security

from tavern_host import PluginContext
from tavern_host.contracts.errors import ServiceUnavailable

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "VIRTUAL_ENV")
_STARTS = 60.0
"""Seconds that a process may take to start."""
_ENDS = 1.5
"""Seconds that a process has to end by itself: the host waits 5 for the client, the workers and then the scheduler."""
_ROLES = ("scheduler", "worker", "client")


class LocalCluster:
    """The processes. `security` is for the client; only who has it can connect."""

    def __init__(self, context: PluginContext, workers: int) -> None:
        self._context = context
        self._count = workers or os.cpu_count() or 1
        self.security = made = Security.temporary()
        own = {f"tls_{role}_{part}": getattr(made, f"tls_{role}_{part}") for role in _ROLES for part in ("key", "cert")}
        self._security: dict[str, Any] = own | {"tls_ca_file": made.tls_ca_file}
        self.address = ""
        self.processes: list[asyncio.subprocess.Process] = []
        self._folder = tempfile.TemporaryDirectory(prefix="tavern-dask-")
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start all processes. Raises `ServiceUnavailable`."""
        _, self.address = await self._begin("scheduler")
        spawn = self._context.tasks.spawn
        own = contextvars.Context()  # what they log is not about the run that needed the cluster first
        self._tasks = [own.run(spawn, self._keep_worker(), name=f"local worker {n}") for n in range(self._count)]

    async def close(self) -> None:
        """End all processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*map(_end, list(self.processes)))
        self.processes.clear()
        self._folder.cleanup()

    async def _keep_worker(self) -> None:
        """Have a worker, and another one when it ends."""
        delay = 0.1
        while True:
            try:
                process, address = await self._begin("worker")
            except ServiceUnavailable as error:
                self._context.log.warning("%s; once more in %g s", error.message, delay)
                await asyncio.sleep(delay)
                delay = min(2 * delay, 30.0)
                continue
            delay = 0.1
            try:
                await process.wait()
            finally:
                await _end(process)
                self.processes.remove(process)
            self._context.log.warning("the local worker %s ended with %s; one is started", address, process.returncode)

    async def _begin(self, role: str) -> tuple[asyncio.subprocess.Process, str]:
        """Start a process; return it and its address when it is there."""
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tavern_dask.local_process"), stdin=pipe, stdout=pipe, env=environment
        )
        about = {"role": role, "scheduler": self.address, "security": self._security, "folder": self._folder.name}
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(about).encode() + b"\n")
            async with asyncio.timeout(_STARTS):
                address = (await process.stdout.readline()).decode().strip()
        except TimeoutError:
            address = ""
        except BaseException:
            await _end(process)
            raise
        if not address:
            await _end(process)
            raise ServiceUnavailable(f"the {role} of the local cluster did not start, status {process.returncode}")
        self.processes.append(process)
        return process, address


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process: it ends with its standard input, or is killed, also where nobody waits for it any more."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENDS):
                await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
