"""The way to a server: a program's stdin and stdout, or HTTP. What comes is bounded in size and in number, so that a
server that floods is slowed down and costs nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import anyio
import httpx2
from anyio.abc import AsyncResource, ObjectReceiveStream, ObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from tavern_host import clock
from tavern_host.common.system import end_group
from tavern_host.contracts.errors import LimitReached, TavernError, describe
from tavern_scripts.api.scripts import ProgramRequest, SandboxOutput

MOST_BYTES = 16 << 20
"""How many bytes one message of a server may have."""
MOST_UNASKED = 500
"""How many messages that nobody asked for are read in a second; further ones wait, and the server with them."""
_PATIENT = 3
"""For how many seconds in a row that may be so."""
_TAIL, _MOST_WAITING = 4096, 256
_MOST_LOG, _PAUSE = 1 << 20, 0.1
"""After how many bytes of its log a program waits, and for how many seconds."""
_PATIENCE = 2.0

Run = Callable[[AsyncIterator[bytes]], AsyncIterator[SandboxOutput]]
"""Runs a program, feeding it, as `ScriptBackend.run` does."""
Streams = tuple[Any, Any]


class Paced(ObjectReceiveStream[SessionMessage | Exception], ObjectSendStream[SessionMessage]):
    """Both streams of a session. What comes that was not asked for is slowed down; where that lasts, `on_end` is called
    with the reason, and no more is read."""

    def __init__(self, read: Any, write: Any, on_end: Callable[[str], None]) -> None:
        self._read = read
        self._write = write
        self._on_end = on_end
        self._asked = self._unasked = self._crowded = 0
        self._since = clock.monotonic()

    async def send(self, item: SessionMessage) -> None:
        self._asked += isinstance(item.message, JSONRPCRequest)  # which may be answered once
        await self._write.send(item)

    async def receive(self) -> SessionMessage | Exception:
        item: SessionMessage | Exception = await self._read.receive()
        is_answer = isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse | JSONRPCError)
        if is_answer and self._asked:
            self._asked -= 1
            return item
        self._unasked += 1
        if self._unasked > MOST_UNASKED:
            self._crowded += 1
            if self._crowded > _PATIENT:
                self._on_end(f"it sends {MOST_UNASKED} messages that nobody asked for in a second, and more")
                raise anyio.EndOfStream
            await asyncio.sleep(max(0.0, self._since + 1 - clock.monotonic()))
            self._unasked, self._since = 0, clock.monotonic()
        elif clock.monotonic() - self._since > 1:
            self._unasked, self._crowded, self._since = 1, 0, clock.monotonic()
        return item

    async def aclose(self) -> None:
        await self._read.aclose()
        await self._write.aclose()


@asynccontextmanager
async def paced(
    transport: AbstractAsyncContextManager[Streams], on_end: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """Give the streams of a transport, slowed down; `on_end` is called with the reason if they are cut off."""
    async with transport as (read, write):
        both = Paced(read, write, on_end)
        yield both, both


class _Program(AsyncResource):
    """A program's stdin and stdout, for a session. It runs while somebody receives: without a task or a buffer between
    the session and its pipes, a call takes a turn of the event loop less each way."""

    def __init__(self, run: Run, on_end: Callable[[str], None]) -> None:
        self._on_end = on_end
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
        self._said, self._why = bytearray(), "it ended"
        self._messages = self._coming(run(self._stdin()))

    async def send(self, item: SessionMessage) -> None:
        try:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            self._outgoing.put_nowait(line)
        except asyncio.QueueFull:
            self._on_end(f"it does not read what it is sent: {_MOST_WAITING} messages wait")
            raise anyio.BrokenResourceError from None

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await anext(self._messages)
        except StopAsyncIteration:
            pass
        except Exception as error:
            self._why = error.message if isinstance(error, TavernError) else describe(error)
        last = self._said.decode("utf-8", "replace").strip()
        self._on_end(f"{self._why}; it said last: {last[-500:]}" if last else self._why)
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._messages.aclose()

    async def _stdin(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._outgoing.get()

    async def _coming(self, outputs: AsyncIterator[SandboxOutput]) -> AsyncGenerator[SessionMessage | Exception]:
        """Yield each line as a message, and note how the program ended. Raises `LimitReached` for one that is too
        long."""
        buffer, logged = bytearray(), 0
        async with aclosing(outputs) as coming:  # type: ignore[type-var]
            async for output in coming:
                if output.kind == "stderr":
                    self._said += output.data
                    del self._said[:-_TAIL]
                    logged += len(output.data)
                    if logged > _MOST_LOG:
                        logged = 0
                        await asyncio.sleep(_PAUSE)
                elif output.kind == "stdout":
                    rest, *lines = output.data.split(b"\n")
                    buffer += rest
                    for line in lines:
                        yield _message(bytes(buffer))  # an empty one counts, too
                        buffer = bytearray(line)
                    if len(buffer) > MOST_BYTES:
                        raise LimitReached(f"it sent a message of more than {MOST_BYTES >> 20} MiB")
                elif output.kind == "ended":
                    note = output.data.decode("utf-8", "replace")
                    code = "" if output.exit_code is None else f"it ended with the exit code {output.exit_code}"
                    self._why = ": ".join(part for part in (code, note) if part) or self._why


@asynccontextmanager
async def program_streams(run: Run, on_end: Callable[[str], None]) -> AsyncIterator[Streams]:
    """Run a program and give the streams of messages from and to it. `on_end` is called with the reason of its end."""
    async with _Program(run, on_end) as program:
        yield program, program


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return ValueError(f"what it writes is no message: {line[:100].decode('utf-8', 'replace')!r}")


async def run_plain(request: ProgramRequest, stdin: AsyncIterator[bytes]) -> AsyncIterator[SandboxOutput]:
    """Run a program without a sandbox, with all rights of the host's user; closing the iterator ends it."""
    passed_on = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
    variables = {**passed_on, **request.environment}
    process = await anyio.open_process(request.argv, env=variables, cwd=request.folder, start_new_session=True)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    errors, sink = process.stderr, process.stdin
    said = bytearray()

    async def listen() -> None:
        async for piece in errors:
            said.extend(piece)
            del said[:-_TAIL]

    async def feed() -> None:
        with contextlib.suppress(ConnectionError, anyio.BrokenResourceError):
            async for data in stdin:
                await sink.send(data)

    tasks = [asyncio.create_task(listen()), asyncio.create_task(feed())]
    try:
        async for data in process.stdout:
            yield SandboxOutput(kind="stdout", data=data)
        code = await process.wait()
        yield SandboxOutput(kind="stderr", data=bytes(said))
        yield SandboxOutput(kind="ended", exit_code=code)
    finally:
        for task in tasks:
            task.cancel()
        for sign in ("SIGTERM", "SIGKILL"):
            with contextlib.suppress(ProcessLookupError):
                end_group(process.pid, sign)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _PATIENCE)
                break


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, on_end: Callable[[str], None]) -> None:
        self._stream, self._on_end = stream, on_end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MOST_BYTES:
                self._on_end(reason := f"it sent a message of more than {MOST_BYTES >> 20} MiB")
                raise httpx2.ReadError(reason)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedHttp(httpx2.AsyncHTTPTransport):
    """Answers that are no streams of events are read up to a size; of events the SDK bounds each. None may be
    compressed: what is counted is what comes. A session that the server does not know any more, since it was started
    again, is over."""

    def __init__(self, on_end: Callable[[str], None], proxy: str | None) -> None:
        super().__init__(proxy=proxy)
        self._on_end = on_end

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.headers["Accept-Encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            self._on_end(reason := "it compresses its answers, which it was not asked for")
            raise httpx2.ReadError(reason)
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            self._on_end("it has ended the session")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _Counted(response.stream, self._on_end)
        return response


@asynccontextmanager
async def http_streams(
    url: str, headers: dict[str, str], seconds: float, proxy: str | None, on_end: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """Give the streams of messages from and to a server at an address, through a proxy where one is named. `on_end` is
    called where the server ends it."""
    timeout, transport = httpx2.Timeout(seconds, read=None), _BoundedHttp(on_end, proxy)
    client = httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport, trust_env=False)
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=MOST_BYTES) as streams:
        yield streams
