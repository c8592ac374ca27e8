"""Documents that nobody means well with: none stops the host, and each gets one report within bounds."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.workflow_documents import edge
from workflows_bench import Bench, group

from tavern_host import InvalidInput

TEXT = {"id": "text", "type": "core:Text", "inputValues": {"text": "x"}}
MOST = 1000


def nested(depth: int) -> Any:
    """Return a list in a list, so many times."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


async def test_many_wrong_nodes_are_reported_within_bounds(bench: Bench) -> None:
    nodes = [{"id": f"n{i}", "type": f"core:Textmerg{i}"} for i in range(1_000)]
    edges = [edge(f"e{i}", f"m{i}.x", f"n{i}y.z") for i in range(1_000)]

    problems = await bench.manager.check({"nodes": nodes, "edges": edges})

    assert len(problems) == MOST + 1
    assert problems[0].message == "there is no node type 'core:Textmerg0' (did you mean core:TextMerge?)"
    assert (problems[-1].path, problems[-1].message) == ("$", "2,000 more problems are not shown")


async def test_many_nodes_without_form_are_reported_within_bounds(bench: Bench) -> None:
    document = {"nodes": [{"id": i, "type": None} for i in range(1_000)], "edges": "none"}

    problems = await bench.manager.check(document)

    assert [str(problem) for problem in problems[:2]] == [
        "$.nodes[0].id: input should be a valid string, got an integer",
        "$.nodes[0].type: input should be a valid string, got null",
    ]
    assert str(problems[-1]) == "$: 1,001 more problems are not shown"
    with pytest.raises(InvalidInput) as refused:
        await bench.manager.parse(document)
    assert len(refused.value.info.details["problems"]) == MOST + 1


async def test_errors_are_not_crowded_out_by_warnings(bench: Bench) -> None:
    nodes: list[dict[str, Any]] = [{**TEXT, "id": f"n{i}", "parentNode": "frame"} for i in range(2 * MOST)]
    nodes.append({"id": "m", "type": "core:TextMerge"})

    problems = await bench.manager.check({"nodes": nodes})

    assert [p.path for p in problems if p.severity == "error"] == [f"$.nodes[{2 * MOST}].inputValues.text_inputs"]
    assert (problems[-1].message, problems[-1].severity) == ("1,001 more problems are not shown", "warning")


MANY: list[tuple[dict[str, Any], str]] = [
    ({"referencedWorkflows": [1] * 10_001}, "$.referencedWorkflows"),
    ({"interfaceInputs": {f"k{i}": 1 for i in range(10_001)}}, "$.interfaceInputs"),
    ({"interface_outputs": {f"k{i}": 1 for i in range(10_001)}}, "$.interface_outputs"),
    ({"interfaceInputs": {"a": {"matchCategories": [1] * 10_001}}}, "$.interfaceInputs.a.matchCategories"),
    ({"nodes": [{**TEXT, "inputConnectionOrders": {"a": [1] * 10_001}}]}, "$.nodes[0].inputConnectionOrders"),
    ({"nodes": [{**TEXT, "position": {f"k{i}": "x" for i in range(10_001)}}]}, "$.nodes[0].position"),
]


async def test_too_many_parts_are_refused_at_once(bench: Bench) -> None:
    limits = [(*row, "10,000") for row in MANY]
    for document, path, most in [*limits, ({"nodes": [1] * 100_001, "edges": []}, "$.nodes", "100,000")]:
        problems = await bench.problems(document)
        assert list(problems) == [path]
        assert problems[path].endswith(f"items, at most {most} are allowed")


async def test_values_may_be_as_large_as_a_document(bench: Bench) -> None:
    merge = {"id": "m", "type": "core:TextMerge", "inputValues": {"text_inputs": ["x"] * 20_000}}
    text = {**TEXT, "inputValues": {"text": "x" * 500_000}, "notes": ["kept"] * 20_000}

    assert await bench.problems({"nodes": [merge, text]}) == {}


async def test_names_beyond_reason_are_shown_in_part(bench: Bench) -> None:
    name = "n" * 50_000
    node = {"id": name, "type": name, "inputValues": {name: 1}, "policy": {name: 1, "defaults": {name: 1}}}
    edges = [edge(f"e{i}", f"{name}.{name}", f"{name}x.y") for i in range(50)]

    problems = await bench.manager.check({"nodes": [node, node], "edges": edges, "interfaceInputs": {name: {}}})

    assert len(problems) > 50
    assert max(len(problem.model_dump_json()) for problem in problems) < 3000


