"""What runs a child: an ordinary process, or one in a sandbox. It knows nothing of what the child is asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Protocol

from tavern_host.common.system import NEEDS_LINUX
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_scripts.api.scripts import SandboxOutput

CHILD = "tavern_isolation.child"
"""The module that a child runs, with the number of its end of the link as its argument."""

_VARIABLES = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT"})


class Carrier(Protocol):
    """A child that runs. `pid` is that of its first process, `sandbox` the name of its sandbox, empty where it has
    none, `proxies` are the variables by which it reaches the network."""

    pid: int
    sandbox: str
    proxies: dict[str, str]

    async def run(self, said: Said) -> str:
        """Pass on what it prints until all of it has ended; return in words how."""

    def kill(self) -> None:
        """End all of it at once."""


Said = Callable[[bytes], float]
"""Takes what was printed, and returns in how many seconds it takes more."""

Carry = Callable[[socket.socket], Awaitable[Carrier]]
"""Starts a child that has this end of its link."""


class PlainProcess:
    """An ordinary process of the host's user: it may do what that user may."""

    sandbox = ""

    def __init__(self, process: Process, proxies: dict[str, str]) -> None:
        self._process = process
        self.proxies = proxies
        self.pid = process.pid

    @classmethod
    async def start(cls, end: socket.socket, interpreter: str, packages: list[str], proxies: dict[str, str]) -> Carrier:
        """Start one that imports from these folders. Raises `ServiceUnavailable` where the system is not Linux."""
        if NEEDS_LINUX:
            raise ServiceUnavailable(f"a plugin in a process of its own {NEEDS_LINUX}")
        kept = {name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith("PYTHON")}
        process = await asyncio.create_subprocess_exec(
            *(interpreter, "-m", CHILD, str(end.fileno())),
            pass_fds=(end.fileno(),),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env={**kept, "PYTHONPATH": os.pathsep.join(packages)},
            start_new_session=True,
        )
        return cls(process, proxies)

    async def run(self, said: Said) -> str:
        """Pass on what it prints until it has ended; return in words how."""
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(1 << 16):  # noqa: ASYNC110  # it reads no faster than it may
            await asyncio.sleep(said(data))
        await self._process.wait()
        return how_ended(self._process.returncode or 0)

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


class SandboxedProcess:
    """A process in a sandbox, which ends with all that it began."""

    def __init__(
        self,
        sandbox: str,
        pid: int,
        outputs: AsyncGenerator[SandboxOutput, None],
        proxies: dict[str, str],
        held: AsyncExitStack,
    ) -> None:
        self.sandbox = sandbox
        self.pid = pid
        self.proxies = proxies
        self._outputs = outputs
        self._held = held
        self._handle = os.pidfd_open(pid)

    @classmethod
    async def begun(
        cls,
        sandbox: str,
        outputs: AsyncGenerator[SandboxOutput, None],
        proxies: dict[str, str],
        held: AsyncExitStack,
    ) -> Carrier:
        """Return it when it runs; `held` is closed when it has ended. Raises `ServiceUnavailable` where the sandbox
        could not be made."""
        try:
            first = await anext(outputs)
            if first.kind != "begun" or first.pid is None:
                raise ServiceUnavailable(
                    f"the sandbox {sandbox} could not be made: {first.data.decode(errors='replace')}"
                )
            return cls(sandbox, first.pid, outputs, proxies, held)
        except BaseException:
            await outputs.aclose()
            await held.aclose()
            raise

    async def run(self, said: Said) -> str:
        """Pass on what it prints until all of it has ended; return in words how."""
        how = "its sandbox is gone"
        try:
            async with self._held, aclosing(self._outputs):
                async for output in self._outputs:
                    if output.kind != "ended":
                        await asyncio.sleep(said(output.data))
                    elif output.reason is not None:
                        how = f"it reached its limit of {output.reason}"
                    else:
                        how = how_ended(output.exit_code or 0)
        finally:
            os.close(self._handle)
            self._handle = -1
        return how

    def kill(self) -> None:
        """End all of it at once."""
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)


def how_ended(code: int) -> str:
    """How a process with this exit code ended: negative where a signal ended it."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


async def carry_plainly(end: socket.socket, proxies: dict[str, str]) -> Carrier:
    """Start a child as an ordinary process that imports what the host does."""
    return await PlainProcess.start(end, sys.executable, [*filter(None, sys.path)], proxies)
