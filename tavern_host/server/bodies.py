"""How bodies of requests are read: in time, and unpacked where they were sent with `Content-Encoding: gzip` (RFC 9110),
within the limits that hold for what they unpack to."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Iterator

from aiohttp import web

BODY_DEADLINE = 120.0
"""Seconds in which one with the token has to send a body, or of an upload the next part."""
PACKED = ("gzip", "x-gzip")
"""The encodings of a body that are unpacked."""
_GZIP = zlib.MAX_WBITS | 16
_PIECE = 1 << 16
"""How many bytes are unpacked at a time."""


async def body_of(request: web.Request) -> bytes:
    """Return the body of a request. Raises `HTTPRequestTimeout` where it does not arrive, `HTTPRequestEntityTooLarge`,
    `RequestPayloadError` where it cannot be unpacked."""
    if not request.can_read_body:
        return b""
    if not is_packed(request):
        return await _in_time(request.read())
    found = bytearray()
    async for part in parts_of(request):
        found += part
        if len(found) > request.client_max_size:
            raise web.HTTPRequestEntityTooLarge(request.client_max_size, len(found))
    return bytes(found)


async def parts_of(request: web.Request) -> AsyncIterator[bytes]:
    """Yield the body of a request as it arrives. Raises `HTTPRequestTimeout` where no more of it does,
    `RequestPayloadError` where it cannot be unpacked."""
    unpacker = _Unpacker() if is_packed(request) else None
    while part := await _in_time(request.content.readany()):
        for piece in (part,) if unpacker is None else unpacker.unpacked(part):
            yield piece
    if unpacker is not None and not unpacker.is_whole:
        raise web.RequestPayloadError("the gzip stream ends before its end")


def is_packed(request: web.Request) -> bool:
    """Return whether a body is packed; the gate lets no other encoding in."""
    return request.headers.get("Content-Encoding", "").strip().lower() in PACKED


class _Unpacker:
    """Unpacks the members of a gzip stream (RFC 1952), piece by piece."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self.is_whole = False

    def unpacked(self, part: bytes) -> Iterator[bytes]:
        """Yield what another part of the stream unpacks to."""
        try:
            is_full = False  # there may be more inside, which no input is left for
            while part or is_full:
                if self.is_whole:
                    self._member = zlib.decompressobj(_GZIP)
                piece = self._member.decompress(part, _PIECE)
                self.is_whole = self._member.eof
                is_full = len(piece) == _PIECE and not self.is_whole
                part = self._member.unused_data if self.is_whole else self._member.unconsumed_tail
                if piece:
                    yield piece
        except zlib.error as error:
            raise web.RequestPayloadError(f"it is no gzip stream: {error}") from None


async def _in_time(reading: Awaitable[bytes]) -> bytes:
    try:
        async with asyncio.timeout(BODY_DEADLINE):
            return await reading
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the body has not arrived within {BODY_DEADLINE:g} s") from None
