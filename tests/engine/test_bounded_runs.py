"""Finished runs in memory and over HTTP: bounded in bytes, and large values as streams."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from sys import getsizeof
from typing import Any

import pytest
from engine_bench import PLUGINS, Bench, give, slot, workflow
from helpers.repetition import Failures, repetitions
from helpers.waiting import until
from loops_bench import flow, inside, loop

from tavern_engine.cache.cache import OutputCache, size_of
from tavern_engine.run.bounded import encoded
from tavern_engine.run.finished_runs import decoded
from tavern_engine.run.finished_runs import encoded as encoded_run
from tavern_host import Host, NotFound
from tavern_host.contracts.executions import RunRequest
from tavern_host.testing.http import HttpClient, served

MEGABYTE = 2**20


def acme(type: str, **values: Any) -> dict[str, Any]:
    return {"type": f"acme-blobs:{type}", "inputValues": values}


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[tuple[Bench, HttpClient]]:
    values = {f"extensions.tavern-engine.{key}": value for key, value in settings.items()}
    plugins = [PLUGINS / name for name in ("acme_nodes", "acme_blobs", "acme_flow", "acme_streams")]
    trust = [plugin.name.replace("_", "-") for plugin in plugins]
    async with Host(folder / "project", plugins=plugins, trust=trust, settings=values) as host, served(host) as site:
        yield Bench(host), site


async def test_finished_runs_are_bounded_in_bytes(tmp_path: Path) -> None:
    """As UTF-8 has them; the others are read from their record."""
    size = 8 * MEGABYTE // 10 // 3
    async with opened(tmp_path, rememberRunsMegabytes=3) as (bench, site):

        async def run(size: int, text: str, number: int = 0) -> str:
            nodes = {"a": acme("LongText", size=size, text=text), "n": acme("LongList", size=1000 + number)}
            document = workflow({**nodes, "out": "core:GroupOutput"}, "a.result > out.text",
                interfaceOutputs={"text": slot("STRING")})  # fmt: skip
            run = await bench.run(document)
            assert await bench.engine.get(run.id) == run
            await until(lambda: not bench.state.engine._finished.ended, "the run is encoded")
            assert await bench.engine.get(run.id) == run
            return run.id

        ids = [await run(size, text) for text in "一二三四五六"]
        finished = bench.state.engine._finished
        assert [run.id for run in finished.runs()] == ids[-3:]
        assert 2.4 * MEGABYTE < finished.size < 2.5 * MEGABYTE
        whole = await bench.engine.get(ids[0])
        assert len(whole.nodes["a"].output["result"]) == size  # type: ignore[index,arg-type]

        more = [await run(size, "六", number) for number in range(30)]  # what several have is kept once
        assert [run.id for run in finished.runs()] == [*ids[-3:], *more]
        assert finished.size < 2.8 * MEGABYTE

        large = await run(4 * MEGABYTE, "x")
        assert [run.id for run in finished.runs()] == [*ids[-3:], *more]
        assert (await site.get(f"/api/runs/{large}")).status == 200
        odd = whole.model_copy(update={"id": "odd", "metadata": {"share": float("nan")}})  # which has no codec
        kept = encoded_run(odd)
        assert (await decoded(kept), kept.content) == (odd, None)
        assert 4 * size < kept.size < 4 * size + 100_000  # read from a record, the text is there twice
        for run_id in (*ids, *more):
            finished.forget(run_id)
        assert (finished.size, [*finished.runs()]) == (0, [])


async def test_nothing_of_a_finished_run_waits_for_the_garbage_collector(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However it ended."""
    inner = {"z": loop("n: INTEGER = 0", count=3), "add": inside("z", "Add")}
    runs: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
        "done": ({"a": give("text"), "b": "Take"}, ("a > b",)),
        "failed": ({"a": give(1), "boom": "Boom", "after": "Take"}, ("a > boom > after",)),
        "a loop": (inner, ("z.in__n > add.a, add.sum > z.next__n",)),
        "a stream": ({"n": {"type": "acme-streams:Numbers", "inputValues": {"length": 9}},
            "t": {"type": "acme-streams:Total"}}, ("n.items > t.items",)),
        "with progress": ({"a": flow("Chatter", times=3), "b": "Take"}, ("a > b",)),
        "interrupted": ({"a": "Hang"}, ()),
    }  # fmt: skip
    async with opened(tmp_path) as (bench, _):
        await bench.run(workflow({"a": give("first")}))
        engine = bench.state.engine
        caplog.set_level("CRITICAL", "tavern")  # what is captured of a failure has its frames
        gc.disable()
        try:
            with Failures() as failures:
                for name, (nodes, edges) in runs.items():
                    with failures.row(name):
                        run_id = await bench.start(workflow(nodes, *edges))
                        record = weakref.ref(engine.active[run_id].record)
                        if name == "interrupted":
                            await bench.until("NODE_EXECUTING", promptId=run_id)
                            await bench.interrupted(run_id)
                        await bench.engine.wait(run_id)
                        await until(lambda record=record: record() is None, "the run is gone")  # type: ignore[misc]
        finally:
            gc.enable()


def test_what_is_cached_is_counted_once_as_python_has_it() -> None:
    text, words = "一" * MEGABYTE, ["wine", "麦酒"]
    outputs = {"a": text, "all": [text, text, {"deep": text}]}
    texts: dict[int, int] = {}
    size = size_of(outputs, texts=texts)
    assert size is not None and texts == {id(text): getsizeof(text)}
    assert getsizeof(text) < size < getsizeof(text) + 2000
    assert size_of(words) == size_of([]) + getsizeof(words) - getsizeof([]) + sum(map(getsizeof, words))  # type: ignore[operator]

    cache = OutputCache(3 * MEGABYTE)
    for number in range(20):  # as nodes that pass a text on
        cache.put(b"%d" % number, {"text": text})
    assert len(cache) == 20 and getsizeof(text) < cache.size < getsizeof(text) + 20_000
    cache.put(b"other", {"text": "二" * MEGABYTE})
    assert len(cache) == 1 and b"other" in cache
    cache.put_plain({b"other": {"n": 1}}, 0)
    cache.clear()
    assert cache.size == 0


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
