"""A program of this machine whose input and output are pipes, for sandboxes of plugins. It isolates nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping, Sequence
from typing import Literal, TypeVar

from tavern_scripts.api.scripts import SandboxOutput, ScriptUsage

T = TypeVar("T")

_CHUNK = 64 << 10
_WAITING = 8
"""How many pieces of output wait to be taken; then no more is read, and the program waits."""


class PipedProgram:
    """One run of a program, without a shell and with no environment but the one given.

    `start` it, iterate over `outputs` to its end, and `stop` it in any case; `status` is its exit code then, negative
    for a signal.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        descriptors: Sequence[int] = (),
        before: bytes = b"",
    ) -> None:
        """`descriptors` are those of this process that it is given besides, under the same numbers. It reads what is
        `before` its input first."""
        self._argv = argv
        self._environment = environment
        self._descriptors = descriptors
        self._before = before
        self._process: asyncio.subprocess.Process | None = None
        self._queue: asyncio.Queue[SandboxOutput | None] = asyncio.Queue(_WAITING)
        self._since = time.perf_counter()
        self._sizes = {"input": 0, "stdout": 0, "stderr": 0}

    @property
    def status(self) -> int | None:
        """How it ended; None where it has not."""
        return self._process.returncode if self._process is not None else None

    async def start(self) -> None:
        """Start it. Raises `OSError`."""
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(self._environment),
            cwd="/",
            pass_fds=self._descriptors,
            start_new_session=True,
            limit=_CHUNK,
        )

    def usage(self, *, cpu_ms: float | None = None, peak_memory: int | None = None) -> ScriptUsage:
        """Return the resources used since it was made, with those measured elsewhere."""
        return ScriptUsage(
            wall_ms=(time.perf_counter() - self._since) * 1000,
            cpu_ms=cpu_ms,
            peak_memory=peak_memory,
            input=self._sizes["input"],
            output=self._sizes["stdout"],
            log=self._sizes["stderr"],
        )

    async def outputs(
        self, stdin: AsyncIterator[bytes], enough: Coroutine[None, None, None]
    ) -> AsyncIterator[SandboxOutput]:
        """Feed it from `stdin`, yield what it writes, and wait for its end; it is killed when `enough` returns."""
        process = self._process
        assert process is not None and process.stdin and process.stdout and process.stderr
        reading = (self._read("stdout", process.stdout), self._read("stderr", process.stderr))
        works = (self._feed(process.stdin, stdin), self._killed_after(enough), *reading)
        tasks = [asyncio.create_task(work) for work in works]
        try:
            still_open = len(reading)
            while still_open:
                output = await self._queue.get()
                if output is None:
                    still_open -= 1
                else:
                    self._sizes[output.kind] += len(output.data)
                    yield output
            await process.wait()
        finally:
            for task in tasks:
                task.cancel()
            await to_the_end(asyncio.gather(*tasks, return_exceptions=True))

    async def stop(self) -> None:
        """Kill it, if it runs still, and wait for its end."""
        process = self._process
        if process is not None:
            assert process.stdout and process.stderr
            self._kill()
            # asyncio waits for the ends of pipes, too, and sees none of one that is full
            await to_the_end(asyncio.gather(process.stdout.read(), process.stderr.read(), process.wait()))

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _killed_after(self, enough: Coroutine[None, None, None]) -> None:
        await enough
        self._kill()

    async def _read(self, kind: Literal["stdout", "stderr"], pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(_CHUNK):
            await self._queue.put(SandboxOutput(kind=kind, data=data))
        await self._queue.put(None)

    async def _feed(self, pipe: asyncio.StreamWriter, stdin: AsyncIterator[bytes]) -> None:
        try:
            pipe.write(self._before)
            async for data in stdin:
                self._sizes["input"] += len(data)
                pipe.write(data)
                await pipe.drain()
        except (BrokenPipeError, ConnectionResetError):  # it reads no more
            pass
        finally:
            pipe.close()


async def to_the_end(work: Awaitable[T]) -> T:
    """Wait until something has been done, even if the waiting is cancelled; then it is cancelled nevertheless."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:
            break
    if cancelled is not None:
        raise cancelled
    return task.result()
