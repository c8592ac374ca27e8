"""What a client that brings no token may do to the server: connect in every way, and little more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from helpers.command_line import tavern
from helpers.repetition import Failures
from helpers.serve_process import serving

from tavern_host.server import connections, door
from tavern_host.server.app import make_app
from tavern_host.testing.http import TOKEN, HttpClient

UPGRADE = (
    "GET /ws HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)
STRANGERS = {
    "says nothing": "",
    "half a head": "GET / HTTP/1.1\r\nHost: {host}\r\nX: ",
    "half a line": "GE",
    "no blank line": "GET / HTTP/1.1\r\n",
    "another host": "GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n",
    "wrong token": "GET /?token=wrong HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "idle after an answer": "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "HTTP/1.0 that stays": "GET / HTTP/1.0\r\nHost: {host}\r\nConnection: keep-alive\r\n\r\n",
    "half a body": "POST /api/tools/execute HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n{{",
    "half a chunk": "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    "waits to continue": "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
    "expects a wonder": "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\nExpect: wonder\r\n\r\n",
    "a socket": UPGRADE,
    "a socket and more": UPGRADE + "\x81\x85abcd",
    "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "garbage": "\x00\x01\x02\r\n\r\n",
    "a bad header": "GET / HTTP/1.1\r\nHost {host}\r\n\r\n",
    "a head that is too long": "GET / HTTP/1.1\r\nHost: {host}\r\nX: " + "x" * 20_000 + "\r\n\r\n",
    "a bad length": "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: -1\r\n\r\n",
    "a bad method": "G{{T / HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "the preface of HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "many at once": "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n" * 200,
}
"""What a client without a token sends, and then nothing more."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def impatient(site: HttpClient) -> AsyncIterator[HttpClient]:
    """Serve the module's host on a listener of its own, with deadlines of half a second and room for 50."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(door, "TOKEN_DEADLINE", 0.5)
        patch.setattr(door, "MOST_STRANGERS", 50)
        listener = connections.listening_socket(0)
        port = listener.getsockname()[1]
        async with connections.listening(make_app(site.host, token=TOKEN, port=port), listener):
            yield HttpClient(site.host, site.client, port)


async def opened(port: int, text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect and send a text; the server may have closed the connection by then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.format(host=f"127.0.0.1:{port}").encode("latin-1"))
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes that came until the server closed the connection."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_every_stranger_is_cut_off(impatient: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "TOKEN_DEADLINE", 2.0)  # so that what is answered is answered in time
    reader, writer = await opened(
        impatient.port, f"GET /api/executions?token={TOKEN} HTTP/1.1\r\nHost: {{host}}\r\n\r\n"
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 20")
    strangers = {(name, half): await opened(impatient.port, STRANGERS[name]) for name in STRANGERS for half in (0, 1)}
    for (_, is_half_closed), (_, theirs) in strangers.items():
        if is_half_closed and not theirs.is_closing():
            theirs.write_eof()
    async with asyncio.timeout(60):
        answers = dict(zip(strangers, await asyncio.gather(*(ended(s[0]) for s in strangers.values())), strict=True))
    for _, theirs in strangers.values():
        theirs.close()

    heads = {"wrong token": b"HTTP/1.1 401", "half a body": b"HTTP/1.1 401", "a socket": b"HTTP/1.1 401"}
    heads |= {"another host": b"HTTP/1.1 421", "a bad length": b"HTTP/1.0 400"}
    with Failures() as failures:
        for (name, is_half_closed), answer in answers.items():
            with failures.row((name, is_half_closed)):
                assert answer.startswith(heads.get(name, b""))
                assert b"HTTP/" not in answer or b"\r\nX-Content-Type-Options: nosniff\r\n" in answer
                assert not [word for word in (b"aiohttp", b"Python", b"python") if word in answer]
    writer.write(f"GET /api/executions HTTP/1.1\r\nHost: 127.0.0.1:{impatient.port}\r\n\r\n".encode())
    assert b"HTTP/1.1 401" in await reader.readuntil(b"HTTP/1.1 401")  # the connection is open still
    writer.close()


async def test_one_who_drips_or_does_not_read_is_cut_off(impatient: HttpClient) -> None:
    reader, writer = await opened(impatient.port, "GET / HTTP/1.1\r\nHost: {host}\r\n")
    deaf = await opened(impatient.port, STRANGERS["wrong token"] * 20_000)
    async with asyncio.timeout(60):
        while not reader.at_eof():
            try:
                writer.write(b"X-Drip: 1\r\n")
                await writer.drain()
                await asyncio.wait_for(reader.read(1), 0.1)
            except (TimeoutError, ConnectionError):
                continue
        with pytest.raises(ConnectionError):
            while True:  # what it sends is taken no more
                deaf[1].write(b"x" * 65536)
                await deaf[1].drain()
    writer.close()
    deaf[1].close()


async def test_a_slow_body_with_the_token_is_taken(impatient: HttpClient) -> None:
    head = f"PUT /api/x/acme-web/echo/a HTTP/1.1\r\nHost: {{host}}\r\nAuthorization: Bearer {TOKEN}\r\n"
    reader, writer = await opened(impatient.port, f"{head}Content-Length: 8\r\n\r\n")
    waiting = await opened(impatient.port, "")
    for _ in range(4):
        writer.write(b"ab")
        await ended(waiting[0])  # for as long as a stranger has
        waiting[1].close()
        waiting = await opened(impatient.port, "")

    async with asyncio.timeout(60):
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 20")
    writer.close()
    waiting[1].close()


async def status_of(port: int, **source: tuple[str, int]) -> int:
    """Return the status that a request with the token is answered with; 0 where the connection is cut."""
    head = f"GET /api/plugins?token={TOKEN} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **source)  # type: ignore[arg-type]
    try:
        writer.write(head.encode())
        line = await reader.readline()
        return int(line.split()[1]) if line else 0
    except ConnectionError:
        return 0
    finally:
        writer.close()


async def test_many_who_come_at_once_with_the_token_are_answered(impatient: HttpClient) -> None:
    async with asyncio.timeout(60):
        answers = Counter(await asyncio.gather(*(status_of(impatient.port) for _ in range(500))))
    assert answers.keys() <= {200, 429, 503}
    assert answers[200] > 0


async def test_nobody_with_a_token_waits_behind_strangers_for_long(impatient: HttpClient) -> None:
    """Ten of them keep twenty connections each, where there is room for fifty, and open another where one is closed."""
    strangers = [(f"127.0.0.{10 + number}", 0) for number in range(10)]

    async def keep_connected(source: tuple[str, int]) -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", impatient.port, local_addr=source)
                await reader.read()
                writer.close()

    crowd = [asyncio.create_task(keep_connected(source)) for source in strangers for _ in range(20)]
    await asyncio.sleep(1)
    try:
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(status_of(impatient.port) for _ in range(10)))
    finally:
        for one in crowd:
            one.cancel()
        await asyncio.wait(crowd)
    assert answers == [200] * 10


async def test_one_address_has_so_many_requests_without_a_token(
    impatient: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MOST_OF_ONE", 3)
    half = [await opened(impatient.port, STRANGERS["half a body"]) for _ in range(6)]
    lines = [await reader.readline() for reader, _ in half]
    for _, writer in half:
        writer.close()
    assert Counter(lines) == {b"HTTP/1.1 401 Unauthorized\r\n": 3, b"HTTP/1.1 429 Too Many Requests\r\n": 3}
    assert await status_of(impatient.port) == 200


async def test_strangers_do_not_starve_the_host(tmp_path: Path) -> None:
    assert (await asyncio.to_thread(tavern, "init", "--empty", tmp_path / "inn")).code == 0
    async with serving(tmp_path / "inn", descriptors=256) as host, AsyncExitStack() as stack:
        port = int(host.base.rpartition(":")[2])
        socket = await host.session.ws_connect(f"{host.base}/ws")
        for number in range(400):
            _, writer = await opened(port, list(STRANGERS.values())[number % len(STRANGERS)])
            stack.callback(writer.close)
            if number % 60 == 0:
                async with asyncio.timeout(60), ClientSession() as other, other.get(host.url) as answer:
                    assert answer.status == 200
        assert not socket.closed
        await socket.close()
        _, err = await host.stop()
    assert err == ""


async def test_those_with_a_token_are_answered_with_few_file_descriptors(tmp_path: Path) -> None:
    assert (await asyncio.to_thread(tavern, "init", "--empty", tmp_path / "inn")).code == 0
    async with serving(tmp_path / "inn", descriptors=128) as host, AsyncExitStack() as stack:
        port, token = int(host.base.rpartition(":")[2]), host.url.partition("=")[2]
        lines = Counter[bytes]()
        async with asyncio.timeout(60):
            for _ in range(300):
                reader, writer = await opened(
                    port, f"GET /api/plugins?token={token} HTTP/1.1\r\nHost: {{host}}\r\n\r\n"
                )
                stack.callback(writer.close)  # they stay, as those of browsers do
                lines[await reader.readline()] += 1
        _, err = await host.stop()
    assert lines == {b"HTTP/1.1 200 OK\r\n": 300}
    assert err == ""
