"""Bodies of HTTP/1 messages, read piece by piece up to exactly their end and encoded anew."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from tavern_scripts.network.heads import BadMessage, Body

PIECE = 64 << 10

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_MAX_TRAILERS = 8 << 10


async def read_body(reader: asyncio.StreamReader, body: Body | None) -> AsyncIterator[bytes]:
    """Yield the bytes of a body as they are to be passed on. Raises `BadMessage` where it is not as its head says."""
    if body == "chunked":
        async for piece in _chunks(reader):
            yield piece
    elif body == "until-end":
        while piece := await reader.read(PIECE):
            yield piece
    else:
        left = body or 0
        while left:
            piece = await reader.read(min(PIECE, left))
            if not piece:
                raise BadMessage("the body ended before its time")
            left -= len(piece)
            yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield chunks without their extensions; trailers are left out."""
    try:
        while True:
            match = _SIZE.fullmatch(await reader.readuntil(b"\n"))
            if match is None:
                raise BadMessage("a chunk does not begin with its size")
            left = int(match[1], 16)
            if not left:
                break
            while left:
                piece = await reader.readexactly(min(PIECE, left))
                left -= len(piece)
                yield b"%x\r\n%s\r\n" % (len(piece), piece)
            if await reader.readexactly(2) != b"\r\n":
                raise BadMessage("a chunk is longer than its size")
        trailers = 0
        while (line := await reader.readuntil(b"\n")) != b"\r\n":
            trailers += len(line)
            if trailers > _MAX_TRAILERS:
                raise BadMessage("the trailers are too long")
        yield b"0\r\n\r\n"
    except asyncio.IncompleteReadError:
        raise BadMessage("the body ended before its time") from None
    except asyncio.LimitOverrunError:
        raise BadMessage("a line of the body is too long") from None
