"""The service `nodeCluster` on a Dask cluster: has a connection when one is needed, and runs passes over it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Literal

from tavern_engine.api.clusters import NodeCluster, RemoteGroup, RemoteResult
from tavern_host import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import ServiceUnavailable, TavernError
from tavern_host.runtime.threads import run_in_thread

if TYPE_CHECKING:
    from distributed import Client

    from tavern_dask.code import Shipping
    from tavern_dask.local import LocalCluster
    from tavern_dask.passes import Pass

Batches = AsyncGenerator[list[RemoteResult], None]

_CHANGES = "all"
"""The topic of the scheduler's own events."""

_LONGEST = 2.0
"""Seconds between two attempts to connect, at most."""


class DaskCluster(NodeCluster):
    """The cluster that is set up. `distributed` is imported, and a local cluster started, when a node is to be run."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self._client: Client | None = None
        self.local: LocalCluster | None = None
        self.shipping: Shipping
        self.seconds: dict[str, float] = {}
        """By the name of a node type's code how long its nodes take."""
        self._passes: dict[str, Pass] = {}
        self.next_loss: asyncio.Future[None]
        """Ends when a worker is lost."""

    async def takes(self) -> Literal["none", "placed", "pure"]:
        """Return for which nodes it is there."""
        if not self._context.settings.get("scheduler"):
            return "none"
        return "pure" if self._context.settings.get("nodes") == "pure" else "placed"

    async def run(self, group: RemoteGroup, *, call: CallContext | None = None) -> Batches:
        """Run a group; yields the result of each node once, as they end."""
        left = {node.number for node in group.nodes}
        try:
            await self.client()
            from tavern_dask.passes import Pass

            known = self._passes.setdefault(group.pass_id, Pass(self, group.pass_id))
            async with contextlib.aclosing(known.run(group)) as batches:
                async for results in batches:
                    left.difference_update(result.number for result in results)
                    yield results
        except TavernError as error:
            yield [RemoteResult(number=number, error=error.info) for number in sorted(left)]

    async def release(self, pass_id: str, *, call: CallContext | None = None) -> None:
        """Forget the values of a pass."""
        if (known := self._passes.pop(pass_id, None)) is not None:
            await known.close()

    async def client(self) -> Client:
        """Return a client that is connected. Raises `ServiceUnavailable`, unless nodes are to wait for that."""
        delay = 0.1
        while True:
            async with self._lock:
                if self.connected is not None:
                    return self.connected
                try:
                    self._client = await self._connected()
                    return self._client
                except ServiceUnavailable as error:
                    if not self.waits:
                        raise
                    self._context.log.warning("%s; nodes wait for it", error.message)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST)

    @property
    def connected(self) -> Client | None:
        """The client, if there is a connection now."""
        return self._client if self._client is not None and self._client.status == "running" else None

    @property
    def waits(self) -> bool:
        """Whether nodes wait while there is no connection; else they fail."""
        return bool(self._context.settings.get("whenLost") == "wait")

    async def close(self) -> None:
        """Close the connection, and end a local cluster."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(OSError, TimeoutError):
                if client.status == "running":  # else it has closed itself, having lost the scheduler
                    client.unsubscribe_topic(_CHANGES)
                await client.close(timeout=1)
        local, self.local = self.local, None
        if local is not None:
            await local.close()

    async def _connected(self) -> Client:
        address = str(self._context.settings.get("scheduler") or "").strip()
        await run_in_thread(_import, what="importing distributed")
        from distributed import Client

        from tavern_dask.certificates import reason, security_of
        from tavern_dask.code import Shipping
        from tavern_dask.local import LocalCluster
        from tavern_dask.worker import BEGUN

        await self.close()
        if address == "local":
            local = self.local = LocalCluster(self._context, int(self._context.settings.get("workers", 0)))
            await local.start()
            address, security = local.address, local.security
        else:
            security = security_of(address, self._context)
        seconds = float(self._context.settings.get("connectSeconds", 10))
        try:
            about: dict[str, Any] = {"asynchronous": True, "set_as_default": False, "name": "tavern-host"}
            client = Client(address, security=security, timeout=seconds, **about)
            try:
                # Dask says why there is no connection, but waits without end for one that has it and is silent.
                async with asyncio.timeout(seconds + 1):
                    await client
            except BaseException:
                await client.close(timeout=0)
                raise
        except (OSError, ValueError, RuntimeError) as error:
            raise ServiceUnavailable(f"the Dask scheduler at {address} cannot be reached: {reason(error)}") from error
        self.shipping = Shipping(client)
        self.next_loss = asyncio.get_running_loop().create_future()
        client.subscribe_topic(BEGUN, self._has_begun)
        client.subscribe_topic(_CHANGES, self._has_changed)
        return client

    def _has_begun(self, event: tuple[float, Any]) -> None:
        pass_id, number, worker = event[1]
        if (known := self._passes.get(pass_id)) is not None:
            known.has_begun(number, worker)

    def _has_changed(self, event: tuple[float, Any]) -> None:
        said = event[1]
        if isinstance(said, dict) and said.get("action") == "remove-worker":
            self.next_loss.set_result(None)
            self.next_loss = asyncio.get_running_loop().create_future()


def _import() -> None:
    from tavern_dask import certificates, local, passes  # noqa: F401

    for name in ("distributed.batched", "distributed.client"):  # they say with tracebacks what is said here in a line
        logging.getLogger(name).setLevel(logging.CRITICAL)
