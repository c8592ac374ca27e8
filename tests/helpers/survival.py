"""Processes that tests start, let work, and kill or stop at a named point: each calls a function of the tests."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import pickle
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self

SECONDS = 200.0


class Child:
    """A process that calls `function(*given)`, a function of a module, within `async with`; it is killed at the end of
    that. What it is given can be pickled; what it says, with `say`, is a line of JSON each.

    `before` are words before its command, `environment` are variables beside those of the tests.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, before: Sequence[str] = (), **environment: str):
        call = base64.b64encode(pickle.dumps((function, arguments))).decode()
        self._name = function.__name__
        self._command = [*before, sys.executable, "-c", "from helpers.survival import run; run()", call]
        path = os.pathsep.join(folder for folder in sys.path if folder)
        self._environment = {**os.environ, "PYTHONPATH": path, **environment}

    async def __aenter__(self) -> Self:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by `__aexit__`
        how: Any = {"stdin": PIPE, "stdout": PIPE, "stderr": self._errors, "env": self._environment, "limit": 2**20}
        self.process = await asyncio.create_subprocess_exec(*self._command, **how)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.send(signal.SIGKILL)
        await self._rest()
        self.process.stdin.close()
        self._errors.close()

    @property
    def errors(self) -> str:
        """What it has written to stderr."""
        return os.pread(self._errors.fileno(), 2**20, 0).decode(errors="replace")

    async def said(self) -> Any:
        """Return the next thing that it says."""
        line = await self._read(self.process.stdout.readline())
        if not line.endswith(b"\n"):
            await self._rest()
            self._fail("ended early")
        return json.loads(line)

    def tell(self) -> None:
        """Write a line to its stdin, for which it waits."""
        self.process.stdin.write(b"\n")

    def send(self, how: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.process.returncode is None:
            self.process.send_signal(how)

    def check(self) -> bool:
        """Return that it runs; fails if it has ended."""
        return self.process.returncode is None or self._fail("ended early")

    async def ended(self, code: int = 0) -> list[Any]:
        """Return all that it still says until it ends, with this exit code or by the signal of that negative number. A
        line that is cut off is left out."""
        *whole, _ = (await self._rest()).split(b"\n")
        if self.process.returncode != code:
            self._fail(f"ended, but not with {code}")
        return [json.loads(line) for line in whole]

    async def killed(self) -> list[Any]:
        """Kill it; return all that it had still said until then."""
        self.check()
        self.send(signal.SIGKILL)
        return await self.ended(-signal.SIGKILL)

    async def _rest(self) -> bytes:
        rest = await self._read(self.process.stdout.read())
        await self._read(self.process.wait())
        return rest

    async def _read(self, reading: Any) -> Any:
        try:
            async with asyncio.timeout(SECONDS):
                return await reading
        except TimeoutError:
            self._fail(f"has said nothing for {SECONDS:g} s")

    def _fail(self, what: str) -> NoReturn:
        raise AssertionError(f"{self._name} {what} (exit code {self.process.returncode}):\n{self.errors}")


async def killed(function: Callable[..., Any], *arguments: Any, lines: int) -> list[Any]:
    """Let a function run in a process until it has said so many things, and kill it; return all that it said."""
    async with Child(function, *arguments) as child:
        return [await child.said() for _ in range(lines)] + await child.killed()


def say(value: Any) -> None:
    """Say something to the test that started this process."""
    print(json.dumps(value), flush=True)


def run() -> None:
    """Call the function for which this process was started."""
    function, arguments = pickle.loads(base64.b64decode(sys.argv[1]))
    if inspect.iscoroutine(called := function(*arguments)):
        asyncio.run(called)
