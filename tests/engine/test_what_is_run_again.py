"""Caching and partial runs: what is run again when something changed, and what is run at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, OpenHost, give, group, output, slot, workflow
from loops_bench import flow, notes

from tavern_host import InvalidInput
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]
IN, OUT = "core:GroupInput", "core:GroupOutput"


def diamond(file: Path, **values: Any) -> Workflow:
    """Return a → b, c → d and beside them e; each notes what it was given."""
    return workflow(
        {
            "a": flow("Note", file=file, value=values.get("a", "a")),
            "b": flow("Note", file=file),
            "c": flow("Note", file=file),
            "d": flow("Gather"),
            "e": flow("Note", file=file, value=values.get("e", "e")),
        },
        "a > b, a > c, b > d.values__0, c > d.values__1",
    )


async def test_nothing_is_run_again_where_nothing_changed(shared: Bench, file: Path) -> None:
    first, second = await shared.run(diamond(file)), await shared.run(diamond(file))

    assert notes(file).count("a") == 3 and len(notes(file)) == 4
    assert not any(state.cached for state in first.nodes.values())
    assert all(state.cached for state in second.nodes.values())
    assert {n: s.output for n, s in first.nodes.items()} == {n: s.output for n, s in second.nodes.items()}
    await shared.engine.run(RunRequest(workflow=diamond(file), use_cache=False))
    assert len(notes(file)) == 8


async def test_a_changed_value_reruns_what_comes_after_it(shared: Bench, file: Path) -> None:
    await shared.run(diamond(file))
    file.unlink()
    changed = await shared.run(diamond(file, a="new"))

    assert (notes(file), output(changed, "d", "list")) == (["new"] * 3, ["new", "new"])
    assert [n for n, s in changed.nodes.items() if s.cached] == ["e"]
    file.unlink()
    inputs = {"interfaceInputs": {"x": slot("STRING"), "y": slot("STRING")}}
    nodes = {"in": IN, "x": flow("Note", file=file), "y": flow("Note", file=file)}
    for x in ("x1", "x2", "x1"):
        assert output(await shared.run(workflow(nodes, "in.x > x, in.y > y", **inputs), x=x, y="y1"), "x") == x
    assert sorted(notes(file)) == ["x1", "x2", "y1"]


async def test_uncached_nodes_and_what_follows_run_each_time(shared: Bench, tmp_path: Path) -> None:
    """Those before and beside them are cached as ever."""
    files = {name: tmp_path / name for name in ("before", "always", "after", "beside", "changed")}
    for value, times in (("one", [1, 1, 1, 1, 1]), ("two", [1, 2, 2, 1, 2]), ("two", [1, 3, 3, 1, 2])):
        nodes = {name: flow("NoteAlways" if name == "always" else "Note", file=file) for name, file in files.items()}
        nodes["before"] = flow("Note", file=files["before"], value="v")
        nodes["beside"] = flow("Note", file=files["beside"], value="kept")
        nodes["changed"] = flow("Note", file=files["changed"], value=value)
        document = workflow(
            {**nodes, "all": flow("Gather")},
            "before > always > after",
            *(f"{name} > all.values__{place}" for place, name in enumerate(("after", "beside", "changed"))),
        )
        assert output(await shared.run(document), "all", "list") == ["v", "kept", value]
        assert [len(notes(file)) for file in files.values()] == times


async def test_a_failure_is_not_cached(shared: Bench, file: Path) -> None:
    document = workflow({"f": flow("FailTimes", file=file, times=1, value="v")})
    assert [(await shared.run(document)).status for _ in range(2)] == ["error", "complete"]


async def test_a_node_that_changes_its_input_spoils_no_run(shared: Bench) -> None:
    """Neither the run in which the list was made nor one that gets it from the cache."""
    for item in "bcd":
        nodes = {"list": give(["a"], "ARRAY"), "append": flow("AppendInPlace", item=item)}
        run = await shared.run(workflow(nodes, "list > append.items"))
        assert output(run, "append", "list") == ["a", item]


async def test_a_cache_without_room_keeps_nothing(open_host: OpenHost, file: Path) -> None:
    async with open_host("acme_flow", settings={"extensions.tavern-engine.cacheMegabytes": 0}) as bench:
        await bench.run(diamond(file))
        await bench.run(diamond(file))

    assert len(notes(file)) == 8


async def test_uncached_texts_take_no_room_from_others(open_host: OpenHost, tmp_path: Path) -> None:
    """Several hundred kilobytes each time, of which a cache of one megabyte keeps none."""
    known, always = tmp_path / "known", tmp_path / "always"
    never = flow("NoteAlways", file=always, value="x" * 300_000)
    async with open_host("acme_flow", settings={"extensions.tavern-engine.cacheMegabytes": 1}) as bench:
        for number in range(6):
            nodes = {"known": flow("Note", file=known, value=1), "new": give(number), "never": never, "after": "Take"}
            await bench.run(workflow(nodes, "never > after"))

    assert notes(known) == ["1"]


# --- partial runs ---------------------------------------------------------------------------------


async def test_only_what_a_target_needs_is_run(shared: Bench, file: Path) -> None:
    note, first = flow("Note", file=file), flow("Note", file=file, value="a")
    nodes = {"a": first, "b": note, "c": note, "e": flow("Note", file=file, value="e"), "out": OUT}
    slots = {"interfaceOutputs": {"a": slot(), "c": slot()}}
    document = workflow(nodes, "a > b, a > c > out.c, a > out.a", **slots)
    run = await shared.engine.run(RunRequest(workflow=document, targets=["b"]))

    assert notes(file) == ["a", "a"]
    assert (run.status, output(run, "b"), run.outputs) == ("complete", "a", {"a": "a"})
    assert {n for n, s in run.nodes.items() if s.status == "skipped"} >= {"c", "e"}
    with pytest.raises(InvalidInput, match="no node 'bb'"):
        await shared.engine.run(RunRequest(workflow=document, targets=["bb"]))
    await shared.workflows.save("inner", diamond(file))
    run = await shared.engine.run(RunRequest(workflow=workflow({"g": group("inner")}), targets=["g/c"]))
    assert (output(run, "g/c"), run.nodes["g/b"].status) == ("a", "skipped")
