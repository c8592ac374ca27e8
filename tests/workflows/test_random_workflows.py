"""Documents that nobody thought of, made from good ones by damage: they get a report or a declared error."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.workflow_documents import edge
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from workflows_bench import SAMPLES, Bench, group

from tavern_host import Host, TavernError
from tavern_workflows.api.loops import Zone, zone_of

GOOD: dict[str, Any] = {
    "id": "good",
    "name": "Good",
    "nodes": [
        {"id": "in", "type": "core:GroupInput", "position": {"x": 0, "y": 1.5}},
        {"id": "text", "type": "core:Text", "inputValues": {"text": "x"}, "policy": {"retry": 1, "onError": "route"}},
        {
            "id": "loop",
            "type": "core:LoopZone",
            "configValues": {
                "carried": [{"key": "n", "dataFlowType": "STRING", "initial": "a"}],
                "perIteration": [{"key": "each", "dataFlowType": "STRING"}],
                "count": 3,
                "conditionSlot": "done",
                "maxIterations": 10,
            },
        },
        {
            "id": "merge",
            "type": "core:TextMerge",
            "parentNode": "loop",
            "inputConnectionOrders": {"text_inputs": ["e2"]},
        },
        {"id": "sum", "type": "core:MathOperation", "configValues": {"operationMode": "add"}, "inputValues": {"a": 1}},
        {**group("group", "shared"), "bypassed": True},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [
        edge("e1", "in.words", "loop.in__n"),
        edge("e2", "loop.in__n", "merge.text_inputs__0"),
        edge("e3", "merge.merged_text", "loop.next__n"),
        edge("e4", "loop.out__n", "out.text"),
        edge("e5", "text.error", "group.x"),
    ],
    "viewport": {"x": 0, "y": 0, "zoom": 1},
    "interfaceInputs": {"words": {"dataFlowType": "STRING", "config": {"default": "x"}, "matchCategories": ["Prompt"]}},
    "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
    "referencedWorkflows": ["shared"],
}

names = st.sampled_from(
    ["in", "text", "loop", "merge", "out", "good", "shared", "stored", "e1", "in__n", "next__n", "count", "error", ""]
) | st.sampled_from(["core:NodeGroup", "core:LoopZone", "STRING", "INTEGER", "route", "a/b", "group/x", "\x1b[2J"])
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | names, inner, max_size=4),
    max_leaves=12,
)
odd_values = [b"bytes", {1, 2}, object(), "\ud800", {5: "five"}, (1, (2,)), float("nan"), float("inf"), 10**400]
foreign = st.sampled_from(odd_values).map(copy.deepcopy)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every part of a document."""
    if path:
        yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, key))


@st.composite
def damaged(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> Any:
    """Return a document from a good one by a few changes: parts replaced, left out, copied, moved elsewhere, added."""
    document = copy.deepcopy(GOOD)
    for _ in range(draw(st.integers(1, 6))):
        found = list(places(document))
        if not found:
            break
        *way, last = draw(st.sampled_from(found))
        holder = document
        for key in way:
            holder = holder[key]
        kind = draw(st.sampled_from(["replace", "leave out", "add", "copy", "name"]))
        if kind == "replace":
            holder[last] = draw(values)
        elif kind == "name":
            holder[last] = draw(names)
        elif kind == "leave out":
            del holder[last]
        elif kind == "copy":
            source = document
            for key in draw(st.sampled_from(found)):
                try:
                    source = source[key]
                except (KeyError, IndexError, TypeError):
                    break
            holder[last] = copy.deepcopy(source)
        elif isinstance(holder, list):
            holder.insert(last, draw(values))
        else:
            holder[draw(names)] = draw(values)
    return document


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[asyncio.Runner, Bench]]:
    """A host for all examples of a test."""
    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        host = Host(tmp_path / "project", plugins=[SAMPLES], trust=["acme-samples"])
        runner.run(host.__aenter__())
        stack.callback(lambda: runner.run(host.__aexit__(None, None, None)))
        bench = Bench(host)
        bench.write("stored.json", {"nodes": [group("g", "good")]})
        yield runner, bench


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def goes_through(bench: Bench, document: Any) -> None:
    """Assert what holds of every document: a report or a declared error, and nothing written unless it is saved."""
    (bench.folder / "good.json").unlink(missing_ok=True)
    before = content(bench.folder)
    problems = await bench.manager.check(document)
    assert content(bench.folder) == before
    assert len(problems) <= 1001
    assert all(problem.model_dump_json() for problem in problems)
    try:
        workflow = await bench.manager.parse(document)
    except TavernError as error:
        assert error.info.code == "invalid_input"
        assert error.info.details["problems"]
        assert any(problem.severity == "error" for problem in problems)
        assert content(bench.folder) == before
        return
    await bench.manager.closure(workflow)
    saved = await bench.manager.save("good", workflow)
    stored = await bench.manager.get("good")
    assert stored == saved
    assert stored.workflow == workflow, "an id that stands in the file stays there"
    assert {name: data for name, data in content(bench.folder).items() if name != "good.json"} == before


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(json_values, id="json"),
        pytest.param(
            json_values | foreign, id="anything", marks=pytest.mark.in_process_only("the wire has JSON alone")
        ),
    ],
)
def test_damaged_workflows_get_reports_or_declared_errors(
    running: tuple[asyncio.Runner, Bench], values: st.SearchStrategy[Any]
) -> None:
    runner, bench = running

    @settings(suppress_health_check=list(HealthCheck))
    @given(damaged(values))
    @example(GOOD)
    def goes_through_each(document: Any) -> None:
        runner.run(goes_through(bench, document))

    goes_through_each()


def test_damaged_files_are_reported_and_not_changed(
    running: tuple[asyncio.Runner, Bench],
) -> None:
    runner, bench = running

    async def read(data: bytes) -> None:
        bench.write("good.json", data)
        before = content(bench.folder)
        await bench.manager.list_workflows()
        with contextlib.suppress(TavernError):
            stored = await bench.manager.get("good")
            assert stored.workflow.nodes is not None
        assert await bench.manager.check({"nodes": [group("g", "stored")]}) is not None
        assert content(bench.folder) == before

    @settings(suppress_health_check=list(HealthCheck))
    @given(damaged(json_values), st.binary(max_size=3), st.integers(0, 5000), st.booleans())
    def each(document: Any, noise: bytes, place: int, whole: bool) -> None:
        data = bench.write("good.json", document).read_bytes()
        runner.run(read(data if whole else data[: place % len(data)] + noise + data[place % len(data) :]))

    each()


# --- the pure functions that checks and the engine share ----------------------------------------------


@given(st.dictionaries(st.sampled_from(list(GOOD["nodes"][2]["configValues"])), json_values, max_size=5))
def test_a_loops_configuration_is_read_whatever_it_holds(config: dict[str, Any]) -> None:
    zone = zone_of(config)

    assert isinstance(zone, Zone)
    assert {place[0] for place in zone.problems} <= set(config)
    assert not set(zone.outer_inputs) & set(zone.inner_inputs)
    assert not set(zone.outer_outputs) & set(zone.inner_outputs)
