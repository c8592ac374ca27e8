"""Finished runs in memory and over HTTP: bounded in bytes, and large values as streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_bench import PLUGINS, Bench, slot, workflow
from helpers.repetition import Failures, repetitions

from tavern_engine.run.bounded import encoded
from tavern_host import Host, NotFound
from tavern_host.contracts.executions import RunRequest
from tavern_host.testing.http import HttpClient, served

MEGABYTE = 2**20


def acme(type: str, **values: Any) -> dict[str, Any]:
    return {"type": f"acme-blobs:{type}", "inputValues": values}


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[tuple[Bench, HttpClient]]:
    values = {f"extensions.tavern-engine.{key}": value for key, value in settings.items()}
    plugins = [PLUGINS / "acme_nodes", PLUGINS / "acme_blobs"]
    trust = ["acme-nodes", "acme-blobs"]
    async with Host(folder / "project", plugins=plugins, trust=trust, settings=values) as host, served(host) as site:
        yield Bench(host), site


async def test_finished_runs_are_bounded_in_bytes(tmp_path: Path) -> None:
    size = 8 * MEGABYTE // 10
    async with opened(tmp_path, rememberRunsMegabytes=3) as (bench, site):
        documents = [{"a": acme("LongText", size=size), "n": acme("LongList", size=1000 + n)} for n in range(6)]
        ids = [(await bench.run(workflow(nodes))).id for nodes in documents]
        finished = bench.state.engine._finished
        assert [run.id for run in finished.values()] == ids[-3:]
        assert 2.4 * MEGABYTE < finished.size <= 3 * MEGABYTE
        whole = await bench.engine.get(ids[0])  # the others are read from their record
        assert len(whole.nodes["a"].output["result"]) == size  # type: ignore[index,arg-type]

        run = await bench.run(workflow({"a": acme("LongText", size=4 * MEGABYTE)}))
        assert [run.id for run in finished.values()] == ids[-3:]
        assert (await site.get(f"/api/runs/{run.id}")).status == 200


async def test_a_run_is_shown_without_its_large_values(tmp_path: Path) -> None:
    """In messages too; who asked for it gets all."""
    words = "d\u00e9j\u00e0 vu \U0001f600 "
    text, data = words * 30_000, b"\x07" * MEGABYTE
    nodes = {
        "text": acme("LongText", size=30_000, text=words),
        "long": acme("LongText", size=MEGABYTE + 1),
        "list": acme("LongList", size=100_000),
        "bytes": acme("Produce", size=MEGABYTE),
        "small": acme("LongText", size=10),
        "out": "core:GroupOutput",
    }
    outputs = {"text": slot("STRING"), "bytes": slot("BINARY"), "small": slot("STRING"), "long": slot("STRING")}
    document = workflow(
        nodes,
        "text.result > out.text, bytes.result > out.bytes, small.result > out.small, long.result > out.long",
        interfaceOutputs=outputs,
    )
    plain, listed = "text/plain; charset=utf-8", json.dumps(list(range(100_000))).encode()
    content = {"text": (plain, text.encode()), "bytes": ("application/octet-stream", data)}
    content |= {f"result?nodeId={key}": value for key, value in content.items()}
    content |= {"result?nodeId=list": ("application/json", listed), "result?nodeId=small": (plain, b"x" * 10)}
    async with opened(tmp_path) as (bench, site):
        run = await bench.run(document)
        await check_shown(site, run.id, content)
        found: dict[Any, Any] = {
            e.payload["nodeId"]: e.payload["output"] for e in await bench.events(run, "NODE_COMPLETE")
        }
    large = {"type": "large", "mediaType": plain, "length": MEGABYTE + 1}
    assert (found["long"], found["small"]) == ({"result": large}, {"result": "x" * 10})
    shown = found["__WORKFLOW_INTERFACE_OUTPUTS__"]
    assert (shown["long"], shown["small"]) == (large, "x" * 10)
    assert (run.outputs["text"], run.outputs["long"]) == (text, "x" * (MEGABYTE + 1))
    async with opened(tmp_path) as (_, site):  # from its record
        await check_shown(site, run.id, content)
        with Failures() as failures:
            for path in ("nothing", "result?nodeId=nothing", "nothing?nodeId=text"):
                with failures.row(path):
                    assert (await site.get(f"/api/runs/{run.id}/outputs/{path}")).status == 404


async def check_shown(site: HttpClient, run_id: str, content: dict[str, tuple[str, bytes]]) -> None:
    """Hold what is shown of the run, and its downloads, against what its nodes gave."""
    with Failures() as failures:
        for path in (f"/api/runs/{run_id}", f"/api/prompt/{run_id}"):
            with failures.row(path):
                answer = await site.get(path)
                shown = await answer.json()
                nodes = shown.get("nodes") or shown["nodeStatus"]
                values = {key: state["output"]["result"] for key, state in nodes.items() if key != "out"}
                assert values.pop("small") == "x" * 10
                assert {key: (value["type"], value["mediaType"]) for key, value in values.items()} == {
                    "text": ("large", "text/plain; charset=utf-8"),
                    "long": ("large", "text/plain; charset=utf-8"),
                    "list": ("large", "application/json"),
                    "bytes": ("blob", "application/octet-stream"),
                }
                assert shown["outputs"]["text"]["type"] == "large"
                assert len(await answer.read()) < 10_000
        for path, (kind, data) in content.items():
            with failures.row(path):
                answer = await site.get(f"/api/runs/{run_id}/outputs/{path}")
                assert (answer.status, answer.headers["Content-Type"]) == (200, kind)
                got = await answer.read()
                assert json.loads(got) == json.loads(data) if kind == "application/json" else got == data
                part = await site.get(f"/api/runs/{run_id}/outputs/{path}", headers={"Range": "bytes=2-5"})
                assert (part.status, await part.read()) == (206, got[2:6])


async def test_what_is_shown_of_a_large_run_is_bounded(tmp_path: Path) -> None:
    nodes = {f"t{i}": acme("LongText", size=MEGABYTE) for i in range(repetitions(30, 200))}
    nodes |= {f"s{i}": acme("LongText", size=20_000) for i in range(500)}
    nodes |= {f"n{i}": acme("LongText", size=100) for i in range(50)}
    async with opened(tmp_path) as (bench, site):
        run = await bench.run(workflow(nodes))
        from_memory = await (await site.get(f"/api/runs/{run.id}")).read()
    async with opened(tmp_path) as (_, site):
        from_record = await (await site.get(f"/api/runs/{run.id}")).read()
    with Failures() as failures:
        for place, answer in (("memory", from_memory), ("record", from_record)):
            with failures.row(place):
                assert len(answer) < 3 * MEGABYTE
                shown = {key: state["output"]["result"] for key, state in json.loads(answer)["nodes"].items()}
                assert shown.keys() == nodes.keys()
                assert shown["t0"] == {"type": "large", "mediaType": "text/plain; charset=utf-8", "length": MEGABYTE}
                assert {len(shown[f"n{i}"]) for i in range(50)} == {100}


async def test_a_run_that_is_not_kept_leaves_no_values(tmp_path: Path) -> None:
    secret = "nobody's business"
    nodes = {"in": "core:GroupInput", "out": "core:GroupOutput"}
    slots = {"text": slot("STRING")}
    document = workflow(nodes, "in.text > out.text", interfaceInputs=slots, interfaceOutputs=slots)
    async with opened(tmp_path) as (bench, _):
        kept = await bench.run(document, text=secret)
        request = RunRequest(workflow=document, inputs={"text": secret}, keep=False)
        run = await bench.engine.run(request)
        assert (run.outputs, run.inputs) == ({"text": secret}, {})
        assert {name: (state.status, state.output) for name, state in run.nodes.items()} == dict.fromkeys(
            ("in", "out"), ("complete", None)
        )
        assert [one.id for one in await bench.engine.history()] == [kept.id]
        [of_node] = [e for e in await bench.events(run, "NODE_COMPLETE") if e.payload["nodeId"] == "in"]
        assert of_node.payload["output"] == {}
    async with opened(tmp_path) as (bench, _):
        with pytest.raises(NotFound):
            await bench.engine.get(run.id)


async def test_a_large_output_is_encoded_in_small_parts() -> None:
    named = {f"k{i}": "\u4e2d" * 900 for i in range(500)}
    for value in (["x" * 10_000] * 500, named, list(range(30_000)), "x" * 300_000):
        parts = [part async for part in encoded(value)]
        assert max(map(len, parts)) < 64 * 1024
        whole = b"".join(parts).decode()
        assert (whole if isinstance(value, str) else json.loads(whole)) == value
