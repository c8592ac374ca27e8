"""Large bytes that nodes in processes of their own are given, and that a killed host leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, slot, workflow
from helpers.repetition import Failures, repetitions
from runs_bench import begin
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


ENDLESS = """
import asyncio, sys
from pathlib import Path
from test_blobs_in_runs import acme, host
from engine_bench import Bench, workflow

async def main():
    async with host(Path(sys.argv[1])) as opened:
        bench = Bench(opened)
        for number in range(10**6):
            size = 2_000_000 + number
            nodes = {"a": acme("Produce", size=size), "b": acme("Make", text=f"text {size}")}
            run = await bench.run(workflow(nodes))
            print(run.id, flush=True)
            await opened.blobs.sweep(0)

asyncio.run(main())
"""


async def test_no_blob_of_a_recorded_run_is_lost_by_a_kill(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(repetitions(1, 20)):
        child = await begin(ENDLESS.replace("sys.argv[1]", repr(str(tmp_path))))
        assert child.stdout is not None
        said += [(await child.stdout.readline()).decode().strip() for _ in range(3)]
        child.kill()
        await child.wait()
    async with host(tmp_path) as opened:
        bench = Bench(opened)
        await opened.blobs.sweep(0)
        for run_id in said:
            run = await bench.engine.get(run_id)
            for node_id in ("a", "b"):
                blob = Blob.model_validate((run.nodes[node_id].output or {})["result"])
                assert len(await opened.blobs.read(blob)) == blob.length