async def test_control_characters_are_spelled_out(bench: Bench) -> None:
    nodes = [{**TEXT, "id": "a\x1b[2J"}, {**TEXT, "id": "b\u202e"}]
    edges = [edge("e0", "a\x1b[2J.text", "b\u202e.x"), edge("e1", "a\x1b[2J.text", "b\u202e.text")]

    messages = [p.message for p in await bench.manager.check({"nodes": nodes, "edges": [*edges, edges[1]]})]

    assert messages
    assert all(message.isprintable() for message in messages)


@pytest.mark.in_process_only("what is nested so deeply cannot be sent")
async def test_what_is_nested_too_deeply_is_refused(bench: Bench) -> None:
    with Failures() as failures:
        for where, depth in itertools.product(["inputValues", "configValues", "unknown"], [100, 101, 5_000]):
            inner = {"id": "n", "type": "core:Text", where: {"x": nested(depth - 5)}}
            documents: list[dict[str, Any]] = [
                {"nodes": [TEXT, inner]},
                {"nodes": [TEXT], "unknown": nested(depth - 2)},
                {"nodes": [], "interfaceInputs": {"a": {"dataFlowType": "WILDCARD", "unknown": nested(depth - 4)}}},
            ]
            for document in documents[: 3 if where == "unknown" else 1]:
                with failures.row((where, depth, list(document))):
                    found = [p.message for p in await bench.manager.check(document) if "nested" in p.message]
                    assert found == (["is nested deeper than 100 levels"] if depth > 100 else [])
                    if found:
                        with pytest.raises(InvalidInput, match="nested deeper"):
                            await bench.manager.parse(document)
                    else:
                        workflow = await bench.manager.parse(document)
                        await bench.manager.save("deep", workflow)
                        assert (await bench.manager.get("deep")).workflow == workflow


@pytest.mark.in_process_only("the wire has JSON alone, so the caller is told before it is sent")
async def test_what_is_no_json_is_refused(bench: Bench) -> None:
    loop: list[Any] = []
    loop += [loop, loop]

    more = {1: 2, "set": {3}, "tuple": (1,), "number": 10**5000}

    problems = await bench.problems({"nodes": [{**TEXT, "inputValues": {"text": loop}}], "more": more})

    assert list(await bench.problems([])) == ["$"]
    assert problems["$.more"] == "a key is an integer, keys are text in JSON"
    assert problems["$.more.set"] == "set is not a JSON value"
    assert problems["$.more.number"] == "the number has more digits than can be written"
    assert problems["$.more.tuple"] == "tuple is not a JSON value"
    with pytest.raises(InvalidInput):
        await bench.manager.parse({"nodes": [], "loop": loop})


@pytest.mark.in_process_only("the wire has finite numbers and whole ones of 64 bits, so the caller is told before")
async def test_numbers_that_json_lacks_are_named(bench: Bench) -> None:
    node = {"id": "n", "type": "core:MathOperation", "inputValues": {"a": "NUMBER", "b": 1}}
    for number in ("NaN", "-Infinity", "1e999", "1" * 400):
        path = bench.write("w.json", json.dumps({"nodes": [node]}).replace('"NUMBER"', number))
        before = path.read_bytes()
        assert list(await bench.problems(json.loads(before))) == ["$.nodes[0].inputValues.a"]
        assert path.read_bytes() == before


async def test_a_broken_file_is_not_changed(bench: Bench) -> None:
    files = {
        "twice.json": {"nodes": [TEXT, TEXT], "edges": [{"id": 5}]},
        "wild.json": {"nodes": {"a": 1}, "edges": None, "interfaceInputs": [], "name": {}, "id": "wild"},
        "self.json": {"id": "self", "nodes": [group("g", "self")]},
    }
    before = {name: bench.write(name, document).read_bytes() for name, document in files.items()}

    for document in files.values():
        assert await bench.problems(document)
    await bench.manager.list_workflows()
    with pytest.raises(InvalidInput, match=r"wild.json is not a workflow: .*\$\.nodes: expected a list, got an object"):
        await bench.manager.get("wild")

    assert {path.name: path.read_bytes() for path in bench.folder.iterdir()} == before
