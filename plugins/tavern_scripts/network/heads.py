"""Heads of HTTP/1 messages, read strictly and written anew, so that a server never sees what the proxy did not
understand. Bodies are in `bodies.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tavern_scripts.network.allowlist import Target, parse_target

MAX_HEAD = 32 << 10
"""How many bytes a head may have."""

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_PATH = re.compile(rb"[\x21\x22\x24-\x7e]*")  # no space, control character or `#`
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_LENGTH = re.compile(rb"[0-9]{1,15}")
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

Body = int | Literal["chunked", "until-end"]
"""How long a body is: a number of bytes, as its chunks say, or up to the end of the connection. None: there is none."""


class BadMessage(Exception):
    """A message that is not passed on; the text says why."""


@dataclass(frozen=True)
class RequestHead:
    """A request for the proxy: a tunnel (`method` is CONNECT, `path` empty), or one in absolute form."""

    method: str
    target: Target
    path: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: Body | None
    expects_continue: bool

    @property
    def is_tunnel(self) -> bool:
        """Whether bytes are to be passed on as they are."""
        return self.method == "CONNECT"

    def encode(self) -> bytes:
        """Return the head as the server gets it: origin form, its own host, one request on the connection."""
        target = self.target
        host = str(target).removesuffix(":80") if target.port == 80 else str(target)
        lines = [b"%s %s HTTP/1.1" % (self.method.encode("ascii"), self.path), b"Host: " + host.encode("ascii")]
        lines += [b"%s: %s" % header for header in self.headers]
        return b"\r\n".join([*lines, *_framing(self.body), b"Connection: close", b"", b""])


@dataclass(frozen=True)
class ResponseHead:
    """A server's answer."""

    status: int
    line: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: Body | None

    def encode(self) -> bytes:
        """Return the head as the client gets it."""
        lines = [self.line, *(b"%s: %s" % header for header in self.headers)]
        return b"\r\n".join([*lines, *_framing(self.body), b"Connection: close", b"", b""])


def parse_request(head: bytes) -> RequestHead:
    """Return the request that `head` (with the empty line at its end) is. Raises `BadMessage`."""
    first, fields = _lines(head)
    words = first.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.1", b"HTTP/1.0") or not _TOKEN.fullmatch(words[0]):
        raise BadMessage("the first line is no HTTP/1.1 request")
    method = words[0].decode("ascii")
    target, path = _target(method, words[1])
    headers, body = _headers(fields)
    hosts = [value for name, value in fields if name.lower() == b"host"]
    if len(hosts) > 1:
        raise BadMessage("there is more than one Host header")
    if method == "CONNECT":
        if body:
            raise BadMessage("a CONNECT request has no body")
        return RequestHead(method, target, b"", (), None, False)
    if words[2] != b"HTTP/1.1":
        raise BadMessage("only HTTP/1.1 is spoken here")
    expectations = {value.lower() for name, value in fields if name.lower() == b"expect"}
    if expectations - {b"100-continue"}:
        raise BadMessage("the Expect header asks for something unknown")
    kept = tuple(header for header in headers if header[0].lower() not in (b"host", b"expect"))
    return RequestHead(method, target, path, kept, body, bool(expectations))


def parse_response(head: bytes, method: str) -> ResponseHead:
    """Return the answer to a request by `method` that `head` is. Raises `BadMessage`."""
    first, fields = _lines(head)
    match = _STATUS.fullmatch(first)
    if match is None:
        raise BadMessage("the server's answer is no HTTP/1.1")
    status = int(match[1])
    headers, body = _headers(fields)
    if method == "HEAD" or status < 200 or status in (204, 304):  # the length is that of the body which is not there
        headers += tuple((name, value) for name, value in fields if name.lower() == b"content-length")
        return ResponseHead(status, first, headers, None)
    return ResponseHead(status, first, headers, "until-end" if body is None else body)


def _target(method: str, text: bytes) -> tuple[Target, bytes]:
    if method == "CONNECT":
        return _named(text, None), b""
    scheme, separator, rest = text.partition(b"://")
    if not separator or scheme.lower() != b"http":
        raise BadMessage("it asks for neither `CONNECT host:port` nor `http://…`")
    if not _PATH.fullmatch(rest):
        raise BadMessage("there are characters in the address that cannot be")
    cut = next((index for index, byte in enumerate(rest) if byte in b"/?"), len(rest))
    path = rest[cut:]
    if not path.startswith(b"/"):
        path = b"*" if method == "OPTIONS" and not path else b"/" + path
    return _named(rest[:cut], 80), path


def _named(text: bytes, default_port: int | None) -> Target:
    if len(text) > 300 or not text.isascii() or not text:
        raise BadMessage("the host is missing or is no host name")
    target = parse_target(text.decode("ascii"), default_port)
    if isinstance(target, str):
        raise BadMessage(f"the host cannot be reached: {target}")
    return target


def _lines(head: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    fields = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadMessage("a header is not `Name: value` on one line")
        fields.append((name, value.strip(b" \t")))
    return lines[0], fields


def _headers(fields: list[tuple[bytes, bytes]]) -> tuple[tuple[tuple[bytes, bytes], ...], Body | None]:
    """Return the headers that are passed on and how long the body is, None where nothing says so."""
    lengths = {value for name, value in fields if name.lower() == b"content-length"}
    codings = [value.lower() for name, value in fields if name.lower() == b"transfer-encoding"]
    if (codings and lengths) or len(lengths) > 1 or (codings and codings != [b"chunked"]):
        raise BadMessage("how long the body is cannot be told for certain")
    body: Body | None = "chunked" if codings else None
    for length in lengths:
        if not _LENGTH.fullmatch(length):
            raise BadMessage("the Content-Length is no number")
        body = int(length)
    named = {
        word.strip().lower()
        for name, value in fields
        if name.lower() in (b"connection", b"proxy-connection")
        for word in value.split(b",")
    }
    dropped = _HOP_BY_HOP | named | {b"content-length", b"transfer-encoding"}
    return tuple(field for field in fields if field[0].lower() not in dropped), body


def _framing(body: Body | None) -> list[bytes]:
    if body == "chunked":
        return [b"Transfer-Encoding: chunked"]
    return [b"Content-Length: %d" % body] if isinstance(body, int) else []
