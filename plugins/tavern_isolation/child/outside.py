"""What a plugin in a process of its own has of the world outside: Blobs, the audit log, HTTP, hooks, the log."""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cachetools import FIFOCache

from tavern_host.contracts.blobs import BINARY, Blob
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Forbidden
from tavern_host.runtime.codec import encode
from tavern_isolation.child.way import Way
from tavern_isolation.hello import BLOB_CALLS
from tavern_isolation.link import Link
from tavern_isolation.typed import Typed

if TYPE_CHECKING:
    import aiohttp

_MOST_COPIES = 64
"""How many Blobs have a file at once."""


class ChildBlobs:
    """Large values, which the host keeps; see `context.Blobs`."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._copies: FIFOCache[str, IO[bytes]] = FIFOCache(_MOST_COPIES)

    async def _ask(self, method: str, **arguments: Any) -> Any:
        crossing = Typed(f"blobs.{method}", BLOB_CALLS[method], plugin=self._way.plugin)
        return await crossing.call(self._way.link, self._way.lent, "blobs", {"method": method}, arguments)

    async def put(
        self, content: bytes | AsyncIterable[bytes], media_type: str = BINARY, *, holder: str | None = None
    ) -> Blob:
        """Keep bytes, or a stream of them."""

        async def parts() -> AsyncGenerator[bytes, None]:
            if isinstance(content, bytes):
                for at in range(0, len(content), 1 << 20):
                    yield content[at : at + (1 << 20)]
            else:
                async for part in content:
                    yield part

        blob: Blob = await self._ask("put", content=parts(), media_type=media_type, holder=holder)
        return blob

    async def open(self, blob: Blob, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yield the bytes from `start` up to `stop`."""
        crossing = Typed("blobs.open", BLOB_CALLS["open"], plugin=self._way.plugin)
        arguments = {"blob": blob, "start": start, "stop": stop}
        async for part in crossing.stream(self._way.link, self._way.lent, "blobs", {"method": "open"}, arguments):
            yield part

    async def read(self, blob: Blob) -> bytes:
        """Return all bytes."""
        return b"".join([part async for part in self.open(blob)])

    async def path(self, blob: Blob) -> Path:
        """Return a file with the bytes: a copy, since the host's is not there. It has no name of its own, so that it is
        gone with this process; of many the oldest is closed."""
        if blob.hash not in self._copies:
            copy = tempfile.TemporaryFile()  # noqa: SIM115  # it is closed when it is dropped
            async for part in self.open(blob):
                copy.write(part)
            copy.flush()
            self._copies.setdefault(blob.hash, copy)
        return Path(f"/proc/self/fd/{self._copies[blob.hash].fileno()}")

    def has(self, blob: Blob) -> bool:
        """Refuse: the answer is the host's, and this cannot wait for it."""
        message = (
            "context.blobs.has cannot wait for the host's answer in a process of its own; await context.blobs.hold"
        )
        raise Forbidden(f"{message}, which raises `NotFound` where the bytes are not there")

    async def hold(self, holder: str, blobs: Collection[Blob]) -> None:
        """Keep Blobs until `holder` releases them."""
        await self._ask("hold", holder=holder, blobs=list(blobs))

    async def release(self, holder: str) -> None:
        """Hold nothing for `holder` any more."""
        await self._ask("release", holder=holder)

    async def holders(self) -> list[str]:
        """Return the plugin's names that hold something."""
        names: list[str] = await self._ask("holders")
        return names


class ChildAudit:
    """The audit log of the host; see `context.Audit`."""

    is_crowded = False
    problem: str | None = None

    def __init__(self, way: Way) -> None:
        self._way = way

    def record(
        self,
        action: str,
        *,
        subject: str = "",
        details: Mapping[str, Any] | None = None,
        secrets: Collection[str] = (),
        call: CallContext | None = None,
    ) -> int:
        """Record that `action` was done; the host numbers it, and the number here is 0."""
        said = {"action": action, "subject": subject, "details": dict(details or {}), "secrets": list(secrets)}
        self._way.link.notify("audit", json.dumps(said).encode(), encode(call, CallContext | None))
        return 0

    async def written(self, number: int | None = None) -> None:
        """Return when all that was recorded until now is on disk."""
        await self._way.link.call("audit written", b"{}")


class ChildHttp:
    """Outgoing HTTP of the child itself, through the proxies that the host has; see `context.Http`."""

    def __init__(self, proxies: dict[str, str]) -> None:
        self._proxies = proxies
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the plugin's client session."""
        if self._session is None or self._session.closed:
            import aiohttp

            from tavern_host.runtime.proxied_http import ProxiedConnector

            self._session = aiohttp.ClientSession(connector=ProxiedConnector(self.proxy))
        return self._session

    def proxy(self, address: str) -> str | None:
        """Return the proxy for an address."""
        from tavern_host.common.proxies import proxy_for

        if self._proxies.get("no_proxy") == "":  # a sandbox: nothing is reached directly, this machine neither
            return self._proxies.get(f"{urlsplit(address).scheme}_proxy")
        return proxy_for(address)  # the variables of this process are those that the host gave

    def proxy_variables(self) -> dict[str, str]:
        """Return the variables of proxies for a program."""
        return dict(self._proxies)

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()


class LogToHost(logging.Handler):
    """Sends what is logged to the host."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, on any thread."""
        try:
            text = self.format(record)
            data = json.dumps({"level": record.levelno, "text": text[:100_000]}).encode()
            self._loop.call_soon_threadsafe(self._link.notify, "log", data)
        except RuntimeError:
            self.handleError(record)  # the loop is closed
