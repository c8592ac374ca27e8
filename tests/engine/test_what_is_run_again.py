"""Caching and partial runs: what is run again when something changed, and what is run at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_bench import OpenHost, give, output, slot, workflow
from loops_bench import flow, notes

from tavern_host import InvalidInput
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow

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
        "a.value > b.value",
        "a.value > c.value",
        "b.value > d.values__0",
        "c.value > d.values__1",
    )


async def test_nothing_is_run_again_where_nothing_changed(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_flow") as bench:
        first = await bench.run(diamond(file))
        second = await bench.run(diamond(file))

    assert notes(file).count("a") == 3 and len(notes(file)) == 4
    assert not any(state.cached for state in first.nodes.values())
    assert all(state.cached for state in second.nodes.values())
    assert {n: s.output for n, s in first.nodes.items()} == {n: s.output for n, s in second.nodes.items()}


async def test_a_changed_value_runs_what_comes_after_it_and_nothing_else(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_flow") as bench:
        await bench.run(diamond(file))
        file.unlink()
        changed = await bench.run(diamond(file, a="new"))

    assert notes(file) == ["new"] * 3
    assert output(changed, "d", "list") == ["new", "new"]
    assert [n for n, s in changed.nodes.items() if s.cached] == ["e"]


async def test_a_changed_interface_input_leaves_what_follows_the_others_alone(
    open_host: OpenHost, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    document = workflow(
        {"in": IN, "x": flow("Note", file=file), "y": flow("Note", file=file)},
        "in.x > x.value",
        "in.y > y.value",
        interfaceInputs={"x": slot("STRING"), "y": slot("STRING")},
    )
    async with open_host("acme_flow") as bench:
        await bench.run(document, x="x1", y="y1")
        await bench.run(document, x="x2", y="y1")

    assert sorted(notes(file)) == ["x1", "x2", "y1"]


async def test_what_was_given_before_is_known_again(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_flow") as bench:
        for value in ("one", "two", "one", "two"):
            run = await bench.run(workflow({"n": flow("Note", file=file, value=value)}))
            assert output(run, "n") == value

    assert notes(file) == ["one", "two"]


async def test_a_node_that_is_never_cached_runs_each_time_and_so_does_what_follows(
    open_host: OpenHost, tmp_path: Path
) -> None:
    always, after, before = tmp_path / "always", tmp_path / "after", tmp_path / "before"
    document = workflow(
        {
            "before": flow("Note", file=before, value="v"),
            "always": flow("NoteAlways", file=always),
            "after": flow("Note", file=after),
        },
        "before.value > always.value",
        "always.value > after.value",
    )
    async with open_host("acme_flow") as bench:
        await bench.run(document)
        await bench.run(document)

    assert [len(notes(file)) for file in (before, always, after)] == [1, 2, 2]


@pytest.mark.parametrize(("beside", "times"), [("Note", 1), ("NoteAlways", 3)])
async def test_what_a_changed_value_is_joined_with_is_known_or_runs_again_as_it_would_without_the_change(
    open_host: OpenHost, tmp_path: Path, beside: str, times: int
) -> None:
    kept, changed = tmp_path / "kept", tmp_path / "changed"

    def joined(value: str) -> Workflow:
        return workflow(
            {
                "beside": flow(beside, file=kept, value="kept"),
                "n": flow("Note", file=changed, value=value),
                "both": flow("Gather"),
            },
            "beside.value > both.values__0",
            "n.value > both.values__1",
        )

    async with open_host("acme_flow") as bench:
        for value in ("one", "two", "two"):
            run = await bench.run(joined(value))
            assert output(run, "both", "list") == ["kept", value]

    assert len(notes(kept)) == times
    assert notes(changed) == ["one", "two"]


async def test_a_failure_is_tried_again_the_next_time(open_host: OpenHost, tmp_path: Path) -> None:
    document = workflow({"f": flow("FailTimes", file=tmp_path / "tries", times=1, value="v")})
    async with open_host("acme_flow") as bench:
        first = await bench.run(document)
        second = await bench.run(document)

    assert (first.status, second.status) == ("error", "complete")


async def test_without_the_cache_everything_runs(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_flow") as bench:
        await bench.run(diamond(file))
        await bench.engine.run(RunRequest(workflow=diamond(file), use_cache=False))

    assert len(notes(file)) == 8


async def test_a_node_that_changes_what_it_was_given_spoils_no_later_run(open_host: OpenHost) -> None:
    document = workflow(
        {"list": give(["a"], "ARRAY"), "append": {**flow("AppendInPlace"), "inputValues": {"item": "b"}}},
        "list.value > append.items",
    )
    async with open_host("acme_flow") as bench:
        await bench.run(document)
        changed = workflow(
            {"list": give(["a"], "ARRAY"), "append": {**flow("AppendInPlace"), "inputValues": {"item": "c"}}},
            "list.value > append.items",
        )
        run = await bench.run(changed)

    assert output(run, "append", "list") == ["a", "c"]


async def test_a_cache_without_room_keeps_nothing(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    settings = {"extensions.tavern-engine.cacheMegabytes": 0}
    async with open_host("acme_flow", settings=settings) as bench:
        await bench.run(diamond(file))
        await bench.run(diamond(file))

    assert len(notes(file)) == 8


async def test_texts_that_are_never_kept_take_no_room_from_others(open_host: OpenHost, tmp_path: Path) -> None:
    """Several hundred kilobytes each time, of which a cache of one megabyte keeps none."""
    known, always = tmp_path / "known", tmp_path / "always"

    def document(number: int) -> Workflow:
        never = flow("NoteAlways", file=always, value="x" * 300_000)
        return workflow(
            {"known": flow("Note", file=known, value=1), "new": give(number), "never": never, "after": "Take"},
            "never.value > after.value",
        )

    async with open_host("acme_flow", settings={"extensions.tavern-engine.cacheMegabytes": 1}) as bench:
        for number in range(6):
            await bench.run(document(number))

    assert notes(known) == ["1"]


async def test_only_what_a_target_needs_is_run(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    async with open_host("acme_flow") as bench:
        run = await bench.engine.run(RunRequest(workflow=diamond(file), targets=["b"]))

    assert notes(file) == ["a", "a"]
    assert output(run, "b") == "a"
    assert {n for n, s in run.nodes.items() if s.status == "skipped"} == {"c", "d", "e"}
    assert run.status == "complete"


async def test_a_target_that_does_not_exist_is_refused_with_near_names(open_host: OpenHost, tmp_path: Path) -> None:
    async with open_host("acme_flow") as bench:
        with pytest.raises(InvalidInput, match="no node 'bb'"):
            await bench.engine.run(RunRequest(workflow=diamond(tmp_path / "notes"), targets=["bb"]))


async def test_a_target_may_be_inside_of_a_group(open_host: OpenHost, tmp_path: Path) -> None:
    from tavern_host import WORKFLOW_MANAGER

    file = tmp_path / "notes"
    group = {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}}
    async with open_host("acme_flow") as bench:
        await bench.host.services.get(WORKFLOW_MANAGER).save("inner", diamond(file))
        run = await bench.engine.run(RunRequest(workflow=workflow({"g": group}), targets=["g/c"]))

    assert output(run, "g/c") == "a"
    assert run.nodes["g/b"].status == "skipped"


async def test_outputs_of_the_interface_that_no_target_needs_are_absent(open_host: OpenHost, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    document = workflow(
        {"a": flow("Note", file=file, value="a"), "b": flow("Note", file=file, value="b"), "out": OUT},
        "a.value > out.a",
        "b.value > out.b",
        interfaceOutputs={"a": slot(), "b": slot()},
    )
    async with open_host("acme_flow") as bench:
        run = await bench.engine.run(RunRequest(workflow=document, targets=["a"]))

    assert run.outputs == {"a": "a"}
