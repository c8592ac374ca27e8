"""Large bytes that nodes in processes of their own are given, and that a killed host leaves."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, slot, workflow
from helpers.repetition import Failures, repetitions
from helpers.survival import killed, say
from test_blobs_in_runs import HANDLE, SIZE, acme, blob, host

from tavern_host.contracts.blobs import Blob

TEXT, DEEP = blob(b"tell me"), blob(b"deep down")
FLOWING: dict[str, tuple[dict[str, Any], Any]] = {
    "make": (acme("Produce", size=SIZE), HANDLE),
    "text": (acme("Make", text="tell me"), TEXT),
    "deep": (acme("MakeDeep", text="deep down"), {"all": [{"blob": DEEP}]}),
    "few": (acme("Produce", size=10), {"type": "opaque", "python": "builtins.bytes"}),
    "count": (acme("Count"), SIZE),
    "all": (acme("CountAll"), SIZE + 7),
    "apart": (acme("CountApart"), SIZE),
    "name": (acme("NameApart"), "Blob"),
    "take": (acme("Take"), "text/plain 7 b'tell' 7"),
    "small": (acme("Take"), "application/octet-stream 10 b'\\x07\\x07\\x07\\x07' 10"),
    "pieces": (acme("Pieces"), [1_000_000] * 3),
}
"""Nodes, and what they give."""


@pytest.mark.parametrize("place", ["in-process", "loopback"])
async def test_blobs_flow_as_handles_and_open_as_bytes(tmp_path: Path, place: Any) -> None:
    document = workflow(
        {name: node for name, (node, _) in FLOWING.items()}
        | {"both": acme("ProduceBoth", size=SIZE), "out": "core:GroupOutput"},
        "make.result > count.data, make.result > all.data, text.result > all.data, make.result > apart.data",
        "make.result > name.data, make.result > pieces.data, text.result > take.data, few.result > small.data",
        "make.result > out.x",
        interfaceOutputs={"x": slot("BINARY")},
    )
    async with host(tmp_path, placement=place) as opened:
        bench = Bench(opened)
        run = await bench.run(document)
        assert run.error is None, run.error
        with Failures() as failures:
            for name, (_, value) in FLOWING.items():
                with failures.row(name):
                    assert (run.nodes[name].output or {})["result"] == value
            with failures.row("outputs and messages"):
                assert run.nodes["both"].output == {"data": HANDLE, "size": SIZE}
                assert run.outputs == {"x": HANDLE}
                done = {e.payload["nodeId"]: e.payload["output"] for e in await bench.events(run, "NODE_COMPLETE")}
                assert done["make"] == {"result": HANDLE}
            with failures.row("held"):
                assert await opened.blobs.holders() == [f"tavern-engine/{run.id}"]
                assert await opened.blobs.sweep(0) == 1  # what was made of ten bytes to be shown to `small`
                assert all(opened.blobs.has(Blob.model_validate(one)) for one in (HANDLE, TEXT, DEEP))


async def make_blobs(folder: Path) -> None:
    """Run nodes that make Blobs, and say each run."""
    async with host(folder) as opened:
        bench = Bench(opened)
        for size in itertools.count(2_000_000):
            run = await bench.run(workflow({"a": acme("Produce", size=size), "b": acme("Make", text=f"text {size}")}))
            say(run.id)
            await opened.blobs.sweep(0)


async def test_no_blob_of_a_recorded_run_is_lost_by_a_kill(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(repetitions(1, 20)):
        said += await killed(make_blobs, tmp_path, lines=3)
    async with host(tmp_path) as opened:
        bench = Bench(opened)
        await opened.blobs.sweep(0)
        for run_id in said:
            run = await bench.engine.get(run_id)
            for node_id in ("a", "b"):
                blob = Blob.model_validate((run.nodes[node_id].output or {})["result"])
                assert len(await opened.blobs.read(blob)) == blob.length
