"""How answers are packed on their way (RFC 9110 §8.4): lists that stay the same for a while. Files of front ends are
packed when they are built."""

from __future__ import annotations

import asyncio
import gzip
import re
from functools import lru_cache

from aiohttp import web

_TAKEN = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))")
_LEAST, _MOST = 8 << 10, 2 << 20
"""How many bytes are worth it, and of how many what came of them is kept."""


async def pack(request: web.Request, response: web.StreamResponse) -> None:
    """Make gzip of an answer if its client takes that. To be asked for what has an ETag, which is made once and sent to
    many: in what is made for one request, the length would say what a secret beside the client's own words is like
    (BREACH)."""
    if not isinstance(response, web.Response) or not isinstance(body := response.body, bytes):
        return
    is_list = response.content_type.endswith("json") and "Content-Encoding" not in response.headers
    if not is_list or not _LEAST <= len(body) <= _MOST:
        return
    vary(response, "Accept-Encoding")
    if _TAKEN.search(request.headers.get("Accept-Encoding", "").lower()):
        response.body = await asyncio.to_thread(_gzip, body)
        response.headers["Content-Encoding"] = "gzip"


def vary(response: web.StreamResponse, header: str) -> None:
    """Let caches know that an answer depends on a header of its request too."""
    response.headers["Vary"] = ", ".join(filter(None, (response.headers.get("Vary"), header)))


@lru_cache(maxsize=16)
def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, 6, mtime=0)
