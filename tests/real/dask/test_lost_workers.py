"""Workers that are killed, and a scheduler that is lost, in the middle of runs."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, slot, workflow
from helpers.dask_cluster import TestCluster
from helpers.repetition import repetitions

from tavern_host import Host
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import RunStatus

KILLS = repetitions(3, 20)
CHAINS, LENGTH, NOTES = 16, 15, 60
ROUNDS = 6_000


def turned(number: int) -> int:
    found = str(number).encode()
    for _ in range(ROUNDS):
        found = hashlib.sha256(found).digest()
    return int.from_bytes(found[:4])


def turning(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return 300 nodes: chains that compute, and after some of their nodes one that writes a line to a file."""
    nodes: dict[str, Any] = {}
    edges = []
    for chain in range(CHAINS):
        for place in range(LENGTH):
            nodes[f"t{chain}_{place}"] = {"type": "acme-far:Turn", "inputValues": {"number": chain, "rounds": ROUNDS}}
            if place:
                edges.append(f"t{chain}_{place - 1}.value > t{chain}_{place}.number")
    for number in range(NOTES):
        note = {"type": "acme-far:Note", "placement": "cluster", "policy": {"onError": "default"}}
        nodes[f"n{number}"] = note | {"inputValues": {"path": str(path), "text": f"n{number}", "seconds": 0.02}}
        edges.append(f"t{number % CHAINS}_{number % LENGTH}.value > n{number}.value")
    return nodes, edges


@pytest.mark.timeout(100 * KILLS)  # starting a worker takes 20 s where the machine is very busy
async def test_killed_workers_cost_no_result(host: Host, cluster: TestCluster, tmp_path: Path) -> None:
    bench, path = Bench(host), tmp_path / "notes"
    nodes, edges = turning(path)
    ends = [f"t{chain}_{LENGTH - 1}.value > end.o{chain}" for chain in range(CHAINS)]
    slots = {f"o{chain}": slot("INTEGER") for chain in range(CHAINS)}
    assert len(nodes) == 300
    document = workflow({**nodes, "end": "core:GroupOutput"}, *edges, *ends, interfaceOutputs=slots)
    heard = host.events.subscribe("NODE_COMPLETE")
    run_id = await bench.start(document)
    ended = 0
    async for event in heard:
        assert isinstance(event, Event)
        ended += 1
        if ended % (240 // (KILLS + 1)) == 0:
            await asyncio.to_thread(cluster.kill_worker)
        if ended >= 240 // (KILLS + 1) * KILLS:
            break
    await heard.close()
    run = await bench.engine.wait(run_id)
    assert run.error is None, run.error.message
    assert run.status is RunStatus.COMPLETE
    expected = {}
    for chain in range(CHAINS):
        number = chain
        for _ in range(LENGTH):
            number = turned(number)
        expected[f"o{chain}"] = number
    assert run.outputs == expected
    times = Counter(path.read_text().split())
    for name in (f"n{number}" for number in range(NOTES)):
        error = run.nodes[name].error
        if error is None:
            assert times[name] == 1
        else:
            assert times[name] <= 1 and "lost" in error.message and "twice" in error.message
    assert sum(times.values()) >= NOTES - 4 * KILLS
