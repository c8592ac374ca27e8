"""Large bytes in runs: kept apart, passed on by handle, shown by it, and there as long as the run is."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from engine_bench import PLUGINS, Bench, slot, workflow

from tavern_engine.api.runs import RUN_STORE
from tavern_host import Host
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.errors import NotFound, PermissionDenied
from tavern_host.contracts.executions import RunRequest
from tavern_host.testing.http import served
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.tools import TOOL_MANAGER

SIZE = 3_000_000


def acme(type: str, **values: Any) -> dict[str, Any]:
    return {"type": f"acme-blobs:{type}", "inputValues": values}


def host(folder: Path, **more: Any) -> Host:
    names = ["acme_nodes", "acme_blobs"]
    plugins = [PLUGINS / name for name in names]
    return Host(folder / "project", plugins=plugins, trust=["acme-nodes", "acme-blobs"], **more)


async def prune(opened: Host) -> None:
    """Forget what no run needs."""
    await Bench(opened).state.engine.recorder.prune(max_age=1e9, max_bytes=10**12)
    await opened.blobs.sweep(0)


def blob(content: bytes, kind: str = "text/plain") -> dict[str, Any]:
    """Return the handle of a Blob."""
    return {"type": "blob", "hash": hashlib.sha256(content).hexdigest(), "mediaType": kind, "length": len(content)}


HANDLE = blob(b"\x07" * SIZE, "application/octet-stream")


async def test_an_upload_is_the_input_of_a_run(tmp_path: Path) -> None:
    document = workflow(
        {"in": "core:GroupInput", "take": "acme-blobs:Take"},
        "in.data > take.data",
        interfaceInputs={"data": slot("BINARY", required=True)},
    )
    async with host(tmp_path) as opened, served(opened) as site:
        bench = Bench(opened)
        upload = await site.post("/api/blobs", data=b"a picture", headers={"Content-Type": "image/png"})
        handle = await upload.json()
        run = await bench.run(document, data=handle)
        again = await bench.run(document, data=handle)
        assert run.nodes["take"].output == {"result": "image/png 9 b'a pi' 9"}
        assert again.nodes["take"].cached
        assert await opened.blobs.sweep(0) == 0
        with pytest.raises(NotFound, match="is not kept any more"):
            await bench.run(document, data=handle | {"hash": "0" * 64})
        refused = await bench.refusal(document, data=handle | {"hash": "../secret"})
        assert refused == {
            "$.inputs.data": "the input 'data': expected binary data as base64 text or the handle of a Blob,"
            " got an object"
        }


async def test_blobs_go_when_their_last_run_goes(tmp_path: Path) -> None:
    document = workflow({"both": acme("ProduceBoth", size=SIZE)})
    async with host(tmp_path, settings={"extensions.tavern-engine.cacheOnDisk": True}) as opened:
        bench = Bench(opened)
        first = await bench.run(document)
        second = await bench.run(document)
        assert second.nodes["both"].cached
    async with host(tmp_path, settings={"extensions.tavern-engine.cacheOnDisk": True}) as opened:
        bench = Bench(opened)
        third = await bench.run(document)
        assert (third.nodes["both"].cached, third.nodes["both"].output) == (True, {"data": HANDLE, "size": SIZE})
        store = opened.services.get(RUN_STORE)
        for run in (first, second, third):
            assert opened.blobs.has(Blob.model_validate(HANDLE))
            await store.delete(run.id)
            await prune(opened)
        assert not opened.blobs.has(Blob.model_validate(HANDLE))
        fourth = await bench.run(document)  # what is cached is worth nothing without its Blob
        assert not fourth.nodes["both"].cached
        assert opened.blobs.has(Blob.model_validate(HANDLE))


COUNTED = workflow({"both": acme("ProduceBoth", size=SIZE), "count": "acme-blobs:Count", "wait": "Hang"},
    "both.data > count.data")  # fmt: skip


async def test_pruning_leaves_blobs_of_active_unkept_runs(tmp_path: Path) -> None:
    async with host(tmp_path) as opened:
        bench = Bench(opened)
        run_id = await bench.engine.submit(RunRequest(workflow=COUNTED, keep=False))
        await bench.until("NODE_COMPLETE", promptId=run_id, nodeId="count")
        for is_active in (True, False):
            await prune(opened)
            assert opened.blobs.has(Blob.model_validate(HANDLE)) == is_active
            await bench.interrupted(run_id)


async def test_a_resumed_run_has_its_blobs(tmp_path: Path) -> None:
    async with host(tmp_path) as opened:
        bench = Bench(opened)
        run_id = await bench.start(COUNTED)
        await bench.until("NODE_COMPLETE", promptId=run_id, nodeId="count")
        assert (await bench.interrupted(run_id)).status == "interrupted"
        assert await opened.blobs.sweep(0) == 0
    async with host(tmp_path) as opened:
        bench = Bench(opened)
        await bench.engine.resume(run_id)
        await bench.until("NODE_EXECUTING", promptId=run_id, nodeId="wait")
        run = await bench.engine.get(run_id)
        assert run.nodes["both"].output == {"data": HANDLE, "size": SIZE}
        await bench.engine.interrupt(run_id)


async def test_a_run_that_continues_another_holds_the_blobs_of_what_it_kept(tmp_path: Path) -> None:
    nodes = {"both": acme("ProduceBoth", size=SIZE), "count": "acme-blobs:Count"}
    async with host(tmp_path) as opened:
        bench = Bench(opened)
        failed = await bench.run(workflow({**nodes, "bad": "Boom"}, "both.data > count.data"))
        repaired = RunRequest(workflow=workflow(nodes, "both.data > count.data"))
        answer = await bench.engine.resume(failed.id, changed=repaired)
        await bench.engine.wait(answer.run_id)
        assert answer.kept == ["both", "count"], "nothing reads the Blob any more"
        assert await opened.services.get(RUN_STORE).delete(failed.id)
        await prune(opened)
        assert opened.blobs.has(Blob.model_validate(HANDLE))


async def test_a_tool_gives_large_bytes_by_their_handle(tmp_path: Path) -> None:
    request = ToolCallRequest(tool_id="node:acme-blobs:Produce", arguments={"size": SIZE})
    async with host(tmp_path) as opened, served(opened) as site:
        result = await opened.services.get(TOOL_MANAGER).call(request, call=opened.call())
        assert result.status == "done"
        assert HANDLE in (result.structured, *(result.structured or {}).values())
        part = await site.get(f"/api/blobs/{HANDLE['hash']}", headers={"Range": f"bytes={SIZE - 2}-"})
        assert (part.status, await part.read()) == (206, b"\x07\x07")


async def test_a_plugin_that_is_gone_opens_none(tmp_path: Path) -> None:
    async with host(tmp_path) as opened:
        blobs = opened._manager.active["acme-blobs"].context.blobs
        blob = await blobs.put(b"mine", holder="album")
        assert (await blobs.holders(), await opened.blobs.holders()) == (["album"], ["acme-blobs/album"])
        await opened.disable("acme-blobs")
        for use in (lambda: blobs.read(blob), lambda: blobs.put(b"more"), lambda: blobs.release("album")):
            with pytest.raises(PermissionDenied):
                await use()
        assert await opened.blobs.holders() == ["acme-blobs/album"]  # over restarts too
