"""Starts and ends the process of a plugin."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Self

from tavern_isolation.link import GRACE, Link, Message, Serve

_VARIABLES = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT"})

_LINE = 10_000
"""Characters of a line of output that reach the log."""


class ChildProcess:
    """A child, its link, and what it prints, which goes to the plugin's log."""

    def __init__(self, process: Process, link: Link, reading: asyncio.Task[None]) -> None:
        self._process = process
        self._reading = reading
        self.link = link
        self.pid = process.pid

    @classmethod
    async def start(
        cls, plugin: str, serve: Serve, notice: Callable[[str, Message], None], log: logging.Logger
    ) -> Self:
        """Start a child for a plugin, as an ordinary process of this user without a sandbox."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tavern_isolation.child",
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**_kept(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

        def ended(reason: str) -> None:
            if not reason.endswith("was stopped"):
                log.error("%s, process %d", reason, process.pid)
            with contextlib.suppress(ProcessLookupError):
                process.kill()

        link = await Link.open(ours, f"the process of {plugin}", serve, notice, ended)
        reading = asyncio.create_task(_read(process, log), name=f"{plugin}: output of its process")
        return cls(process, link, reading)

    async def stop(self) -> None:
        """Have the child close what it holds, and end it."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(GRACE):
                await self.link.call("stop", b"{}")
        await self.link.close()
        self.kill()
        await self._process.wait()
        await self._reading

    def kill(self) -> None:
        """End the child at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


def _kept() -> dict[str, str]:
    """Return the variables that a child has of the host's: none of those that may hold a secret."""
    return {name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith("PYTHON")}


async def _read(process: Process, log: logging.Logger) -> None:
    assert process.stdout is not None
    rest = b""
    while data := await process.stdout.read(1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for line in [*lines, rest] if len(rest) > _LINE else lines:
            log.info("%s", line.decode(errors="replace")[:_LINE])
        rest = b"" if len(rest) > _LINE else rest
    if rest:
        log.info("%s", rest.decode(errors="replace"))
