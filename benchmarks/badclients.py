"""Clients that speak no HTTP, or nearly: thousands of malformed exchanges, between which a good one is answered."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import struct
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Result
from benchmarks.load import write_project
from benchmarks.serving import TOKEN, Served, server_of

EXCHANGES = 2000
SEED = 7
GROWTH = 0.2
"""By which part memory may grow over all exchanges but the first fifth."""
_ANSWER = 1.0
"""Seconds that a client waits for an answer; one that sends half a request gets none."""
_AT_ONCE = 20

_METHODS = (
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "G\x00T",
    "",
    "X" * 9000,
)
_PATHS = (
    *(
        "/",
        "/api/plugins",
        "/api/prompt",
        "/api/runs/x",
        "/ws",
        "/plugins/x/../../../etc/passwd",
        "/api/%2e%2e%2f%2e%2e",
    ),
    *("/%", "/%zz", "/%00", "/api/workflows/%2e%2e%2f%2e%2e%2ftavern.yaml", "//evil.example/", "/" + "a" * 20000, "*"),
    *(
        "http://evil.example/",
        "/api/projects/../../x",
        "/api/tools/execute",
        "/api/blobs/..",
        "/?token=" + "%ff" * 50,
        "\x7f",
    ),
)
_VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "HTTP/1.1\x00", "HTP/1.1", "", "HTTP/1.1 HTTP/1.1")
_HEADERS = (
    *("Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 5\r\nContent-Length: 6"),
    *(
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
    ),
    *(
        "Content-Encoding: gzip",
        "Content-Encoding: br",
        "Content-Type: application/json",
        "Content-Type: \xff/\xfe; charset=utf-7",
    ),
    *(
        ": no name",
        "No colon",
        "X: " + "y" * 9000,
        "X-Forwarded-For: 1.2.3.4",
        "Expect: 100-continue",
        "Range: bytes=9-1,-5",
    ),
    *('If-None-Match: "', 'If-Match: *, W/"', "Cookie: tavern=\x01; ;;=", "Origin: null", "Authorization: Bearer \xff"),
    *("Upgrade: websocket\r\nConnection: Upgrade", "Accept: " + "a," * 3000, "X-Request-Id: \x1b[31m", "\tfolded: x"),
)
_BODIES = (
    *(
        b"",
        b"{",
        b"[" * 100_000,
        b'{"a":' * 5_000,
        b"\xff\xfe",
        b"null",
        b'{"nodes": null}',
        b'{"projectId": 5}',
        b'"\\ud800"',
    ),
    *(
        b"1" * 5_000,
        b"5\r\nhello\r\n0\r\n\r\n",
        b"zz\r\n",
        b"FFFFFFFFFFFFFFFF\r\nx",
        b"\x1f\x8b\x08\x00" + b"\x00" * 50,
        b"NaN",
    ),
    *(
        b'{"toolId": {}}',
        b'{"text": 5}',
        b'{"nodes": [{}], "edges": [[]]}',
        b'{"workflowId": "../../x"}',
        b"a" * 70_000,
    ),
)


@dataclass
class Met:
    """What became of exchanges: answers by status (0: closed without one), and what was wrong."""

    answers: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


async def meet(count: int, seed: int, place: Path) -> Met:
    """Let so many bad clients meet a server, and a good one behind every few."""
    write_project(place / "project")
    met = Met()
    async with server_of(place) as server:
        for first in range(0, count, _AT_ONCE):
            chances = [random.Random(f"{seed}-{number}") for number in range(first, min(first + _AT_ONCE, count))]
            await asyncio.gather(*(_one(server, chance, met) for chance in chances))
            status, answer, _ = await server.ask("GET", "/api/projects")
            if (status, len(answer)) != (200, 1):
                met.wrong.append(f"after exchange {first} a good request was answered with {status}: {answer}")
            met.memory.append(server.memory())
        if server.process.returncode is not None:
            met.wrong.append(f"the server ended with {server.process.returncode}")
    return met


async def _one(server: Served, chance: random.Random, met: Met) -> None:
    sent = _frames(server, chance) if chance.random() < 0.25 else _request(server, chance)
    answer = await _answer(server, sent)
    status = int(answer[9:12]) if answer[:5] == b"HTTP/" and answer[9:12].isdigit() else 0
    met.answers[status] += 1
    if status >= 500 and status not in (501, 503):
        met.wrong.append(f"{sent[:300]!r} was answered with {answer[:300]!r}")


async def _answer(server: Served, sent: bytes) -> bytes:
    """Return the bytes that the server sends back until the connection closes, the head ends or `_ANSWER` is over."""
    host, port = server.url.removeprefix("http://").split(":")
    answer = b""
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(_ANSWER):
            writer.write(sent)
            await writer.drain()
            while more := await reader.read(65536):
                answer += more
                if b"\r\n\r\n" in answer:
                    break  # the head is enough
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
    return answer


def _request(server: Served, chance: random.Random) -> bytes:
    """Return a request with something wrong in it, most of the time."""
    good = chance.random
    method = chance.choice(_METHODS) if good() < 0.3 else chance.choice(_METHODS[:4])
    version = chance.choice(_VERSIONS) if good() < 0.15 else "HTTP/1.1"
    lines = [f"{method} {chance.choice(_PATHS)} {version}"]
    lines += [f"Host: {server.url[7:]}"] if good() < 0.9 else []
    lines += [f"Authorization: Bearer {TOKEN}"] if good() < 0.8 else []
    lines += chance.sample(_HEADERS, chance.choice((0, 0, 1, 1, 1, 2)))
    body = chance.choice(_BODIES) if good() < 0.6 else b""
    if body and good() < 0.8:
        lines.append(f"Content-Length: {len(body) + chance.choice((0, 0, 0, 1, -1, 1000))}")
    end = "\r\n" if good() < 0.9 else chance.choice(("\n", "\r"))
    sent = end.join([*lines, "", ""]).encode("latin-1", "replace") + body
    if good() < 0.1:
        sent = bytes(byte ^ (chance.random() < 0.02) * chance.randrange(256) for byte in sent[:20_000])
    return sent[: chance.randrange(1, len(sent))] if good() < 0.1 else sent


def _frames(server: Served, chance: random.Random) -> bytes:
    """Return an opening of a socket and frames with something wrong in them."""
    key = base64.b64encode(chance.randbytes(16)).decode()
    query = chance.choice(("", "since=-1", "since=9e9", "since=x", f"types={'A,' * 999}", "epoch=%ff"))
    head = [
        f"GET /ws?{query} HTTP/1.1",
        *(f"Host: {server.url[7:]}", f"Authorization: Bearer {TOKEN}", "Connection: Upgrade", "Upgrade: websocket"),
        *(
            f"Sec-WebSocket-Version: {chance.choice((13, 13, 13, 8, 'x'))}",
            f"Sec-WebSocket-Key: {chance.choice((key, key, 'x'))}",
        ),
    ]
    messages = [
        *(b"{", b"null", b"[]", b'{"type": 5}', b'{"type": "NOPE"}', b'{"type": "SUBSCRIBE", "payload": {"types": 1}}'),
        *(json.dumps({"type": "PROMPT_REQUEST", "payload": {"nodes": [None]}}).encode(), b"\xff\xfe", b"[" * 50_000),
    ]
    frames = b""
    for _ in range(chance.randrange(1, 5)):
        payload, operation = (
            chance.choice(messages),
            chance.choice((0x81, 0x81, 0x81, 0x01, 0x80, 0x82, 0x88, 0x89, 0x8F, 0xF1)),
        )
        length = len(payload) if chance.random() < 0.9 else chance.choice((0, 2**40, 2**63))
        size = struct.pack(">B", 0x80 | length) if length < 126 else struct.pack(">BQ", 0x80 | 127, length)
        frames += bytes([operation]) + size + bytes(4) + payload
    return "\r\n".join([*head, "", ""]).encode() + frames


def exchanges() -> list[Result]:
    """Exchange requests with the server as bad clients do, and return its failures and the growth of its memory."""
    with tempfile.TemporaryDirectory() as place:
        met = asyncio.run(meet(EXCHANGES, SEED, Path(place)))
    for sentence in met.wrong:
        print(sentence, file=sys.stderr)
    said = ", ".join(f"{count} × {status or 'closed'}" for status, count in sorted(met.answers.items()))
    growth = met.memory[-1] / met.memory[len(met.memory) // 5] - 1
    return [
        Result("failures of the server", len(met.wrong), "answers", EXCHANGES, said, 0, 1, 0, limited="value"),
        Result("growth of memory", growth, "", EXCHANGES, "exchanges", 0, 1, GROWTH, limited="value"),
    ]


FIGURES = {"exchanges": exchanges}
