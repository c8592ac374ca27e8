"""Groups: a workflow inside another one, by reference, laid out flat."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bench import Bench, give, group, output, slot, workflow
from run_cases import case, check

from tavern_host import InvalidInput
from tavern_host.contracts.workflows import Workflow

pytestmark = pytest.mark.asyncio(loop_scope="module")
IN, OUT = "core:GroupInput", "core:GroupOutput"
INTEGER = slot("INTEGER")


def plus(number: int, **more: Any) -> Workflow:
    """Return a group that adds a number."""
    return workflow(
        {"in": IN, "add": {"type": "Add", "inputValues": {"b": number}}, "out": OUT},
        "in.n > add.a, add.sum > out.n",
        interfaceInputs={"n": slot("INTEGER", **more)},
        interfaceOutputs={"n": INTEGER},
    )


def passing(key: str, interface: dict[str, Any]) -> Workflow:
    """Return a group that gives what it is given under the same name."""
    edges = f"in.{key} > take.value", f"take.value > out.{key}"
    nodes = {"in": IN, "take": "Take", "out": OUT}
    return workflow(nodes, *edges, interfaceInputs={key: interface}, interfaceOutputs={key: slot()})


GROUPS = {
    "ten": plus(10),
    "seven": plus(0, config={"default": 7}),
    "twenty": workflow({"in": IN, "one": group("ten"), "two": group("ten"), "out": OUT},
        "in.n > one.n, one.n > two.n, two.n > out.n",
        interfaceInputs={"n": INTEGER}, interfaceOutputs={"n": INTEGER}),
    "both": workflow({"in": IN, "p": "Add", "q": {"type": "Add", "inputValues": {"b": 100}}, "out": OUT},
        "in.n > p.a, in.n > q.a, p.sum > out.p, q.sum > out.q",
        interfaceInputs={"n": INTEGER}, interfaceOutputs={"p": INTEGER, "q": INTEGER}),
    "text": passing("text", slot("STRING")),
    "listing": passing("all", slot(multi=True)),
    "bad": workflow({"boom": "Boom", "out": OUT}, "boom > out.x", interfaceOutputs={"x": slot()}),
}  # fmt: skip
CASES = [
    case("instances of a group have nodes of their own",
        {"a": give(1, "INTEGER"), "x": group("ten"), "y": group("ten"), "z": group("ten", n=5)}, "a > x.n, x.n > y.n",
        gives={"x.n": 11, "x/add.sum": 11, "y.n": 21, "y/add.sum": 21, "z.n": 15, "z/add.sum": 15}),
    case("a group lies in a group", {"a": give(1, "INTEGER"), "x": group("twenty")}, "a > x.n",
        gives={"x.n": 21, "x/two/add.sum": 21, "x/one.n": 11}),
    case("one input of a group feeds several nodes inside", {"x": group("both", n=1)}, gives={"x.p": 2, "x.q": 101}),
    case("an edge comes before an instance's value and that before the interface's default",
        {"a": give(1, "INTEGER"), "edge": group("seven", n=2), "value": group("seven", n=2), "plain": group("seven")},
        "a > edge.n", gives={"edge.n": 1, "value.n": 2, "plain.n": 7}),
    case("values are converted at the border", {"a": give(3, "INTEGER"), "x": group("text")}, "a > x.text",
        gives={"x.text": "3"}),
    case("several edges go into a multi input in their order",
        {"a": give("a"), "b": give("b"), "x": {**group("listing"), "inputConnectionOrders": {"all": ["e1", "e0"]}}},
        "a > x.all__0, b > x.all__1", gives={"x.all": ["b", "a"]}),
    case("a failure inside names the inner node", {"g": group("bad"), "after": "Take"}, "g.x > after", failed="g/boom",
        skipped="g after", error="node g/boom (boom): ValueError: boom"),
]  # fmt: skip


async def test_groups_run_as_if_laid_out_flat(shared: Bench) -> None:
    for name, document in GROUPS.items():
        await shared.workflows.save(name, document)
    await check(shared, CASES)


async def test_one_output_does_not_wait_for_the_others(shared: Bench) -> None:
    slow = workflow(
        {"quick": give(1, "INTEGER"), "never": "Hang", "out": OUT},
        "quick > out.quick, never > out.never",
        interfaceOutputs={"quick": INTEGER, "never": slot()},
    )
    await shared.workflows.save("slow", slow)
    run_id = await shared.start(workflow({"x": group("slow"), "after": "Add"}, "x.quick > after.a"))

    await shared.until("NODE_COMPLETE", nodeId="after", output={"sum": 2})

    run = await shared.interrupted(run_id)
    assert output(run, "after", "sum") == 2
    assert run.nodes["x/never"].status == "interrupted"


@pytest.mark.parametrize(("reference", "message"), [("nowhere", "nowhere"), ("itself", "itself")])
async def test_groups_that_cannot_be_are_refused(shared: Bench, reference: str, message: str) -> None:
    await shared.workflows.save("itself", workflow({"again": group("itself")}))

    with pytest.raises(InvalidInput, match=message):
        await shared.run(workflow({"x": group(reference)}))


async def test_a_changed_group_is_run_as_it_is_now(shared: Bench) -> None:
    for number, expected in ((10, 11), (20, 21)):
        await shared.workflows.save("changing", plus(number))
        assert output(await shared.run(workflow({"x": group("changing", n=1)})), "x", "n") == expected
