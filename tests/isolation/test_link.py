"""The link between a host and a child: what one side may rely on whatever the other does.

Both ends are in this process, over a real pair of sockets; frames that no link sends are written by hand.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.waiting import until

from tavern_host import clock
from tavern_host.contracts.errors import (
    Conflict,
    InvalidInput,
    PluginEnded,
    PluginFailure,
    Recursion,
    ServiceUnavailable,
)
from tavern_isolation import frames
from tavern_isolation import link as module
from tavern_isolation.frames import Message
from tavern_isolation.in_flight import WINDOW, WINDOW_BYTES, Stream
from tavern_isolation.link import Link
from tavern_isolation.pace import Pace

HEADER = struct.Struct("!IBHII")
CALL, CANCEL, REPLY, STREAM, ITEM, END = 1, 2, 4, 7, 8, 9


class Side:
    """One end, what it was asked, and why it ended."""

    def __init__(self) -> None:
        self.link: Link
        self.notices: list[tuple[str, Message]] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.closed = 0
        self.item = b""

    async def serve(self, name: str, parts: Message) -> Any:
        match name:
            case "echo":
                return parts
            case "fail":
                raise Conflict("taken", plugin="acme")
            case "foreign":
                raise ValueError("boom")
            case "exit":
                raise SystemExit(3)
            case "back":
                return await self.link.call("echo", *parts)
            case "deeper":
                return await self.link.call("deeper")
            case "count":
                return self.items(int(parts[0]))
            case "large":
                return (bytes(frames.MAX_MESSAGE + 1),)
            case _:
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.append(name)
        raise AssertionError("it cannot come here")

    async def items(self, most: int) -> AsyncIterator[Message]:
        self.given = 0
        try:
            for number in range(most):
                self.given += 1
                yield (str(number).encode() + self.item,)
        finally:
            self.closed += 1

    def notice(self, name: str, parts: Message) -> None:
        self.notices.append((name, parts))

    async def open(self, end: socket.socket, peer: str) -> Link:
        self.link = await Link.open(end, peer, self.serve, self.notice, self.ended.append)
        return self.link


@pytest.fixture
async def sides() -> AsyncIterator[tuple[Side, Side]]:
    host, child = Side(), Side()
    ours, theirs = socket.socketpair()
    await host.open(ours, "the child")
    await child.open(theirs, "the host")
    yield host, child
    await host.link.close()
    await child.link.close()


@pytest.fixture
async def alone() -> AsyncIterator[tuple[Side, socket.socket]]:
    """Return a side whose other side is a bare socket."""
    host = Side()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    await host.open(ours, "the child")
    yield host, theirs
    await host.link.close()
    theirs.close()


def frame(kind: int, number: int, *parts: bytes, parent: int = 0) -> bytes:
    lengths = b"".join(struct.pack("!I", len(part)) for part in parts)
    body = lengths + b"".join(parts)
    return HEADER.pack(len(body), kind, len(parts), number, parent) + body


# --- calls -----------------------------------------------------------------------------------------------


async def test_messages_of_every_size_arrive_whole(sides: tuple[Side, Side]) -> None:
    host, _ = sides
    for size in (0, 1, 4_000, 262_143, 262_144, 262_145, 524_288, 3_000_001):
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        assert await host.link.call("echo", body, b"", b"end") == (body, b"", b"end"), size


async def test_small_and_large_messages_keep_their_order(sides: tuple[Side, Side]) -> None:
    host, child = sides
    for number in range(200):
        host.link.notify(str(number), bytes(number * 5_000))
    await host.link.call("echo")
    assert [(name, len(part)) for name, (part,) in child.notices] == [(str(n), n * 5_000) for n in range(200)]


async def test_errors_arrive_by_their_code(sides: tuple[Side, Side]) -> None:
    host, _ = sides
    with pytest.raises(Conflict) as refused:
        await host.link.call("fail")
    assert (refused.value.message, refused.value.info.plugin) == ("taken", "acme")
    for name, text in (("foreign", "ValueError: boom"), ("exit", "SystemExit: 3")):
        with pytest.raises(PluginFailure, match=text):
            await host.link.call(name)
    with pytest.raises(InvalidInput, match="too many for one message"):
        await host.link.call("large")
    with pytest.raises(InvalidInput, match="too many for one message"):
        await host.link.call("echo", bytes(frames.MAX_MESSAGE))
    assert await host.link.call("echo", b"still") == (b"still",)


async def test_calls_go_to_and_fro_but_not_without_end(sides: tuple[Side, Side]) -> None:
    host, child = sides
    assert await host.link.call("back", b"x") == (b"x",)
    with pytest.raises(Recursion, match="are 16 deep in each other"):
        await host.link.call("deeper")
    await until(lambda: host.link.in_flight == child.link.in_flight == 0)


async def test_a_cancelled_call_is_cancelled_there(sides: tuple[Side, Side]) -> None:
    host, child = sides
    waiting = asyncio.create_task(host.link.call("wait"))
    await host.link.call("echo")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (child.cancelled, host.link.in_flight) == (["wait"], 0)


async def test_a_call_that_is_cancelled_before_it_began_is_answered(sides: tuple[Side, Side]) -> None:
    host, child = sides
    waiting = asyncio.create_task(host.link.call("wait"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert host.link.in_flight == 0
    assert await host.link.call("echo", b"x") == (b"x",)
    assert child.link.in_flight == 0


async def test_more_calls_than_may_be_in_flight_are_refused(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 3)
    host, _ = sides
    waiting = [asyncio.create_task(host.link.call("wait")) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(ServiceUnavailable, match="3 calls are in flight"):
        await host.link.call("echo")
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    assert await host.link.call("echo") == ()


# --- streams ---------------------------------------------------------------------------------------------


async def test_a_stream_waits_for_its_reader(sides: tuple[Side, Side]) -> None:
    host, child = sides
    stream = await host.link.call("count", b"1000")
    assert isinstance(stream, Stream)
    await host.link.call("echo")
    assert child.given <= WINDOW + 1
    assert [int(item) async for (item,) in stream] == list(range(1000))
    assert (child.closed, host.link.in_flight) == (1, 0)


async def test_a_stream_of_large_items_has_few_bytes_on_the_way(sides: tuple[Side, Side]) -> None:
    host, child = sides
    child.item = bytes(1_000_000)
    stream = await host.link.call("count", b"100")
    assert isinstance(stream, Stream)
    for _ in range(50):
        await host.link.call("echo")
    assert child.given * 1_000_000 <= WINDOW_BYTES + 2_000_000
    assert len([item async for item in stream]) == 100


async def test_a_stream_that_is_left_ends_there(sides: tuple[Side, Side]) -> None:
    host, child = sides
    stream = await host.link.call("count", b"1000000")
    assert isinstance(stream, Stream)
    assert await anext(stream) == (b"0",)
    await stream.aclose()
    assert (child.closed, host.link.in_flight) == (1, 0)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


# --- the end ---------------------------------------------------------------------------------------------


async def test_everything_is_settled_when_the_other_side_goes(sides: tuple[Side, Side]) -> None:
    host, child = sides
    waiting = [asyncio.create_task(host.link.call("wait")) for _ in range(500)]
    stream = await host.link.call("count", b"1000000")
    assert isinstance(stream, Stream)
    await asyncio.sleep(0)
    await host.link.call("echo")
    await child.link.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(one) for one in ended} == {PluginEnded}
    assert ended[0].info.retryable  # type: ignore[union-attr]
    with pytest.raises(PluginEnded, match="the child has ended"):
        _ = [item async for item in stream]
    with pytest.raises(PluginEnded):
        await host.link.call("echo")
    host.link.notify("nobody hears it")
    assert (host.ended, len(child.cancelled)) == (["the child has ended"], 500)


async def test_a_reader_that_stands_still_stops_the_writer(alone: tuple[Side, socket.socket]) -> None:
    host, theirs = alone
    sent = [asyncio.create_task(host.link.call("x", bytes(30_000_000))) for _ in range(5)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert host.link.in_flight < 5, "those beyond what may wait are not copied"
    theirs.close()
    ended = await asyncio.gather(*sent, return_exceptions=True)
    assert {type(one) for one in ended} == {PluginEnded}


# --- floods ----------------------------------------------------------------------------------------------


async def test_what_comes_faster_than_its_pace_waits_and_nothing_is_lost() -> None:
    host, child = Side(), Side()
    ours, theirs = socket.socketpair()
    host.link = await Link.open(ours, "the child", host.serve, host.notice, host.ended.append, Pace(0.02))
    await child.open(theirs, "the host")
    began = clock.monotonic()
    for number in range(12_000):
        child.link.notify(str(number))
    await until(lambda: len(host.notices) == 12_000)
    assert clock.monotonic() - began > 2.3, "5,000 in each second, and few at once"
    assert [name for name, _ in host.notices] == [str(number) for number in range(12_000)]
    assert await child.link.call("echo", b"x") == (b"x",) and not host.ended
    await host.link.close()
    await child.link.close()


async def test_calls_with_too_much_in_them_are_refused(alone: tuple[Side, socket.socket]) -> None:
    host, theirs = alone
    loop = asyncio.get_running_loop()
    for number in (1, 2, 3):
        await loop.sock_sendall(theirs, frame(CALL, number, b"wait", bytes(frames.MAX_MESSAGE - 100)))
    assert b"too large arguments" in await loop.sock_recv(theirs, 4_096)
    assert not host.ended and host.link.is_idle is False


MALFORMED = {
    "a length over the limit": HEADER.pack(frames.MAX_MESSAGE + 1, CALL, 1, 1, 0),
    "an unknown kind": frame(99, 1),
    "no name": frame(CALL, 1),
    "a name that is no text": frame(CALL, 1, b"\xff\xfe"),
    "parts that are longer than it": HEADER.pack(8, CALL, 1, 1, 0) + struct.pack("!I", 100) + b"abcd",
    "parts that are shorter than it": HEADER.pack(8, CALL, 1, 1, 0) + struct.pack("!I", 1) + b"abcd",
    "more parts than bytes": HEADER.pack(4, CALL, 900, 1, 0) + b"abcd",
    "too many parts": HEADER.pack(4 * 1_001, CALL, 1_001, 1, 0) + bytes(4 * 1_001),
    "a number twice": frame(CALL, 7, b"wait") + frame(CALL, 7, b"wait"),
    "an answer to nothing": frame(REPLY, 5, b"x"),
    "an item of nothing": frame(ITEM, 5, b"x"),
    "the end of nothing": frame(END, 5),
}
ANSWERS = {
    "an item before its stream": frame(ITEM, 1, b"x"),
    "the end of no stream": frame(END, 1),
    "an error that is none": frame(5, 1, b"{}"),
    "an error without parts": frame(5, 1),
    "a stream twice": frame(STREAM, 1) + frame(STREAM, 1),
    "an answer within a stream": frame(STREAM, 1) + frame(REPLY, 1, b"x"),
    "items that nobody asked for": frame(STREAM, 1) + frame(ITEM, 1, b"x") * (WINDOW + 1),
}


async def test_a_frame_that_breaks_a_rule_ends_the_link() -> None:
    with Failures() as failures:
        for table, asks in ((MALFORMED, False), (ANSWERS, True)):
            for what, data in table.items():
                with failures.row(what):
                    host, (ours, theirs) = Side(), socket.socketpair()
                    await host.open(ours, "the child")
                    asked = asyncio.create_task(host.link.call("x")) if asks else None
                    await asyncio.sleep(0)
                    theirs.sendall(data)
                    await until(lambda host=host: host.ended)  # type: ignore[misc]
                    assert host.ended[0].startswith("the child sent a malformed message")
                    if asked is not None:
                        with pytest.raises(PluginEnded):
                            answer = await asked
                            assert isinstance(answer, Stream)
                            _ = [item async for item in answer]
                    await host.link.close()
                    theirs.close()


async def test_frames_may_come_byte_by_byte_and_late_ones_harm_nobody(alone: tuple[Side, socket.socket]) -> None:
    host, theirs = alone
    asked = asyncio.create_task(host.link.call("x"))
    await asyncio.sleep(0)
    for byte in frame(REPLY, 1, b"one", b"two"):
        theirs.send(bytes([byte]))
        await asyncio.sleep(0)
    assert await asked == (b"one", b"two")
    theirs.send(frame(REPLY, 1, b"again") + frame(CANCEL, 77) + frame(3, 77))
    theirs.send(frame(CALL, 1, b"echo", b"x"))
    await until(lambda: host.link.in_flight == 0)
    assert host.ended == []
