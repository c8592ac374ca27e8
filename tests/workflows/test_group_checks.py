"""What `check` says of groups: what they refer to, how they nest, and what is wrong inside of them."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from workflows_bench import Bench, edge, group

from tavern_host.contracts.workflows import Workflow

TEXT = {"id": "text", "type": "core:Text", "inputValues": {"text": "x"}}
REFERENCE = "$.nodes[0].configValues.referencedWorkflowId"
UPPER: dict[str, Any] = {
    "nodes": [
        {"id": "in", "type": "core:GroupInput"},
        {"id": "merge", "type": "core:TextMerge"},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [edge("e1", "in.words", "merge.text_inputs"), edge("e2", "merge.merged_text", "out.text")],
    "interfaceInputs": {"words": {"dataFlowType": "STRING", "required": True}},
    "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
}


def chain_of_groups(bench: Bench, depth: int, *, width: int = 1) -> None:
    """Store `g1` … so that each stands on the next, `width` times; the last has one node."""
    for place in range(1, depth):
        bench.write(f"g{place}.json", nodes=[group(f"n{i}", f"g{place + 1}") for i in range(width)])
    bench.write(f"g{depth}.json", nodes=[TEXT])


async def test_a_group_has_the_slots_of_the_workflow_it_stands_for(bench: Bench) -> None:
    bench.write("upper.json", UPPER)
    document = {
        "nodes": [TEXT, group("one", "upper"), group("two", "upper")],
        "edges": [edge("e0", "text.text", "one.words"), edge("e1", "one.text", "two.words")],
    }
    assert await bench.problems(document) == {}

    document["edges"] = [edge("e0", "text.txt", "one.word"), edge("e1", "one.words", "two.words")]
    assert await bench.problems(document) == {
        "$.edges[0].sourceHandle": "core:Text has no output 'txt' (did you mean text?)",
        "$.edges[0].targetHandle": "core:NodeGroup has no input 'word' (did you mean words?)",
        "$.edges[1].sourceHandle": "core:NodeGroup has no output 'words'",
        "$.nodes[1].inputValues.words": "the required input 'words' has neither an edge, a value nor a default",
    }


async def test_what_a_group_is_given_must_go_into_its_interface(bench: Bench) -> None:
    bench.write("upper.json", UPPER)
    node = {**group("g", "upper"), "inputValues": {"words": ["a"]}}

    assert await bench.problems({"nodes": [node]}) == {
        "$.nodes[0].inputValues.words": "warning: expected text, got an array"
    }


async def test_a_group_refers_to_a_workflow_that_can_be_read(bench: Bench) -> None:
    rows: list[Any] = [
        ({}, "expected the id of a workflow, got nothing"),
        ({"referencedWorkflowId": ""}, "expected the id of a workflow, got empty text"),
        ({"referencedWorkflowId": ["upper"]}, "expected the id of a workflow, got an array"),
        ({"referencedWorkflowId": "uper"}, "there is no workflow 'uper' (did you mean upper?)"),
        (
            {"referencedWorkflowId": "spoilt"},
            "the workflow 'spoilt' cannot be read: $.nodes[0].type: is missing; and 1 more",
        ),
    ]
    with Failures() as failures:
        for config, message in rows:
            with failures.row((config, message)):
                bench.write("upper.json", UPPER)
                bench.write("spoilt.json", nodes=[{"id": "n"}, {"id": "m"}])
                node = {"id": "g", "type": "core:NodeGroup", "configValues": config}

                assert await bench.problems({"nodes": [node]}) == {REFERENCE: message}


async def test_edges_at_a_group_that_is_not_there_are_not_complained_about(bench: Bench) -> None:
    document = {"nodes": [group("g", "gone"), TEXT], "edges": [edge("e", "text.text", "g.words")]}

    assert list(await bench.problems(document)) == [REFERENCE]


async def test_a_workflow_cannot_stand_on_itself(bench: Bench) -> None:
    assert await bench.problems({"id": "w", "nodes": [group("g", "w")]}) == {
        REFERENCE: "groups stand for one another without end: w → w"
    }


async def test_workflows_cannot_stand_on_one_another(bench: Bench) -> None:
    bench.write("a.json", nodes=[group("g", "b")])
    bench.write("b.json", nodes=[TEXT, group("g", "c")])
    bench.write("c.json", nodes=[group("g", "a")])
    circle = {REFERENCE: "groups stand for one another without end: a → b → c → a"}

    assert await bench.problems({"nodes": [group("g", "a")]}) == circle
    assert await bench.problems({"id": "c", "nodes": [group("g", "a")]}) == circle


async def test_a_workflow_that_is_being_changed_counts_as_it_is_now(bench: Bench) -> None:
    bench.write("a.json", nodes=[group("g", "b")])
    bench.write("b.json", nodes=[group("g", "a")])

    assert await bench.problems({"id": "b", "nodes": [TEXT]}) == {}


async def test_what_is_wrong_inside_of_a_group_is_told_at_the_group(bench: Bench) -> None:
    bench.write("inner.json", nodes=[{"id": "x", "type": "acme:Gizmo"}, {"id": "m", "type": "core:TextMerge"}])
    bench.write("outer.json", nodes=[TEXT, group("g", "inner")])
    first = "$.nodes[0].type: there is no node type 'acme:Gizmo'; and 1 more"

    assert await bench.problems({"nodes": [group("g", "inner"), group("h", "outer")]}) == {
        REFERENCE: f"the workflow 'inner' has problems: {first}",
        "$.nodes[1].configValues.referencedWorkflowId": f"the workflow 'outer' has problems: in 'inner', {first}",
    }


async def test_a_bypassed_group_may_have_problems_inside_and_needs_no_inputs(bench: Bench) -> None:
    bench.write("upper.json", {**UPPER, "nodes": [*UPPER["nodes"], {"id": "x", "type": "acme:Gizmo"}]})

    assert await bench.problems({"nodes": [{**group("g", "upper"), "bypassed": True}]}) == {
        REFERENCE: "warning: the workflow 'upper' has problems: $.nodes[3].type: there is no node type 'acme:Gizmo'"
    }


async def test_groups_nest_fifty_deep_and_no_deeper(bench: Bench) -> None:
    chain_of_groups(bench, 51)

    assert await bench.problems({"nodes": [group("g", "g2")]}) == {}
    assert await bench.problems({"nodes": [group("g", "g1")]}) == {
        REFERENCE: "groups are nested 51 deep, at most 50 are allowed"
    }


async def test_groups_that_multiply_beyond_reason_are_refused(bench: Bench) -> None:
    chain_of_groups(bench, 10, width=10)

    assert await bench.problems({"nodes": [group("g", "g1")]}) == {
        "$.nodes": ("with its groups expanded the workflow has 2,111,111,111 nodes, at most 100,000 are allowed")
    }
    assert await bench.problems({"nodes": [group("g", "g6")]}) == {}


async def test_a_long_row_of_workflows_is_followed_without_recursion(bench: Bench) -> None:
    chain_of_groups(bench, 1500)

    assert await bench.problems({"nodes": [group("g", "g1")]}) == {
        REFERENCE: "groups are nested 1500 deep, at most 50 are allowed"
    }


async def test_an_id_that_would_be_that_of_a_node_inside_of_a_group_is_refused(bench: Bench) -> None:
    bench.write("upper.json", {**UPPER, "interfaceInputs": {"words": {"dataFlowType": "STRING"}}})
    nodes = [{**group("g", "upper"), "inputValues": {"words": "x"}}, {**TEXT, "id": "g/merge"}, {**TEXT, "id": "a/b"}]

    assert await bench.problems({"nodes": nodes}) == {
        "$.nodes[1].id": "the id 'g/merge' is that of a node inside the group 'g'; choose another"
    }


# --- the closure --------------------------------------------------------------------------------------


async def test_the_closure_of_a_workflow_holds_what_it_stands_on_at_any_depth(bench: Bench) -> None:
    bench.write("a.json", nodes=[group("g", "b"), group("h", "b")])
    bench.write("b.json", nodes=[TEXT, group("g", "sample")])
    bench.write("other.json", nodes=[TEXT])
    workflow = Workflow.model_validate({"nodes": [group("g", "a"), group("h", "gone")]})

    found = await bench.manager.closure(workflow)

    assert {identifier: stored.source for identifier, stored in found.items()} == {
        "a": "project",
        "b": "project",
        "sample": "plugin:acme-samples",
    }
    assert found["b"].revision == (await bench.manager.get("b")).revision
    assert found["b"].workflow.nodes[1].config_values == {"referencedWorkflowId": "sample"}


async def test_the_closure_ends_where_workflows_stand_on_one_another_or_cannot_be_read(bench: Bench) -> None:
    bench.write("a.json", nodes=[group("g", "b"), group("h", "spoilt")])
    bench.write("b.json", nodes=[group("g", "a")])
    bench.write("spoilt.json", nodes=[{"id": "n"}])

    found = await bench.manager.closure(Workflow.model_validate({"id": "a", "nodes": [group("g", "b")]}))

    assert sorted(found) == ["a", "b"]


async def test_a_workflow_without_groups_stands_on_nothing(bench: Bench) -> None:
    assert await bench.manager.closure(Workflow.model_validate({"nodes": [TEXT]})) == {}
