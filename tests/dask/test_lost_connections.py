"""A scheduler that is lost, or not there; and a cluster that the host starts itself."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest
from distributed import Client
from engine_bench import Bench, workflow
from helpers.dask_cluster import FOLDERS, TRUST, TestCluster
from helpers.repetition import repetitions

from tavern_host import Host
from tavern_host.contracts.executions import RunStatus
from tavern_host.contracts.settings import SETTINGS, SettingsChange

WAITS = {"extensions.tavern-dask.whenLost": "wait"}


async def begun(seen: Path) -> None:
    async with asyncio.timeout(60):
        while not (seen.exists() and seen.read_text() == "begun"):
            await asyncio.sleep(0.02)


async def have_to_connect(seconds: float | None, *hosts: Host) -> None:
    for host in hosts:
        change = SettingsChange(plugin="tavern-dask", values={"connectSeconds": seconds})
        await host.services.get(SETTINGS).save(change)


async def test_nodes_fail_or_wait_without_a_scheduler(cluster: TestCluster, tmp_path: Path) -> None:
    seen, tries, notes = tmp_path / "seen", tmp_path / "tries", tmp_path / "notes"
    values = {"path": str(notes), "text": "once", "seconds": 600}
    note = {
        "type": "acme-far:Note",
        "placement": "cluster",
        "policy": {"onError": "skip_branch"},
        "inputValues": values,
    }
    wait = {"type": "acme-far:WaitFor", "inputValues": {"path": str(seen)}}
    pause = {"type": "acme-far:PauseAtFirst", "inputValues": {"path": str(tries)}}
    long = {"type": "acme-far:Grow", "inputValues": {"size": 200_000}}
    async with (
        AsyncExitStack() as stack,
        Host(tmp_path / "fails", plugins=FOLDERS, trust=TRUST, settings=cluster.settings) as failing,
        Host(tmp_path / "waits", plugins=FOLDERS, trust=TRUST, settings=cluster.settings | WAITS) as waiting,
    ):
        fails = await Bench(failing).start(workflow({"wait": wait}))
        await begun(seen)
        nodes = {"long": long, "pause": pause, "length": "acme-far:Length", "after": "Take", "noted": note}
        edges = ["long.value > length.value", "pause.value > after.value", "length.value > pause.after"]
        cluster.start_worker()
        waits = await Bench(waiting).start(workflow(nodes, *edges))
        async with asyncio.timeout(60):
            while not tries.exists() or not notes.exists():
                await asyncio.sleep(0.02)
        stack.callback(cluster.start_again)
        await have_to_connect(0.2, failing, waiting)  # there is no scheduler then
        await asyncio.to_thread(cluster.kill)
        run = await Bench(failing).engine.wait(fails)
        assert run.status is RunStatus.ERROR and run.error is not None
        assert "the connection to the Dask scheduler was lost" in run.error.message
        run = await Bench(failing).run(workflow({"take": "Take"}))
        assert (
            run.error is not None and f"the Dask scheduler at {cluster.address} cannot be reached" in run.error.message
        )
        await asyncio.to_thread(cluster.start_again)
        await have_to_connect(None, failing, waiting)
        run = await Bench(waiting).engine.wait(waits)
        assert (run.status, run.error) == (RunStatus.COMPLETE, None)
        assert run.nodes["after"].output == {"value": 2} and tries.read_text() == "xx"
        noted = run.nodes["noted"].error
        assert noted is not None and "may not be run twice" in noted.message and notes.read_text() == "once\n"
        run = await Bench(failing).run(workflow({"take": "Take"}))
        assert run.error is None


async def test_a_local_cluster_keeps_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "hidden")
    own = {"scheduler": "local", "workers": 1, "nodes": "pure"}
    settings = {f"extensions.tavern-dask.{key}": value for key, value in own.items()}
    async with Host(tmp_path / "project", plugins=FOLDERS, trust=TRUST, settings=settings) as host:
        bench = Bench(host)
        before, others = psutil.Process().children(), {*Client._instances}
        run = await bench.run(workflow({"place": "acme-far:Place"}))
        assert run.error is None and run.nodes["place"].output is not None
        place = run.nodes["place"].output["value"]
        assert isinstance(place, dict) and place["secret"] is None
        started = _children(before)
        assert len(started) == 2 and place["process"] in [child.pid for child in started]
        listening = [c.laddr.ip for p in started for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        assert set(listening) == {"127.0.0.1"}
        if repetitions(0, 1):
            die = {"type": "acme-far:Die", "policy": {"onError": "skip_branch"}}
            turns = {f"turn{n}": {"type": "acme-far:Turn", "inputValues": {"number": n}} for n in range(50)}
            run = await bench.run(workflow({"die": die, "after": "Take", **turns}, "die.value > after.value"))
            error = run.nodes["die"].error
            assert error is not None and "was lost while it ran, for the 5th time" in error.message
            assert [name for name in turns if run.nodes[name].output is None] == [] and run.error is None
            assert run.nodes["after"].status is RunStatus.SKIPPED
        _children(before)[-1].kill()
        run = await bench.run(workflow({"place": {"type": "acme-far:Place", "inputValues": {"value": 1}}}))
        assert run.error is None
        (client,) = {*Client._instances} - others
        await client.close()  # it does so without a scheduler
        run = await bench.run(workflow({"place": {"type": "acme-far:Place", "inputValues": {"value": 2}}}))
        assert run.error is None
        _children(before)[0].suspend()  # the scheduler does not end by itself, and answers nobody
    assert _children(before) == []


def _children(before: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that were started since, the oldest first."""
    return sorted((c for c in psutil.Process().children() if c not in before), key=lambda child: child.create_time())


WRONG = {
    "tls://127.0.0.1:1": ({}, "not complete; not set: extensions.tavern-dask.tlsCa, extensions.tavern-dask.tlsCert"),
    "tcp://127.0.0.1:1": ({"tlsCa": "ca.pem"}, "not complete; not set: extensions.tavern-dask.tlsCert, "),
    "tcp://127.0.0.1:2": ({}, "the Dask scheduler at tcp://127.0.0.1:2 cannot be reached"),
    "ftp://example": ({}, "the Dask scheduler at ftp://example cannot be reached"),
}


async def test_wrong_addresses_are_explained_at_the_node(tmp_path: Path) -> None:
    said = {}
    for number, (address, (more, _)) in enumerate(WRONG.items()):
        given = {"scheduler": address, "connectSeconds": 0.2, **more}
        settings = {f"extensions.tavern-dask.{key}": value for key, value in given.items()}
        async with Host(tmp_path / str(number), plugins=FOLDERS, trust=TRUST, settings=settings) as host:
            grow = {"type": "acme-far:Grow", "placement": "cluster", "inputValues": {"size": 3}}
            run = await Bench(host).run(workflow({"grow": grow}))
        said[address] = run.error.message if run.error is not None else ""
    assert {address: part for address, (_, part) in WRONG.items() if part not in said[address]} == {}, said
