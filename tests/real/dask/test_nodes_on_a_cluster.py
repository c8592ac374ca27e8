"""Runs whose nodes are on a Dask cluster: where they run, what of values comes back, failures and ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, slot, workflow
from helpers.dask_cluster import FOLDERS, TRUST, TestCluster
from helpers.repetition import repetitions

from tavern_dask import passes
from tavern_engine.cli.run_commands import show
from tavern_host import Host
from tavern_host.contracts.executions import RunStatus
from tavern_host.contracts.settings import SETTINGS, SettingsChange


def far(type: str, **values: Any) -> dict[str, Any]:
    """Return a node of the plugin `acme-far`, without those of its values that are no inputs."""
    own = {key: values.pop(key) for key in ("policy", "placement", "configValues") if key in values}
    return {"type": f"acme-far:{type}", "inputValues": values, **own}


async def test_values_stay_where_nodes_run(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(host)
    size = 300_000
    nodes = {
        "place": far("Place"),
        "text": far("Grow", size=size),
        "length": far("Length"),
        "shown": far("Grow", size=size),
        "bytes": far("GrowBytes", size=2 * 2**20),
        "weight": far("Weigh"),
        "configured": far("Configured", configValues={"text": "odd"}),
        "end": "core:GroupOutput",
    }
    document = workflow(
        nodes,
        "text.value > length.value",
        "bytes.value > weight.value",
        "length.value > end.length",
        "shown.value > end.shown",
        interfaceOutputs={"length": slot("INTEGER"), "shown": slot("STRING")},
    )
    run = await bench.run(document)
    assert (run.status, run.error) == (RunStatus.COMPLETE, None)
    place = run.nodes["place"].output["value"]
    assert place["process"] != os.getpid() and place["greeting"] == "hello from afar"
    assert run.outputs == {"length": size, "shown": "x" * size}
    kept = {"type": "large", "mediaType": "application/octet-stream"}
    assert run.nodes["text"].output["value"] == {**kept, "length": size + 2}
    assert run.nodes["bytes"].output["value"] == {**kept, "length": 2 * 2**20}
    assert run.nodes["weight"].output == {"value": 2 * 2**20}
    assert run.nodes["configured"].output == {"value": "odd"}
    work = {name: run.nodes[name].remote for name in ("text", "length", "end")}
    assert work["end"] is None and work["text"].given == size + 2 < work["length"].received
    assert work["text"].worker.startswith("tls://127.0.0.1:") and work["text"].seconds > 0
    again = await bench.run(document)
    assert again.outputs == run.outputs
    assert again.nodes["length"].cached and again.nodes["shown"].cached


async def test_policies_hold_at_a_cluster(host: Host, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(host)
    tries, later = tmp_path / "tries", tmp_path / "later"
    nodes = {
        "again": far("FailAtFirst", path=str(tries), times=2, policy={"retry": 2}),
        "after": far("Length", value="abc"),
        "never": far("FailAtFirst", path=str(later), times=9, policy={"retry": 1, "onError": "route"}),
        "late": far("Spin", seconds=60, policy={"timeout": 0.05, "onError": "default", "defaults": {"value": 5}}),
        "taken": {"type": "Take"},
        "broken": {"type": "Boom", "policy": {"onError": "skip_branch"}},
        "skipped": {"type": "Take"},
    }
    run = await bench.run(workflow(nodes, "late.value > taken.value", "broken.value > skipped.value"))
    assert (run.status, run.error) == (RunStatus.COMPLETE, None)
    assert (run.nodes["again"].output, run.nodes["again"].attempts) == ({"value": 3}, 3)
    assert run.nodes["never"].output["error"]["message"].startswith("ValueError: failed 2 times")
    assert "nodes/__init__.py" in caplog.text and "in fail_at_first" in caplog.text  # where it failed
    assert run.nodes["late"].error.code == "deadline_exceeded" and run.nodes["taken"].output == {"value": 5}
    assert run.nodes["skipped"].status is RunStatus.SKIPPED and run.nodes["broken"].remote is not None


async def test_an_interrupt_stops_nodes_at_workers(
    host: Host, cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, seen = Bench(host), tmp_path / "seen"
    await host.services.get(SETTINGS).save(SettingsChange(plugin="tavern-dask", values={"connectSeconds": 600}))
    run_id = await bench.start(
        workflow({"wait": far("WaitFor", path=str(seen)), "after": "Take"}, "wait.value > after.value")
    )
    async with asyncio.timeout(60):
        while not seen.exists():
            await asyncio.sleep(0.02)
        run = await bench.interrupted(run_id)
        assert run.status is RunStatus.INTERRUPTED
        while seen.read_text() != "ended":
            await asyncio.sleep(0.02)
    monkeypatch.setattr(passes, "_CANCELS", 0.2)
    values = {"path": str(tmp_path / "notes"), "text": "a", "seconds": 2}
    run_id = await bench.start(workflow({"noted": far("Note", placement="cluster", **values)}))
    async with asyncio.timeout(60):
        while not (tmp_path / "notes").exists():
            await asyncio.sleep(0.02)
    cluster.scheduler.send_signal(signal.SIGSTOP)  # it answers nobody, and no connection is lost
    try:
        async with asyncio.timeout(60):
            assert (await bench.interrupted(run_id)).status in (RunStatus.INTERRUPTED, RunStatus.COMPLETE)
    finally:
        cluster.scheduler.send_signal(signal.SIGCONT)


async def test_a_placement_alone_moves_nodes(cluster: TestCluster, tmp_path: Path) -> None:
    """The same workflow, on one machine and on a cluster to which it sends one node."""
    nodes = {
        "here": far("Place"),
        "far": far("Place", placement="cluster"),
        "sum": {"type": "Add", "inputValues": {"a": 1}},
    }
    nodes["noted"] = far("Note", path=str(tmp_path / "notes"), text="a", placement="cluster")
    document = workflow(nodes)
    processes, sums = [], []
    for number, more in enumerate(({}, cluster.settings | {"extensions.tavern-dask.nodes": "placed"})):
        async with Host(tmp_path / str(number), plugins=FOLDERS, trust=TRUST, settings=more) as host:
            bench = Bench(host)
            run = await bench.run(document)
            assert run.error is None
            processes.append([run.nodes[name].output["value"]["process"] == os.getpid() for name in ("here", "far")])
            sums.append(run.nodes["sum"].output)
            (told,) = [e for e in await bench.events(run, "NODE_COMPLETE") if e.payload["nodeId"] == "far"]
    work = run.nodes["far"].remote
    assert work is not None and told.payload["remote"] == work.to_json()
    async with Host(tmp_path / "1", plugins=FOLDERS, trust=TRUST) as host:  # it reads what was recorded
        assert (await Bench(host).engine.get(run.id)).nodes["far"].remote == work
        context = host._manager.active["tavern-engine"].context
        for node in (None, "far"):
            shown = [str(each) async for each in show({"run": run.id, "node": node}, context)][:-1]
            assert f"at {work.worker}, took {work.received} B, gave {work.given} B" in " ".join(shown)
    assert processes == [[True, True], [True, False]] and sums[0] == sums[1]
    assert (tmp_path / "notes").read_text() == "a\na\n"


async def test_many_nodes_go_in_few_tasks(host: Host) -> None:
    """Chains of small nodes that meet: as many as there are in a large workflow with `--extended`."""
    chains, length = repetitions(10, 100), 100
    nodes: dict[str, Any] = {
        f"n{chain}_{place}": {"type": "Add", "inputValues": {"a": chain}}
        for chain in range(chains)
        for place in range(length)
    }
    edges = [f"n{c}_{p}.sum > n{c}_{p + 1}.a" for c in range(chains) for p in range(length - 1)]
    edges += [f"n{chain}_{length - 1}.sum > all.values" for chain in range(chains)]
    run = await Bench(host).run(workflow({**nodes, "all": "Collect"}, *edges))
    assert (run.status, run.error) == (RunStatus.COMPLETE, None)
    assert sorted(run.nodes["all"].output["list"]) == [chain + length for chain in range(chains)]
    assert all(state.remote is not None for state in run.nodes.values())
