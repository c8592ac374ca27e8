"""Bypassed nodes do not run: values pass them by, or empty ones are given."""

from __future__ import annotations

from typing import Any

from engine_bench import Bench, give, output, slot, workflow

OUT = "core:GroupOutput"


def bypassed(type: str, **values: Any) -> dict[str, Any]:
    return {"type": type, "inputValues": values, "bypassed": True}


async def test_a_value_of_the_same_type_passes_by(bench: Bench) -> None:
    document = workflow(
        {"a": give(5, "INTEGER"), "add": bypassed("Add", b=100), "after": "Add"}, "a.value > add.a", "add.sum > after.a"
    )

    run = await bench.run(document)

    assert output(run, "after", "sum") == 6
    assert (run.nodes["add"].status, run.nodes["add"].bypassed) == ("complete", True)
    assert run.nodes["add"].output == {"sum": 5}


async def test_a_written_value_passes_by_where_no_edge_brings_one(bench: Bench) -> None:
    run = await bench.run(workflow({"add": bypassed("Add", a=7), "after": "Add"}, "add.sum > after.a"))

    assert output(run, "after", "sum") == 8


async def test_without_a_value_the_empty_one_of_the_type_is_given(bench: Bench) -> None:
    run = await bench.run(workflow({"add": bypassed("Add", b=3), "after": "Add"}, "add.sum > after.a"))

    assert run.status == "complete"
    assert output(run, "after", "sum") == 1


async def test_a_bypassed_node_that_would_fail_does_not(bench: Bench) -> None:
    document = workflow(
        {"a": give("x"), "boom": bypassed("Boom"), "after": "Take"}, "a.value > boom.value", "boom.value > after.value"
    )

    run = await bench.run(document)

    assert (run.status, output(run, "after")) == ("complete", "x")


async def test_a_multi_input_passes_its_list_into_a_list_output(bench: Bench) -> None:
    document = workflow(
        {"a": give(1), "b": give(2), "all": bypassed("Collect"), "after": "Take"},
        "a.value > all.values__0",
        "b.value > all.values__1",
        "all.list > after.value",
    )

    assert output(await bench.run(document), "after") == [1, 2]


async def test_clients_are_told_what_was_given_instead(bench: Bench) -> None:
    watching = bench.host.events.subscribe("NODE_BYPASSED")
    run = await bench.run(
        workflow({"a": give(5, "INTEGER"), "add": bypassed("Add")}, "a.value > add.a"),
    )
    await watching.close()

    (told,) = [event.payload async for event in watching]  # type: ignore[union-attr]
    assert told == {"promptId": run.id, "nodeId": "add", "pseudoOutputs": {"sum": 5}}


async def test_a_bypassed_group_passes_values_by_its_interface(bench: Bench) -> None:
    from tavern_host import WORKFLOW_MANAGER

    inner = workflow(
        {"in": "core:GroupInput", "boom": "Boom", "out": OUT},
        "in.n > boom.value",
        "boom.value > out.n",
        interfaceInputs={"n": slot("INTEGER")},
        interfaceOutputs={"n": slot("INTEGER")},
    )
    await bench.host.services.get(WORKFLOW_MANAGER).save("inner", inner)
    group = {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}, "bypassed": True}

    run = await bench.run(
        workflow({"a": give(4, "INTEGER"), "g": group, "after": "Add"}, "a.value > g.n", "g.n > after.a")
    )

    assert (run.status, output(run, "after", "sum")) == ("complete", 5)
