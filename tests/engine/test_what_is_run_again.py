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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "notes"


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

    assert notes(file) == ["new"] * 3
    assert output(changed, "d", "list") == ["new", "new"]
    assert [n for n, s in changed.nodes.items() if s.cached] == ["e"]


async def test_each_interface_input_reruns_what_follows_it(shared: Bench, file: Path) -> None:
    document = workflow(
        {"in": IN, "x": flow("Note", file=file), "y": flow("Note", file=file)},
        "in.x > x, in.y > y",
        interfaceInputs={"x": slot("STRING"), "y": slot("STRING")},
    )
    for x in ("x1", "x2", "x1"):
        assert output(await shared.run(document, x=x, y="y1"), "x") == x

    assert sorted(notes(file)) == ["x1", "x2", "y1"]


async def test_uncached_nodes_and_what_follows_run_each_time(shared: Bench, tmp_path: Path) -> None:
    always, after, before = tmp_path / "always", tmp_path / "after", tmp_path / "before"
    document = workflow(
        {
            "before": flow("Note", file=before, value="v"),
            "always": flow("NoteAlways", file=always),
            "after": flow("Note", file=after),
        },
        "before > always > after",
    )
    for _ in range(2):
        await shared.run(document)

    assert [len(notes(file)) for file in (before, always, after)] == [1, 2, 2]


@pytest.mark.parametrize(("beside", "times"), [("Note", 1), ("NoteAlways", 3)])
async def test_nodes_beside_a_changed_one_are_cached_as_ever(
    shared: Bench, tmp_path: Path, beside: str, times: int
) -> None:
    kept, changed = tmp_path / "kept", tmp_path / "changed"
    for value in ("one", "two", "two"):
        nodes = {
            "beside": flow(beside, file=kept, value="kept"),
            "n": flow("Note", file=changed, value=value),
            "both": flow("Gather"),
        }
        run = await shared.run(workflow(nodes, "beside > both.values__0, n > both.values__1"))
        assert output(run, "both", "list") == ["kept", value]

    assert len(notes(kept)) == times
    assert notes(changed) == ["one", "two"]


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
    document = workflow(
        {**diamond_nodes(file), "out": OUT},
        "a > b, a > c, a > out.a, c > out.c",
        interfaceOutputs={"a": slot(), "c": slot()},
    )
    run = await shared.engine.run(RunRequest(workflow=document, targets=["b"]))

    assert notes(file) == ["a", "a"]
    assert (run.status, output(run, "b"), run.outputs) == ("complete", "a", {"a": "a"})
    assert {n for n, s in run.nodes.items() if s.status == "skipped"} >= {"c", "e"}
    with pytest.raises(InvalidInput, match="no node 'bb'"):
        await shared.engine.run(RunRequest(workflow=document, targets=["bb"]))


def diamond_nodes(file: Path) -> dict[str, Any]:
    """Return three nodes of which two follow the first, and one beside them."""
    note = flow("Note", file=file)
    return {"a": flow("Note", file=file, value="a"), "b": note, "c": note, "e": flow("Note", file=file, value="e")}


async def test_a_target_may_be_inside_of_a_group(shared: Bench, file: Path) -> None:
    await shared.workflows.save("inner", diamond(file))
    run = await shared.engine.run(RunRequest(workflow=workflow({"g": group("inner")}), targets=["g/c"]))

    assert output(run, "g/c") == "a"
    assert run.nodes["g/b"].status == "skipped"
