"""A program that stays in its sandbox and waits for input between uses; its owner decides what to write."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from tavern_scripts.api.scripts import SandboxLaunch, SandboxOutput, ScriptBackend


class SandboxedProgram:
    """A running program. Nothing of it is left after `close`."""

    def __init__(self, backend: ScriptBackend, launch: SandboxLaunch) -> None:
        self.launch = launch
        self.ended: SandboxOutput | None = None
        self._told: deque[bytes | AsyncIterator[bytes] | None] = deque()
        self._woken = asyncio.Event()
        self._outputs = backend.run(launch, self._input())
        self._next: asyncio.Task[SandboxOutput] | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether it is there and has said nothing that was not taken."""
        return self.ended is None and (self._next is None or not self._next.done())

    def tell(self, data: bytes | AsyncIterator[bytes] | None) -> None:
        """Write to its stdin, after all earlier input; None closes it."""
        self._told.append(data)
        self._woken.set()

    async def next(self) -> SandboxOutput | None:
        """Return the next of what comes out, None after its end. Nothing is lost when the waiting is cancelled."""
        if self.ended is not None:
            return None
        self.listen()
        task = self._next
        assert task is not None
        await asyncio.wait({task})
        if self._next is not task:  # it was closed meanwhile
            return None
        self._next = None
        try:
            output = task.result()
        except StopAsyncIteration:
            output = SandboxOutput(kind="ended", data=b"the sandbox ended without a word", reason="broken")
        if output.kind == "ended":
            self.ended = output
            await self._outputs.aclose()  # type: ignore[attr-defined]
        return output

    def listen(self) -> None:
        """Read ahead by one, so that its end is noticed while nobody asks."""
        if self._next is None and self.ended is None:
            self._next = asyncio.ensure_future(self._take())

    async def close(self) -> None:
        """End it with all that it began."""
        task, self._next = self._next, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            with contextlib.suppress(BaseException):
                task.result()
        await self._outputs.aclose()  # type: ignore[attr-defined]
        if self.ended is None:
            self.ended = SandboxOutput(kind="ended", exit_code=-9)

    async def _take(self) -> SandboxOutput:
        return await anext(self._outputs)

    async def _input(self) -> AsyncIterator[bytes]:
        while True:
            while not self._told:
                self._woken.clear()
                await self._woken.wait()
            data = self._told.popleft()
            if data is None:
                return
            if isinstance(data, bytes):
                yield data
            else:
                async for piece in data:
                    yield piece
