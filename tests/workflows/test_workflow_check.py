"""What `check` says of a document: everything at once, each with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from workflows_bench import Bench, edge

from tavern_host.cli.terminal import run as tavern

TEXT = {"id": "text", "type": "core:Text", "inputValues": {"text": "x"}}
MERGE = {"id": "merge", "type": "core:TextMerge"}


async def test_every_problem_of_the_shape_is_named_by_its_path(bench: Bench) -> None:
    document = {
        "name": 5,
        "nodes": [
            {"type": "core:Text"},
            "no node",
            {"id": "n", "type": "core:Text", "position": {"x": "left"}, "inputConnectionOrders": {"a": "e1"}},
        ],
        "edges": [{"id": "e", "source": "n"}],
        "interfaceInputs": {"a b": {"dataFlowType": "TEXT"}, "none": {}},
    }

    problems = await bench.problems(document)

    assert problems["$.name"] == "input should be a valid string, got an integer"
    assert problems["$.nodes[0].id"] == "is missing"
    assert "got 'no node'" in problems["$.nodes[1]"]
    assert problems["$.nodes[2].position.x"] == (
        "input should be a valid integer, got 'left' or input should be a valid number, got 'left'"
    )
    assert problems["$.nodes[2].inputConnectionOrders.a"] == "input should be a valid list, got 'e1'"
    assert problems["$.edges[0].sourceHandle"] == "is missing"
    assert problems['$.interfaceInputs["a b"].dataFlowType'].startswith("input should be 'STRING', 'INTEGER'")
    assert problems["$.interfaceInputs.none.dataFlowType"] == "is missing"
    assert len(problems) == 10


async def test_parts_that_are_sound_are_checked_even_where_others_are_not(bench: Bench) -> None:
    document = {
        "name": 5,
        "nodes": [{"id": "broken"}, {"id": "typo", "type": "core:TextMerg", "inputValues": {}}],
        "edges": [edge("e1", "broken.x", "typo.y"), edge("e2", "gone.x", "typo.y")],
    }

    assert await bench.problems(document) == {
        "$.name": "input should be a valid string, got an integer",
        "$.nodes[0].type": "is missing",
        "$.nodes[1].type": "there is no node type 'core:TextMerg' (did you mean core:TextMerge?)",
        "$.edges[1].source": "there is no node 'gone'",
    }


async def test_ids_are_taken_once(bench: Bench) -> None:
    document = {
        "nodes": [TEXT, MERGE, TEXT],
        "edges": [edge("e", "text.text", "merge.text_inputs"), edge("e", "text.text", "merge.text_inputs")],
    }

    problems = await bench.problems(document)

    assert problems["$.nodes[2].id"] == "the id 'text' is taken by $.nodes[0]"
    assert problems["$.edges[1].id"] == "the id 'e' is taken by $.edges[0]"


async def test_edges_need_nodes_and_slots_at_both_ends(bench: Bench) -> None:
    document = {
        "nodes": [TEXT, MERGE, {"id": "in", "type": "core:GroupInput"}],
        "edges": [
            edge("e0", "txt.text", "merge.text_inputs"),
            edge("e1", "text.txt", "merge.text_inputs"),
            edge("e2", "text.text", "merge.text_input"),
            edge("e3", "text.text", "merge.separator__0"),
            edge("e4", "in.word", "merge.text_inputs"),
            edge("e5", "text.text", "in.word"),
        ],
        "interfaceInputs": {"words": {"dataFlowType": "STRING"}},
    }

    assert await bench.problems(document) == {
        "$.edges[0].source": "there is no node 'txt' (did you mean text?)",
        "$.edges[1].sourceHandle": "core:Text has no output 'txt' (did you mean text?)",
        "$.edges[2].targetHandle": "core:TextMerge has no input 'text_input' (did you mean text_inputs?)",
        "$.edges[3].targetHandle": "core:TextMerge has no input 'separator__0' (did you mean separator?)",
        "$.edges[4].sourceHandle": "core:GroupInput has no output 'word' (did you mean words?)",
        "$.edges[5].targetHandle": "core:GroupInput has no input 'word'",
    }


async def test_edges_join_types_that_go_together(bench: Bench) -> None:
    document = {
        "nodes": [TEXT, {"id": "sum", "type": "core:MathOperation", "inputValues": {"a": 1, "b": 2}}],
        "edges": [edge("e0", "text.text", "sum.a")],
    }

    assert await bench.problems(document) == {"$.edges[0]": "text.text to sum.a: STRING does not go into FLOAT"}


async def test_the_mode_of_a_node_says_which_slots_it_has(bench: Bench) -> None:
    node = {"id": "m", "type": "core:MathOperation", "configValues": {"operationMode": "power"}}

    assert await bench.problems({"nodes": [node]}) == {
        "$.nodes[0].inputValues.base": "the required input 'base' has neither an edge, a value nor a default"
    }


async def test_an_unknown_mode_is_a_warning(bench: Bench) -> None:
    node = {
        "id": "m",
        "type": "core:MathOperation",
        "configValues": {"operationMode": "ad"},
        "inputValues": {"a": 1, "b": 2},
    }

    assert await bench.problems({"nodes": [node]}) == {
        "$.nodes[0].configValues.operationMode": ("warning: core:MathOperation has no mode 'ad' (did you mean add?)")
    }


async def test_an_input_that_takes_one_edge_gets_one(bench: Bench) -> None:
    document = {
        "nodes": [TEXT, {**TEXT, "id": "other"}, {**MERGE, "inputValues": {"text_inputs": ["x"]}}],
        "edges": [edge("e0", "text.text", "merge.separator"), edge("e1", "other.text", "merge.separator")],
    }

    assert await bench.problems(document) == {
        "$.edges[1].targetHandle": "the input 'separator' of merge takes one edge and has $.edges[0] already"
    }


async def test_an_interface_output_is_fed_by_one_node(bench: Bench) -> None:
    outs = [{"id": name, "type": "core:GroupOutput"} for name in ("o1", "o2")]
    document = {
        "nodes": [TEXT, *outs],
        "edges": [edge("e0", "text.text", "o1.x"), edge("e1", "text.text", "o2.x")],
        "interfaceOutputs": {"x": {"dataFlowType": "STRING"}},
    }

    assert await bench.problems(document) == {
        "$.edges[1].targetHandle": "the interface output 'x' is fed by o1 already"
    }


async def test_a_required_input_needs_an_edge_a_value_or_a_default(bench: Bench) -> None:
    assert await bench.problems({"nodes": [MERGE]}) == {
        "$.nodes[0].inputValues.text_inputs": (
            "the required input 'text_inputs' has neither an edge, a value nor a default"
        )
    }
    assert await bench.problems({"nodes": [{**MERGE, "inputValues": {"text_inputs": "x"}}]}) == {}


async def test_a_written_value_of_another_type_is_a_warning(bench: Bench) -> None:
    node = {"id": "m", "type": "core:MathOperation", "inputValues": {"a": "one", "b": 2}}

    assert await bench.problems({"nodes": [node]}) == {
        "$.nodes[0].inputValues.a": "warning: expected a number, got text"
    }


async def test_a_parent_that_is_not_there_is_a_warning(bench: Bench) -> None:
    assert await bench.problems({"nodes": [{**TEXT, "parentNode": "frame"}]}) == {
        "$.nodes[0].parentNode": "warning: there is no node 'frame'"
    }


async def test_each_knot_of_nodes_that_wait_for_one_another_is_named_once(bench: Bench) -> None:
    def merge(identifier: str) -> dict[str, Any]:
        return {**MERGE, "id": identifier}

    document = {
        "nodes": [merge(name) for name in "abcdef"],
        "edges": [
            edge("e0", "a.merged_text", "b.text_inputs"),
            edge("e1", "b.merged_text", "c.text_inputs"),
            edge("e2", "c.merged_text", "a.text_inputs"),
            edge("e3", "c.merged_text", "d.text_inputs"),
            edge("e4", "e.merged_text", "e.text_inputs"),
            edge("e5", "d.merged_text", "f.text_inputs"),
        ],
    }

    assert await bench.problems(document) == {
        "$.edges[2]": "these nodes wait for one another: a → b → c → a",
        "$.edges[4]": "these nodes wait for one another: e → e",
    }


async def test_a_long_chain_and_a_long_cycle_are_checked_without_recursion(bench: Bench) -> None:
    nodes = [{**MERGE, "id": f"n{i}"} for i in range(1500)]
    chain = [edge(f"e{i}", f"n{i}.merged_text", f"n{i + 1}.text_inputs") for i in range(1499)]
    first = {**nodes[0], "inputValues": {"text_inputs": "x"}}

    assert await bench.problems({"nodes": [first, *nodes[1:]], "edges": chain}) == {}
    closed = await bench.problems(
        {"nodes": nodes, "edges": [*chain, edge("back", "n1499.merged_text", "n0.text_inputs")]}
    )
    ring = " → ".join(f"n{i}" for i in range(10))
    assert closed == {"$.edges[1499]": f"these nodes wait for one another: {ring} → 1,490 more → n0"}


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no file"), ("{", "is not JSON: line 1"), ("[]", "must hold a JSON object")],
)
def test_the_command_refuses_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, message: str
) -> None:
    path = tmp_path / "w.json"
    if content is not None:
        path.write_text(content)

    assert tavern(["workflow", "check", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_workflows_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "tavern.yaml").write_text("name: test\n")
    (tmp_path / "workflows" / "mine.json").write_text('{"name": "Mine"}')
    monkeypatch.chdir(tmp_path)

    assert tavern(["workflow", "list", "--json"]) == 0
    listed = {item["id"]: item for item in json.loads(capsys.readouterr().out)}

    assert (listed["mine"]["name"], listed["mine"]["source"]) == ("Mine", "project")
