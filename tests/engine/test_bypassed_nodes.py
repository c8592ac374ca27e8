"""Bypassed nodes do not run: values pass them by, or empty ones are given."""

from __future__ import annotations

from typing import Any

import pytest
from engine_bench import Bench, give, group, slot, workflow
from run_cases import case, check

pytestmark = pytest.mark.asyncio(loop_scope="module")


def bypassed(type: str, **values: Any) -> dict[str, Any]:
    return {"type": type, "inputValues": values, "bypassed": True}


CASES = [
    case("a value of the same type passes by", {"a": give(5, "INTEGER"), "add": bypassed("Add", b=100), "after": "Add"},
        "a > add.a, add.sum > after.a", gives={"add.sum": 5, "after.sum": 6}),
    case("a written value passes by", {"add": bypassed("Add", a=7), "after": "Add"}, "add.sum > after.a",
        gives={"after.sum": 8}),
    case("without a value the empty one of the type is given", {"add": bypassed("Add", b=3), "after": "Add"},
        "add.sum > after.a", gives={"after.sum": 1}),
    case("what would fail does not", {"a": give("x"), "boom": bypassed("Boom"), "after": "Take"}, "a > boom > after",
        gives={"after": "x"}),
    case("a multi input passes its list on", {"a": give(1), "b": give(2), "all": bypassed("Collect"), "after": "Take"},
        "a > all.values__0, b > all.values__1, all.list > after", gives={"after": [1, 2]}),
    case("a muted node gives empty values although it was given some",
        {"file": bypassed("core:WriteFile", path="notes.txt", content="x"), "after": "Take"}, "file.path > after",
        gives={"file.path": "", "after": ""}),
    case("a group passes values by its interface",
        {"a": give(4, "INTEGER"), "g": {**group("inner"), "bypassed": True}, "after": "Add"}, "a > g.n, g.n > after.a",
        gives={"after.sum": 5}),
]  # fmt: skip


async def test_values_pass_by_bypassed_nodes(shared: Bench) -> None:
    interface = {"n": slot("INTEGER")}
    inner = workflow(
        {"in": "core:GroupInput", "boom": "Boom", "out": "core:GroupOutput"},
        "in.n > boom > out.n",
        interfaceInputs=interface,
        interfaceOutputs=interface,
    )
    await shared.workflows.save("inner", inner)
    await check(shared, CASES)


async def test_clients_are_told_what_was_given_instead(shared: Bench) -> None:
    run = await shared.run(workflow({"a": give(5, "INTEGER"), "add": bypassed("Add")}, "a > add.a"))

    assert (run.nodes["add"].status, run.nodes["add"].bypassed) == ("complete", True)
    (told,) = await shared.events(run, "NODE_BYPASSED")
    assert told.payload == {"promptId": run.id, "nodeId": "add", "pseudoOutputs": {"sum": 5}}
