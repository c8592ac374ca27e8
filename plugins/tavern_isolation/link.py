"""The link between the host and a child process: calls and streams in both directions over one socket pair.

A message is a few byte strings; what they mean is for others to say. Each frame is a header and the parts of one
message, and the frames of a side arrive in order. Nothing that the other side sends is trusted: a frame that breaks a
rule of this page ends the link.

A call made while another is carried out says which one (`parent`), so that it runs in the context in which that one was
made: who asked for it, how deep it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Final

from tavern_host.contracts.errors import (
    InvalidInput,
    PluginEnded,
    PluginFailure,
    Recursion,
    ServiceUnavailable,
    describe,
    one_line,
)
from tavern_host.runtime.codec import decode_error, encode_error
from tavern_host.runtime.threads import is_being_cancelled
from tavern_isolation import pace
from tavern_isolation.frames import (
    CALL,
    CANCEL,
    CANCELLED,
    CREDIT,
    END,
    ERROR,
    HEADER,
    ITEM,
    MAX_MESSAGE,
    NOTICE,
    REPLY,
    SLICE,
    STREAM,
    Malformed,
    Message,
    Partial,
    frame,
    split,
    text,
)
from tavern_isolation.in_flight import Asked, Served, Stream
from tavern_isolation.pace import Pace

Serve = Callable[[str, Message], Awaitable["Message | AsyncIterator[Message]"]]
"""Carries out a call by name; the answer is a message or a stream of them."""

MAX_CALLS: Final = 1_000
"""Calls of one side in flight."""
MAX_NESTED: Final = 16
"""How deep calls to and fro may be in each other."""
MAX_HELD: Final = 2 * MAX_MESSAGE
"""Bytes of the arguments of all calls of the other side that are carried out."""
MAX_WAITING: Final = MAX_MESSAGE
"""Bytes that may wait to be sent before callers wait, too."""
MAX_ERROR: Final = 1_000_000
"""Bytes of an error; of a larger one the beginning is sent."""
GRACE: Final = 2.0
"""Seconds that a cancelled call may take to end on the other side."""


_serving: ContextVar[tuple[Link | None, int, int]] = ContextVar("serving", default=(None, 0, 0))
"""The link and the id of the call that this task carries out, and how many such calls it is within, itself included."""


class Link(asyncio.BufferedProtocol):
    """One end of a link, in the event loop that opened it. `peer` is what messages call the other side; `ended` is
    called once, with the reason in words."""

    def __init__(
        self,
        peer: str,
        serve: Serve,
        notice: Callable[[str, Message], None],
        ended: Callable[[str], None],
        limit: Pace | None = None,
    ) -> None:
        self._peer = peer
        self._serve = serve
        self._notice = notice
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._base = copy_context()
        self._transport: asyncio.Transport | None = None
        self._reason = ""
        self._asked: dict[int, Asked] = {}
        self._served: dict[int, Served] = {}
        self._last = 0
        self._outgoing: deque[bytes | memoryview] = deque()
        self._waiting = 0
        self._is_paused = False
        self._is_flushing = False
        self._room = asyncio.Event()
        self._room.set()
        self._pace = limit
        self._is_waiting = False
        self._arguments = 0
        self._incoming = bytearray(2 * SLICE)
        self._held = 0
        self._large: Partial | None = None

    @classmethod
    async def open(
        cls,
        end: socket.socket,
        peer: str,
        serve: Serve,
        notice: Callable[[str, Message], None],
        ended: Callable[[str], None],
        limit: Pace | None = None,
    ) -> Link:
        """Return the link over one end of a socket pair, which it owns from now on. With a `limit`, calls and notices
        of the other side that come faster wait in the socket."""
        end.setblocking(False)
        link = cls(peer, serve, notice, ended, limit)
        await link._loop.create_connection(lambda: link, sock=end)
        return link

    @property
    def is_idle(self) -> bool:
        """Whether neither side waits for the other."""
        return not self._asked and not self._served

    @property
    def in_flight(self) -> int:
        """How many calls were made here and are not answered."""
        return len(self._asked)

    # --- asking ----------------------------------------------------------------------------------------------

    def notify(self, name: str, *parts: bytes) -> None:
        """Send a message that has no answer; nothing is sent where the link has ended. Raises `InvalidInput`."""
        if not self._reason:
            self._send(NOTICE, 0, 0, (name.encode(), *parts))

    async def call(self, name: str, *parts: bytes) -> Message | Stream:
        """Return the answer of the other side to a call, or the stream that it begins.

        A cancelled call is cancelled there, too. Raises what the other side raised, as the error with its code;
        `PluginEnded`; `InvalidInput` for a message that is too large.
        """
        while self._waiting > MAX_WAITING and not self._reason:
            self._room.clear()
            await self._room.wait()
        if self._reason:
            raise PluginEnded(self._reason)
        if len(self._asked) >= MAX_CALLS:
            raise ServiceUnavailable(f"{MAX_CALLS} calls are in flight; try again when some have ended")
        link, parent, depth = _serving.get()
        self._last = number = self._last % 0xFFFF_FFFF + 1
        asked = Asked(number, self._loop.create_future(), copy_context(), depth)
        self._send(CALL, number, parent if link is self else 0, (name.encode(), *parts))
        self._asked[number] = asked
        try:
            answer: Message | Stream = await asked.answer
        except asyncio.CancelledError:
            if is_being_cancelled():
                await self._cancel(asked)
            raise
        return answer

    async def _cancel(self, asked: Asked) -> None:
        """Have a call cancelled that nobody waits for any more, and give it a moment to end."""
        if asked.number not in self._asked:
            return
        self._send(CANCEL, asked.number, 0, ())
        asked.over = self._loop.create_future()
        await asyncio.wait([asked.over], timeout=GRACE)

    # --- serving ---------------------------------------------------------------------------------------------

    async def _carry_out(self, served: Served, name: str, parts: Message, depth: int) -> None:
        number = served.number
        _serving.set((self, number, depth))
        answer: Message | AsyncIterator[Message] = ()
        try:
            answer = await self._serve(name, parts)
            if isinstance(answer, tuple):
                self._send(REPLY, number, 0, answer)
            else:
                self._send(STREAM, number, 0, ())
                async for item in answer:
                    await served.may_send(sum(map(len, item)))
                    self._send(ITEM, number, 0, item)
                self._send(END, number, 0, ())
            served.is_answered = True
        except asyncio.CancelledError:
            raise  # it is said when the task is done, which may be before it began
        except BaseException as error:
            self._send_error(number, error)
            served.is_answered = True
        finally:
            if not isinstance(answer, tuple) and hasattr(answer, "aclose"):
                with contextlib.suppress(Exception):
                    await answer.aclose()

    def _carried_out(self, served: Served, task: asyncio.Task[None]) -> None:
        self._served.pop(served.number, None)
        self._arguments -= served.size
        if not served.is_answered:
            self._send(CANCELLED, served.number, 0, ())

    def _send_error(self, number: int, error: BaseException) -> None:
        data = encode_error(error)
        if len(data) > MAX_ERROR:
            data = encode_error(PluginFailure(one_line(describe(error))))
        self._send(ERROR, number, 0, (data,))

    # --- frames ----------------------------------------------------------------------------------------------

    def _send(self, kind: int, number: int, parent: int, parts: Message) -> None:
        if self._reason or self._transport is None:
            return
        try:
            pieces = frame(kind, number, parent, parts)
        except ValueError as error:
            raise InvalidInput(str(error)) from None
        self._outgoing.extend(pieces)
        self._waiting += sum(map(len, pieces))
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)  # what is sent in one turn of the loop goes out together

    def _flush(self) -> None:
        assert self._transport is not None
        self._is_flushing = False
        while self._outgoing and not self._is_paused:
            pieces = [self._outgoing.popleft()]
            size = len(pieces[0])
            while self._outgoing and size + len(self._outgoing[0]) <= SLICE:
                pieces.append(self._outgoing.popleft())
                size += len(pieces[-1])
            self._waiting -= size
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._waiting <= MAX_WAITING:
            self._room.set()

    def pause_writing(self) -> None:
        """Wait with what is to be sent: the other side does not read as fast."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send what waited."""
        self._is_paused = False
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: into the large message of which some are there, else into the buffer."""
        if self._large is not None:
            return memoryview(self._large.body)[self._large.held :]
        return memoryview(self._incoming)[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        """Look at the bytes that arrived."""
        try:
            if self._large is None:
                self._held += nbytes
                self._read()
            else:
                self._large.held += nbytes
                if self._large.held == len(self._large.body):
                    large, self._large = self._large, None
                    self._arrived(large.header, large.body)
        except (Malformed, ValueError) as error:
            self._end(f"{self._peer} sent a malformed message: {error}")

    def _read(self) -> None:
        at = 0
        while self._held - at >= HEADER.size and not self._reason and not self._is_waiting:
            header = HEADER.unpack_from(self._incoming, at)
            size, begin = header[0], at + HEADER.size
            if size > MAX_MESSAGE:
                raise Malformed(f"of {size:,} bytes")
            if self._held - begin >= size:
                at = begin + size
                self._arrived(header, memoryview(self._incoming)[begin:at])
            elif HEADER.size + size > SLICE:
                self._large = Partial(header, bytearray(size), self._held - begin)
                self._large.body[: self._large.held] = self._incoming[begin : self._held]
                at = self._held
            else:
                break
        self._incoming[: self._held - at] = self._incoming[at : self._held]
        self._held -= at

    def _arrived(self, header: tuple[int, ...], body: bytearray | memoryview) -> None:
        _, kind, count, number, parent = header
        if kind > END:
            raise Malformed(f"of the kind {kind}")
        if kind in pace.ASKED_FOR_BY_NOBODY:
            self._slow_down(pace.ASKED_FOR_BY_NOBODY[kind] + len(body) * pace.BYTE)
        if kind == NOTICE:
            name, *rest = split(count, body, at_least=1)
            self._notice(text(name), tuple(rest))
        elif kind == CALL:
            name, *rest = split(count, body, at_least=1)
            self._begin(number, parent, text(name), tuple(rest), len(body))
        elif kind in (CANCEL, CREDIT):
            if (served := self._served.get(number)) is not None:  # else it has ended meanwhile
                served.task.cancel() if kind == CANCEL else served.add_credit(parent)
        else:
            self._answered(kind, number, split(count, body))

    def _slow_down(self, cost: float) -> None:
        if self._pace is not None and (seconds := self._pace.take(cost)) > 0:
            self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        """Read nothing for a while: what comes waits in the socket, and then who sends it."""
        assert self._transport is not None and isinstance(self._transport, asyncio.ReadTransport)
        if not self._is_waiting:
            self._is_waiting = True
            self._transport.pause_reading()
            due = self._loop.time() + seconds
            self._loop.call_at(due, self._look_how_busy, due)

    def _look_how_busy(self, due: float) -> None:
        """Go on, later the busier this loop is: the calls that came may be what it is busy with."""
        late = self._loop.time() - due
        self._loop.call_later(min(late * pace.LATE, pace.LONGEST), self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        if not self._reason:
            self.buffer_updated(0)
        if not self._is_waiting and not self._reason:
            assert isinstance(self._transport, asyncio.ReadTransport)
            self._transport.resume_reading()

    def _begin(self, number: int, parent: int, name: str, parts: Message, size: int) -> None:
        if number in self._served or len(self._served) >= MAX_CALLS:
            raise Malformed("a call under a number that is taken, or one too many")
        within = self._asked.get(parent)
        context, depth = (self._base.copy(), 1) if within is None else (within.context.copy(), within.depth + 1)
        if depth > MAX_NESTED:
            self._send_error(number, Recursion(f"calls to and from {self._peer} are {MAX_NESTED} deep in each other"))
            return
        if self._arguments + size > MAX_HELD:
            self._send_error(number, ServiceUnavailable("the calls that are carried out have too large arguments"))
            return
        self._arguments += size
        served = self._served[number] = Served(number, size)
        served.task = self._loop.create_task(self._carry_out(served, name, parts, depth), context=context)
        served.task.add_done_callback(partial(self._carried_out, served))

    def _answered(self, kind: int, number: int, parts: Message) -> None:
        asked = self._asked.get(number)
        if asked is None:
            if number > self._last:
                raise Malformed("the answer to a call that was never made")
            self._slow_down(pace.NOTICE)
            return  # nobody waits for it any more
        if kind == ITEM:
            if asked.stream is None:
                raise Malformed("an item without a stream")
            asked.stream.arrived(parts)
        elif kind in (REPLY, STREAM, END) and (kind == END) is (asked.stream is None):
            raise Malformed("an answer within a stream, or the end of none")
        elif kind == STREAM:
            more = lambda items: self._send(CREDIT, number, items, ())  # noqa: E731
            asked.stream = Stream(more, partial(self._cancel, asked))
            asked.settle(asked.stream)
        else:
            error = None if kind in (REPLY, END) else _error(kind, parts)  # before it counts as answered
            del self._asked[number]
            asked.end(parts if kind == REPLY else None, error)

    # --- the end ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """End what waits for the other side."""
        self._end(f"{self._peer} has ended")

    async def close(self) -> None:
        """End the link, and what is carried out for the other side."""
        self._end(f"{self._peer} was stopped")
        tasks = [served.task for served in self._served.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)

    def _end(self, reason: str) -> None:
        if self._reason:
            return
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()
        self._outgoing.clear()
        self._waiting = 0
        self._room.set()
        for served in self._served.values():
            served.task.cancel()
        asked, self._asked = self._asked, {}
        for one in asked.values():
            one.end(None, PluginEnded(reason))
        self._ended(reason)


def _error(kind: int, parts: Message) -> BaseException:
    """Return the error that the other side raised."""
    if kind == CANCELLED:
        return PluginFailure("it was cancelled on the other side")
    if kind != ERROR or len(parts) != 1 or len(parts[0]) > MAX_ERROR:
        raise Malformed(f"an answer of the kind {kind} with {len(parts)} parts, or too large an error")
    try:
        return decode_error(parts[0])
    except ValueError as error:
        raise Malformed(f"an error that is none: {error}") from None
