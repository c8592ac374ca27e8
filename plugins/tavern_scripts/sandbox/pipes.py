"""Reads what a program writes and feeds it, with a bounded amount of memory: where nobody takes what was read, no more
is read, and the program waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Literal

Channel = Literal["stdout", "stderr", "channel"]

_CHUNK = 65536
_HIGH = 4 * _CHUNK
_LOW = _CHUNK


class Outlets:
    """The ends of pipes to be read; iterate over them for (name, data) in the order of arrival, until all are closed.

    It takes the descriptors over; `close` ends it early.
    """

    def __init__(self, descriptors: Mapping[Channel, int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, Channel] = {number: name for name, number in descriptors.items()}
        self._waiting: deque[tuple[Channel, bytes]] = deque()
        self._size = 0
        self._paused = False
        self._awake: asyncio.Future[None] | None = None
        for number in self._open:
            os.set_blocking(number, False)
            self._loop.add_reader(number, self._read, number)

    def __aiter__(self) -> AsyncIterator[tuple[Channel, bytes]]:
        return self

    async def __anext__(self) -> tuple[Channel, bytes]:
        while not self._waiting:
            if not self._open:
                raise StopAsyncIteration
            self._awake = self._loop.create_future()
            await self._awake
        name, data = self._waiting.popleft()
        self._size -= len(data)
        if self._paused and self._size <= _LOW:
            self._paused = False
            for number in self._open:
                self._loop.add_reader(number, self._read, number)
        return name, data

    def close(self) -> None:
        """Close all that is open still, and forget what nobody took."""
        for number in list(self._open):
            self._end(number)
        self._waiting.clear()
        self._size = 0

    def _read(self, number: int) -> None:
        try:
            data = os.read(number, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(number)
            return
        self._waiting.append((self._open[number], data))
        self._size += len(data)
        if self._size >= _HIGH and not self._paused:
            self._paused = True
            for each in self._open:
                self._loop.remove_reader(each)
        self._wake()

    def _end(self, number: int) -> None:
        if self._open.pop(number, None) is not None:
            self._loop.remove_reader(number)
            os.close(number)
        self._wake()

    def _wake(self) -> None:
        if self._awake is not None:
            _set(self._awake)


async def feed(number: int, data: AsyncIterator[bytes]) -> None:
    """Write all that comes into a pipe and close it; ends early where the program reads no more of it."""
    try:
        os.set_blocking(number, False)
        async for chunk in data:
            view = memoryview(chunk)
            while view:
                try:
                    view = view[os.write(number, view[:_CHUNK]) :]
                except BlockingIOError:
                    await _writable(number)
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        os.close(number)
        close = getattr(data, "aclose", None)
        if close is not None:
            with contextlib.suppress(RuntimeError):  # it is being read by another task at the moment
                await close()


async def _writable(number: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(number, _set, ready)
    try:
        await ready
    finally:
        loop.remove_writer(number)


async def read_all(number: int, limit: int) -> bytes:
    """Read a pipe to its end and close it, up to `limit` bytes."""
    loop = asyncio.get_running_loop()
    os.set_blocking(number, False)
    result = b""
    try:
        while len(result) < limit:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_reader(number, _set, ready)
            try:
                await ready
            finally:
                loop.remove_reader(number)
            data = os.read(number, limit - len(result))
            if not data:
                break
            result += data
    finally:
        os.close(number)
    return result


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
