"""HTTP/1.1 for the proxy: h11 reads messages and writes them from what it read, so that a server never sees what the
proxy did not understand. This module adds a proxy's rules (RFC 9110 §7.6, RFC 9112 §3.2) and is stricter than h11.

What breaks the rules raises `h11.RemoteProtocolError`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import h11
from h11 import RemoteProtocolError

from tavern_scripts.api.allowlist import Target, parse_target

MAX_HEAD = 32 << 10
"""How many bytes a head, a line of a chunked body, or its trailers may have."""

PIECE = 64 << 10

_HEAD = re.compile(rb"(?:[\x21-\x7e\x80-\xff][\t\x20-\x7e\x80-\xff]*\r\n)+\r\n")
_LENGTHS = re.compile(rb"^content-length[ \t]*:[ \t]*(.*?)[ \t]*\r$", re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"[0-9]{1,15}")
_CODING = re.compile(rb"^transfer-encoding[ \t]*:", re.IGNORECASE | re.MULTILINE)
_PATH = re.compile(rb"[\x21\x22\x24-\x7e]*")  # no space, control character or `#`
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"upgrade",
        b"http2-settings",
    )
)
_FRAMING = (b"content-length", b"transfer-encoding")

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class ProxyRequest:
    """A request for the proxy: a tunnel to `target` (then `message` is None), or the `message` for that server."""

    target: Target
    message: h11.Request | None
    expects_continue: bool = False


def client_side() -> h11.Connection:
    """Return the state of a connection on which requests come."""
    return h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)


def server_side() -> h11.Connection:
    """Return the state of a connection on which answers come."""
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)


def read_request(connection: h11.Connection, head: bytes) -> ProxyRequest:
    """Return the request that `head` (with the empty line at its end) is."""
    request = _read_head(connection, head)
    if not isinstance(request, h11.Request):
        raise RemoteProtocolError("the first line is no HTTP/1.1 request")
    fields = request.headers.raw_items()
    if request.method == b"CONNECT":
        if any(name.lower() in _FRAMING for name, _ in fields):
            raise RemoteProtocolError("a CONNECT request has no body")
        return ProxyRequest(_named(request.target, None), None)
    if request.http_version != b"1.1":
        raise RemoteProtocolError("only HTTP/1.1 is supported")
    expectations = {value.lower() for name, value in fields if name.lower() == b"expect"}
    if expectations - {b"100-continue"}:
        raise RemoteProtocolError("the Expect header asks for something unknown")
    target, path = _target(request.method, request.target)
    host = str(target).removesuffix(":80") if target.port == 80 else str(target)
    kept = [field for field in _end_to_end(fields) if field[0].lower() not in (b"host", b"expect")]
    headers = [(b"Host", host.encode("ascii")), *kept, (b"Connection", b"close")]
    return ProxyRequest(target, h11.Request(method=request.method, target=path, headers=headers), bool(expectations))


def read_response(connection: h11.Connection, head: bytes) -> h11.Response | None:
    """Return the answer that `head` is, as the client gets it; None for an interim one."""
    response = _read_head(connection, head)
    if isinstance(response, h11.InformationalResponse):
        return None
    if not isinstance(response, h11.Response):
        raise RemoteProtocolError("the server's answer is no HTTP/1.1")
    headers = [*_end_to_end(response.headers.raw_items()), (b"Connection", b"close")]
    return h11.Response(status_code=response.status_code, reason=response.reason, headers=headers)


async def body_of(
    reader: asyncio.StreamReader, source: h11.Connection, destination: h11.Connection
) -> AsyncIterator[bytes]:
    """Yield the body that comes on `source`, encoded for `destination`, without chunk extensions and trailers.

    Where it is not as its head says, its end is not passed on.
    """
    while True:
        event = source.next_event()
        if event is h11.NEED_DATA:
            source.receive_data(await reader.read(PIECE))
        elif isinstance(event, h11.Data):
            yield destination.send(h11.Data(data=event.data)) or b""
        elif isinstance(event, h11.EndOfMessage):
            yield destination.send(h11.EndOfMessage()) or b""
            return
        else:
            raise RemoteProtocolError("the body ended before its time")


def _read_head(connection: h11.Connection, head: bytes) -> object:
    """Return the event of a head; h11 itself accepts folded lines, bare line feeds, control characters, and bodies
    with two lengths."""
    if not _HEAD.fullmatch(head):
        raise RemoteProtocolError("a header is not `Name: value` on one line")
    lengths = _LENGTHS.findall(head)
    if not all(_LENGTH.fullmatch(length) for length in lengths):
        raise RemoteProtocolError("the Content-Length is no number")
    if lengths and _CODING.search(head):
        raise RemoteProtocolError("the length of the body is ambiguous: Content-Length beside Transfer-Encoding")
    connection.receive_data(head)
    return connection.next_event()


def _end_to_end(fields: Headers) -> Headers:
    """Return the headers that are not only for the connection that they came on."""
    named = {
        word.strip().lower()
        for name, value in fields
        if name.lower() in (b"connection", b"proxy-connection")
        for word in value.split(b",")
    }
    dropped = (_HOP_BY_HOP | named).difference(_FRAMING)
    return [field for field in fields if field[0].lower() not in dropped]


def _target(method: bytes, text: bytes) -> tuple[Target, bytes]:
    scheme, separator, rest = text.partition(b"://")
    if not separator or scheme.lower() != b"http":
        raise RemoteProtocolError("it asks for neither `CONNECT host:port` nor `http://…`")
    if not _PATH.fullmatch(rest):
        raise RemoteProtocolError("the address holds characters that no address has")
    cut = next((index for index, byte in enumerate(rest) if byte in b"/?"), len(rest))
    path = rest[cut:]
    if not path.startswith(b"/"):
        path = b"*" if method == b"OPTIONS" and not path else b"/" + path
    return _named(rest[:cut], 80), path


def _named(text: bytes, default_port: int | None) -> Target:
    if len(text) > 300 or not text.isascii() or not text:
        raise RemoteProtocolError("the host is missing or is no host name")
    target = parse_target(text.decode("ascii"), default_port)
    if isinstance(target, str):
        raise RemoteProtocolError(f"the host cannot be reached: {target}")
    return target
