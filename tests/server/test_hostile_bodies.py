"""Bodies that are sent to do harm: small ones that become large, ones that never end, and ones of two lengths."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from helpers.repetition import Failures

from tavern_host.server import connections
from tavern_host.server.app import make_app
from tavern_host.testing.http import TOKEN, HttpClient

BOMB = gzip.compress(bytes(32 << 20))
ROUTES = {
    "a route of a plugin": "POST /api/tools/execute",
    "an upload": "POST /api/blobs",
    "a route of the host": "PUT /api/plugins/acme-web/state",
    "below a project": "POST /api/projects/default/tools/execute",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(site: HttpClient) -> AsyncIterator[int]:
    """Serve the module's host on a listener of its own, as `tavern serve` does."""
    listener = connections.listening_socket(0)
    port: int = listener.getsockname()[1]
    async with connections.listening(make_app(site.host, token=TOKEN, port=port), listener):
        yield port


async def sent(port: int, route: str, headers: dict[str, str], body: bytes, *, token: str = TOKEN) -> tuple[int, str]:
    """Send a request as bytes, and return the status and the answer of the server, which closes the connection."""
    lines = {"Host": f"127.0.0.1:{port}", "Authorization": f"Bearer {token}", "Connection": "close", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{route} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = (await reader.read()).decode()
    finally:
        writer.close()
    return int(answer.split(" ", 2)[1]), answer.partition("\r\n\r\n")[2]


@pytest.mark.asyncio(loop_scope="module")
async def test_bodies_are_unpacked_within_the_limits_of_what_they_become(port: int) -> None:
    text = json.dumps({"toolId": "nobody:none", "arguments": {"text": "inn " * 50_000}}).encode()
    whole = gzip.compress(text)
    halves = gzip.compress(text[:1000]) + gzip.compress(b"") + gzip.compress(text[1000:])
    with Failures() as failures:
        for name, route, body, expected in (
            ("one member", "POST /api/tools/execute", whole, (200, None)),
            ("several members", "POST /api/tools/execute", halves, (200, None)),
            ("a bomb", "POST /api/tools/execute", BOMB, (413, "too_large")),
            ("a bomb of members", "POST /api/tools/execute", gzip.compress(bytes(1 << 20)) * 17, (413, "too_large")),
            ("a bomb for the host", "PUT /api/plugins/acme-web/state", BOMB, (413, "too_large")),
            ("half of it", "POST /api/tools/execute", whole[:-9], (400, "invalid_input")),
            ("something after it", "POST /api/tools/execute", whole + b"more", (400, "invalid_input")),
            ("no gzip", "POST /api/tools/execute", text, (400, "invalid_input")),
            ("another packing", "POST /api/tools/execute", zlib.compress(text), (400, "invalid_input")),
            ("twice packed", "POST /api/tools/execute", gzip.compress(whole), (400, "invalid_input")),
        ):
            for encoding in ("gzip", "GZip", "x-gzip"):
                with failures.row(f"{name}, {encoding}"):
                    headers = {"Content-Encoding": encoding, "Content-Length": str(len(body))}
                    status, answer = await sent(port, route, headers, body)
                    assert (status, json.loads(answer).get("code")) == expected


@pytest.mark.asyncio(loop_scope="module")
async def test_an_upload_is_kept_as_it_was_packed(port: int, site: HttpClient) -> None:
    body = gzip.compress(b"inn" * 1_000_000)
    headers = {"Content-Encoding": "gzip", "Content-Length": str(len(body)), "Content-Type": "text/plain"}
    status, answer = await sent(port, "POST /api/blobs", headers, body)
    assert (status, json.loads(answer)["length"]) == (201, 3_000_000)
    assert await site.host.blobs.read(await site.host.blobs.get(json.loads(answer)["hash"])) == b"inn" * 1_000_000


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_not_unpacked_is_refused_unread(port: int) -> None:
    login = json.dumps({"name": "ann", "password": "good evening"}).encode()
    with Failures() as failures:
        for encoding in (
            "deflate",
            "br",
            "zstd",
            "gzip, gzip",
            "identity, gzip",
            "wonder",
            "gzip\r\nContent-Encoding: gzip",
        ):
            for name, route in ROUTES.items():
                with failures.row(f"{encoding} for {name}"):
                    headers = {"Content-Encoding": encoding, "Content-Length": str(len(BOMB))}
                    status, answer = await sent(port, route, headers, BOMB)
                    assert (status, json.loads(answer)["code"]) == (415, "unsupported_encoding")
        for name, body in (("right", gzip.compress(login)), ("garbage", b"no gzip"), ("bomb", BOMB)):
            with failures.row(f"{name} of a stranger"):
                headers = {"Content-Encoding": "gzip", "Content-Length": str(len(body))}
                assert (await sent(port, "POST /api/login", headers, body, token=""))[0] == 415
        for encoding in ("identity", "Identity", ""):
            with failures.row(f"{encoding!r} is as it is"):
                headers = {"Content-Encoding": encoding, "Content-Length": "2"}
                assert (await sent(port, "POST /api/tools/execute", headers, b"{}"))[0] == 400


@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_has_one_length(port: int) -> None:
    both = {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    hidden = b"0\r\n\r\nGET /api/plugins HTTP/1.1\r\n\r\n"
    with Failures() as failures:
        for headers, body in (
            (both, hidden),
            ({"Content-Length": "2, 3"}, b"{}"),
            ({"Content-Length": "+2"}, b"{}"),
            ({"Content-Length": "0x2"}, b"{}"),
            ({"Content-Length": "2\r\nContent-Length: 3"}, b"{}"),
            ({"Transfer-Encoding": "chunked, identity"}, b"{}"),
            ({"Transfer-Encoding": "\x0bchunked"}, hidden),
            ({"Transfer-Encoding": "chunked"}, b"-1\r\n\r\n"),
            ({"Transfer-Encoding": "chunked"}, b"ffffffffffffffffffff\r\n{}"),
            ({"Content-Length": "2", "X": "a\r\n b"}, b"{}"),
            ({"Content-Length": "2", "X": "a\0b"}, b"{}"),
            ({"Content-Length ": "2"}, b"{}"),
        ):
            with failures.row(f"{headers} {body!r}"):
                status, answer = await sent(port, "POST /api/tools/execute", headers, body)
                assert status == 400
                assert answer.count("HTTP/1.1") == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_that_does_not_come_is_not_waited_for(port: int) -> None:
    routes = list(ROUTES.values())
    answers = await asyncio.gather(*(sent(port, route, {"Content-Length": "9"}, b"{") for route in routes))
    with Failures() as failures:
        for route, (status, answer) in zip(routes, answers, strict=True):
            with failures.row(route):
                assert (status, json.loads(answer)["error"]) == (408, "the body has not arrived within 120 s")
