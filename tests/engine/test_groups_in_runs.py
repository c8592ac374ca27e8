"""Groups: a workflow inside another one, by reference, laid out flat."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bench import Bench, OpenHost, give, output, slot, workflow

from tavern_host import WORKFLOW_MANAGER, InvalidInput
from tavern_host.contracts.workflows import Workflow

IN, OUT, GROUP = "core:GroupInput", "core:GroupOutput", "core:NodeGroup"


def group(reference: str, **values: Any) -> dict[str, Any]:
    """Return an instance of a group."""
    return {"type": GROUP, "configValues": {"referencedWorkflowId": reference}, "inputValues": values}


def plus(number: int) -> Workflow:
    """Return a group that adds a number."""
    return workflow(
        {"in": IN, "add": {"type": "Add", "inputValues": {"b": number}}, "out": OUT},
        "in.n > add.a",
        "add.sum > out.n",
        interfaceInputs={"n": slot("INTEGER")},
        interfaceOutputs={"n": slot("INTEGER")},
    )


async def store(bench: Bench, **workflows: Workflow) -> None:
    for name, document in workflows.items():
        await bench.host.services.get(WORKFLOW_MANAGER).save(name, document)


async def test_instances_of_one_group_stand_next_to_each_other_with_nodes_of_their_own(bench: Bench) -> None:
    await store(bench, ten=plus(10))
    document = workflow(
        {"a": give(1, "INTEGER"), "x": group("ten"), "y": group("ten"), "z": group("ten", n=5)},
        "a.value > x.n",
        "x.n > y.n",
    )

    run = await bench.run(document)

    assert run.status == "complete"
    assert [output(run, f"{name}/add", "sum") for name in "xyz"] == [11, 21, 15]
    assert [output(run, name, "n") for name in "xyz"] == [11, 21, 15]


async def test_a_group_lies_in_a_group(bench: Bench) -> None:
    twice = workflow(
        {"in": IN, "one": group("ten"), "two": group("ten"), "out": OUT},
        "in.n > one.n",
        "one.n > two.n",
        "two.n > out.n",
        interfaceInputs={"n": slot("INTEGER")},
        interfaceOutputs={"n": slot("INTEGER")},
    )
    await store(bench, ten=plus(10), twenty=twice)

    run = await bench.run(workflow({"a": give(1, "INTEGER"), "x": group("twenty")}, "a.value > x.n"))

    assert output(run, "x", "n") == 21
    assert output(run, "x/two/add", "sum") == 21
    assert output(run, "x/one", "n") == 11


async def test_one_input_of_a_group_feeds_several_nodes_inside(bench: Bench) -> None:
    both = workflow(
        {"in": IN, "p": "Add", "q": {"type": "Add", "inputValues": {"b": 100}}, "out": OUT},
        "in.n > p.a",
        "in.n > q.a",
        "p.sum > out.p",
        "q.sum > out.q",
        interfaceInputs={"n": slot("INTEGER")},
        interfaceOutputs={"p": slot("INTEGER"), "q": slot("INTEGER")},
    )
    await store(bench, both=both)

    run = await bench.run(workflow({"x": group("both", n=1)}))

    assert (output(run, "x", "p"), output(run, "x", "q")) == (2, 101)


async def test_an_instances_value_comes_before_the_default_of_the_interface_and_an_edge_before_both(
    bench: Bench,
) -> None:
    document = plus(0)
    inputs = {"n": document.interface_inputs["n"].model_copy(update={"config": {"default": 7}})}
    await store(bench, same=document.model_copy(update={"interface_inputs": inputs}))

    run = await bench.run(
        workflow(
            {"a": give(1, "INTEGER"), "edge": group("same", n=2), "value": group("same", n=2), "plain": group("same")},
            "a.value > edge.n",
        )
    )

    assert [output(run, name, "n") for name in ("edge", "value", "plain")] == [1, 2, 7]


async def test_values_are_converted_at_the_border_of_a_group(bench: Bench) -> None:
    shout = workflow(
        {"in": IN, "take": "Take", "out": OUT},
        "in.text > take.value",
        "take.value > out.text",
        interfaceInputs={"text": slot("STRING")},
        interfaceOutputs={"text": slot()},
    )
    await store(bench, shout=shout)

    run = await bench.run(workflow({"a": give(3, "INTEGER"), "x": group("shout")}, "a.value > x.text"))

    assert output(run, "x", "text") == "3"


async def test_several_edges_go_into_a_multi_input_of_a_group_in_their_order(bench: Bench) -> None:
    listing = workflow(
        {"in": IN, "take": "Take", "out": OUT},
        "in.all > take.value",
        "take.value > out.all",
        interfaceInputs={"all": slot(multi=True)},
        interfaceOutputs={"all": slot()},
    )
    await store(bench, listing=listing)
    instance = {**group("listing"), "inputConnectionOrders": {"all": ["e1", "e0"]}}

    run = await bench.run(
        workflow({"a": give("a"), "b": give("b"), "x": instance}, "a.value > x.all__0", "b.value > x.all__1")
    )

    assert output(run, "x", "all") == ["b", "a"]


async def test_what_needs_one_output_of_a_group_does_not_wait_for_the_others(open_host: OpenHost) -> None:
    async with open_host() as bench:
        slow = workflow(
            {"quick": give(1, "INTEGER"), "never": "Hang", "out": OUT},
            "quick.value > out.quick",
            "never.value > out.never",
            interfaceOutputs={"quick": slot("INTEGER"), "never": slot()},
        )
        await store(bench, slow=slow)
        run_id = await bench.start(workflow({"x": group("slow"), "after": "Add"}, "x.quick > after.a"))

        await bench.until("NODE_COMPLETE", nodeId="after", output={"sum": 2})

        await bench.engine.interrupt(run_id)
        run = await bench.engine.wait(run_id)
        assert output(run, "after", "sum") == 2
        assert run.nodes["x/never"].status == "interrupted"


async def test_a_failure_inside_is_the_runs_with_the_inner_nodes_id(bench: Bench) -> None:
    bad = workflow({"boom": "Boom", "out": OUT}, "boom.value > out.x", interfaceOutputs={"x": slot()})
    await store(bench, bad=bad)

    run = await bench.run(workflow({"g": group("bad"), "after": "Take"}, "g.x > after.value"))

    assert run.status == "error"
    assert run.error is not None and run.error.details["node"] == "g/boom"
    assert run.nodes["after"].status == "skipped"
    assert run.nodes["g"].status == "skipped"


@pytest.mark.parametrize(
    ("reference", "message"),
    [("nowhere", "nowhere"), ("itself", "itself"), (None, "referencedWorkflowId")],
)
async def test_groups_that_cannot_be_are_refused(bench: Bench, reference: str | None, message: str) -> None:
    await store(bench, itself=workflow({"again": group("itself")}))
    config = {} if reference is None else {"referencedWorkflowId": reference}

    with pytest.raises(InvalidInput, match=message):
        await bench.run(workflow({"x": {"type": GROUP, "configValues": config}}))


async def test_a_group_that_was_changed_is_run_as_it_is_now(bench: Bench) -> None:
    await store(bench, ten=plus(10))
    document = workflow({"x": group("ten", n=1)})
    first = await bench.run(document)

    await store(bench, ten=plus(20))
    second = await bench.run(document)

    assert (output(first, "x", "n"), output(second, "x", "n")) == (11, 21)
