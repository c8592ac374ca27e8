"""What nodes on a Dask cluster of two workers cost, to a bare client of the same cluster."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Result, awaited, measured
from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tests.helpers.dask_cluster import TestCluster

LONG, SMALL = 200, 1000
ROUNDS = 3

_NODES = """
from benchmarks.clusternodes import burn as burnt
from tavern_host import node

@node(type="Burn")
def burn(number: int) -> int:
    return burnt(number)

@node(type="Echo")
def echo(number: int) -> int:
    return number
"""
_MANIFEST = (
    'name: far\ndisplayName: Far\nversion: 1.0.0\napiVersion: ">=0.1,<0.2"\nnodes: {entry: ./nodes, namespace: far}\n'
)


def burn(number: int) -> int:
    """Use a processor for 100 ms."""
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    return number


def echo(number: int) -> int:
    """Return the number that came in."""
    return number


def _workflow(kind: str, count: int) -> Workflow:
    nodes = [{"id": f"n{number}", "type": f"far:{kind}", "inputValues": {"number": number}} for number in range(count)]
    return Workflow.model_validate({"nodes": nodes, "edges": []})


Timed = Callable[[], Awaitable[Any]]


async def _compared(name: str, ours: Timed, floor: Timed, **more: Any) -> Result:
    pairs = [(await awaited(ours, 1), await awaited(floor, 1)) for _ in range(ROUNDS)]
    return measured(name, pairs, unit="s", scale=1, **more)


async def _measure(place: Path, cluster: TestCluster) -> list[Result]:
    from distributed import Client
    from distributed.security import Security

    folder = place / "far"
    (folder / "nodes").mkdir(parents=True)
    (folder / "plugin.yaml").write_text(_MANIFEST)
    (folder / "nodes" / "__init__.py").write_text(_NODES)
    files = {name: cluster.settings[f"extensions.tavern-dask.{key}"] for name, key in _FILES.items()}
    security = Security(require_encryption=True, **files)
    client = await Client(cluster.address, security=security, asynchronous=True, set_as_default=False)
    async with client, Host(place / "p", plugins=[folder], trust=["far"], settings=cluster.settings) as host:
        engine = host.services.get(EXECUTION_ENGINE)

        def run(kind: str, count: int) -> Callable[[], Awaitable[None]]:
            document = _workflow(kind, count)

            async def ran() -> None:
                run = await engine.run(RunRequest(workflow=document, use_cache=False))
                assert run.status is RunStatus.COMPLETE, run.error

            return ran

        async def mapped() -> None:
            await client.gather(client.map(burn, range(LONG), pure=False))

        async def submitted() -> None:
            await client.gather([client.submit(echo, number, pure=False) for number in range(SMALL)])

        await run("Burn", 2)()
        await run("Echo", 2)()
        await client.gather(client.map(burn, range(2), pure=False))
        long = f"a run of {LONG} nodes of 100 ms of CPU, on two workers"
        small = f"a run of {SMALL} small nodes, on two workers"
        return [
            await _compared(long, run("Burn", LONG), mapped, floor_name="client.map", limit=1.15),
            await _compared(small, run("Echo", SMALL), submitted, floor_name="client.submit", limit=1.5),
        ]


_FILES = {"tls_ca_file": "tlsCa", "tls_client_cert": "tlsCert", "tls_client_key": "tlsKey"}


def dask() -> list[Result]:
    """Measure nodes that run on a cluster, and return their costs."""
    with tempfile.TemporaryDirectory(prefix="tavern-reach-") as place:
        cluster = TestCluster(Path(place))
        try:
            return asyncio.run(_measure(Path(place), cluster))
        finally:
            cluster.kill()
