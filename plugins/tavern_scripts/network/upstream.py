"""Reaches a target through the proxy behind which this host is, as a tunnel (RFC 9110 §9.3.6)."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from urllib.parse import unquote, urlsplit

from tavern_host.common.proxies import through
from tavern_scripts.network.http1 import MAX_HEAD


async def open_tunnel(proxy: str, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a tunnel to `target`, a host and a port. Raises `ConnectionError` that says why not."""
    parts, why = urlsplit(proxy), f"{target} cannot be reached{through(proxy)}"
    is_tls, head = parts.scheme == "https", f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        head += f"Proxy-Authorization: Basic {b64encode(credentials.encode()).decode()}\r\n"
    try:
        port = parts.port or (443 if is_tls else 80)
        reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=is_tls or None, limit=MAX_HEAD)
        writer.write(f"{head}\r\n".encode())
        status = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1][:3].decode("ascii", "replace")
    except (OSError, EOFError, IndexError, asyncio.LimitOverrunError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it does not answer"
        raise ConnectionError(f"{why}: {reason}") from None
    if status != "200":
        writer.transport.abort()
        raise ConnectionError(f"{why}, which answered {status}")
    return reader, writer
