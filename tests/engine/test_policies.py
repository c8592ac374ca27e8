"""What becomes of a node that fails or takes long: tries, time limits, and what follows when no try is left."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from engine_bench import Bench, OpenHost, give, output, slot, state, workflow
from loops_bench import flow, notes, policy

from tavern_host import WORKFLOW_MANAGER
from tavern_host.contracts.workflows import Workflow

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]

IN, OUT = "core:GroupInput", "core:GroupOutput"


@pytest_asyncio.fixture(loop_scope="module")
async def bench(open_host: OpenHost) -> AsyncIterator[Bench]:
    async with open_host("acme_flow") as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "notes"


# --- trying again ---------------------------------------------------------------------------------


async def test_a_node_is_tried_again_as_often_as_its_policy_says(shared: Bench, file: Path) -> None:
    document = workflow(
        {"n": policy(flow("FailTimes", file=file, times=2, value=7), retry=2), "after": "Take"}, "n.value > after.value"
    )

    run = await shared.run(document)

    assert output(run, "after") == 7
    assert (state(run, "n").attempts, len(notes(file))) == (3, 3)


async def test_a_node_whose_tries_are_used_up_fails_with_its_last_error(shared: Bench, file: Path) -> None:
    run = await shared.run(workflow({"n": policy(flow("FailTimes", file=file, times=9), retry=2)}))

    shown = state(run, "n")
    assert shown.error is not None
    assert (shown.error.message, shown.attempts, run.status) == ("ValueError: failure 3", 3, "error")


async def test_the_pause_before_a_try_doubles(shared: Bench, file: Path) -> None:
    began = time.monotonic()

    run = await shared.run(workflow({"n": policy(flow("FailTimes", file=file, times=2), retry=2, retryDelay=0.05)}))

    assert run.status == "complete"
    assert time.monotonic() - began >= 0.15


async def test_a_try_that_fails_is_in_the_log(bench: Bench, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run = await bench.run(workflow({"n": policy(flow("FailTimes", file=file), retry=1, retryDelay=0.01)}))

    expected = f"run {run.id}, node n: ValueError: failure 1; attempt 2 comes in 0.01 s"
    assert expected in [record.message for record in caplog.records]


async def test_an_interrupt_ends_the_pause_before_a_try(shared: Bench, file: Path) -> None:
    run_id = await shared.start(workflow({"n": policy(flow("FailTimes", file=file, times=9), retry=9, retryDelay=60)}))
    while not notes(file):
        await asyncio.sleep(0.01)
    began = time.monotonic()

    await shared.engine.interrupt(run_id)
    run = await shared.engine.wait(run_id)

    assert time.monotonic() - began < 5
    assert (run.status, state(run, "n").status, len(notes(file))) == ("interrupted", "interrupted", 1)


async def test_while_a_node_waits_for_its_next_try_others_go_on(bench: Bench, file: Path, tmp_path: Path) -> None:
    """The second try succeeds only after the other branch has made its file."""
    document = workflow(
        {
            "n": policy(flow("FailTimes", file=file), retry=1, retryDelay=0.3),
            "other": flow("Note", file=tmp_path / "other", value=1),
        }
    )
    run_id = await bench.start(document)
    while not notes(tmp_path / "other"):
        await asyncio.sleep(0.01)

    assert (await bench.engine.get(run_id)).status == "running"
    assert (await bench.engine.wait(run_id)).status == "complete"


async def test_a_list_that_a_try_has_changed_is_whole_in_the_next_one(shared: Bench, file: Path) -> None:
    """`AppendInPlace` changes its input, then a node after it fails: here the list is written at the node itself."""
    append = policy({"type": "acme-flow:AppendThenFail", "inputValues": {"items": [1], "file": str(file)}}, retry=1)

    assert output(await shared.run(workflow({"n": append})), "n", "list") == [1, 2]


async def test_a_node_that_cancels_its_task_and_fails_is_tried_again_all_the_same(shared: Bench, file: Path) -> None:
    document = workflow(
        {"n": policy(flow("CancelAndFail", file=file, times=2, value=1), retry=2), "after": "Take"},
        "n.value > after.value",
    )

    run = await asyncio.wait_for(shared.run(document), 10)

    assert output(run, "after") == 1


async def test_a_node_that_streams_is_tried_again_where_it_failed_before_its_first_item(
    shared: Bench, file: Path
) -> None:
    document = workflow(
        {"s": policy(flow("BreakOff", text="abc", file=file, after=0), retry=1, retryDelay=0.05), "read": flow("Read")},
        "s.letters > read.items",
    )

    run = await asyncio.wait_for(shared.run(document), 10)

    assert output(run, "read", "list") == ["a", "b", "c"]
    assert state(run, "s").attempts == 2


async def test_a_node_that_has_begun_to_stream_is_not_tried_again(shared: Bench, file: Path) -> None:
    document = workflow(
        {"s": policy(flow("BreakOff", text="abc", file=file, after=2), retry=5), "read": flow("Read")},
        "s.letters > read.items",
    )

    run = await asyncio.wait_for(shared.run(document), 10)

    assert (state(run, "s").status, state(run, "read").status, len(notes(file))) == ("error", "skipped", 1)


# --- time limits ----------------------------------------------------------------------------------


async def test_a_node_has_a_time_limit_and_is_cancelled_at_its_end(bench: Bench) -> None:
    run = await bench.run(workflow({"n": policy("Hang", timeout=0.1)}))

    error = state(run, "n").error
    assert error is not None
    assert (error.code, error.message) == ("deadline_exceeded", "it did not end within 0.1 s")
    await bench.until("ACME_RELEASED", node="n")


async def test_each_try_has_the_time_limit_for_itself(shared: Bench) -> None:
    began = time.monotonic()

    run = await shared.run(workflow({"n": policy(flow("Sleep", seconds=30), timeout=0.1, retry=2)}))

    assert 0.3 <= time.monotonic() - began < 10
    assert state(run, "n").attempts == 3


async def test_a_node_that_ends_in_time_is_not_touched(shared: Bench) -> None:
    run = await shared.run(workflow({"n": policy(flow("Sleep", seconds=0.05, value=3), timeout=30)}))

    assert output(run, "n") == 3


async def test_a_node_that_ignores_the_end_of_its_time_holds_up_nobody(
    bench: Bench, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = flow("Swallow", file=file, seconds=4)
    late = policy(node, timeout=0.1, onError="default", defaults={"value": "instead"})
    document = workflow({"n": late, "after": "Take"}, "n.value > after.value")
    began = time.monotonic()

    with caplog.at_level(logging.WARNING):
        run = await bench.run(document)

    assert time.monotonic() - began < 3
    assert output(run, "after") == "instead"
    assert "ended" not in notes(file)
    assert any("ignores that its time is over" in record.message for record in caplog.records)


async def test_a_blocking_node_is_left_behind_at_the_end_of_its_time(shared: Bench, file: Path) -> None:
    began = time.monotonic()

    run = await shared.run(workflow({"n": policy(flow("Block", file=file, seconds=1.5), timeout=0.1)}))

    assert time.monotonic() - began < 1.4
    error = state(run, "n").error
    assert error is not None and error.code == "deadline_exceeded"


async def test_a_node_that_streams_has_a_time_limit_too(shared: Bench, file: Path) -> None:
    document = workflow(
        {"slow": flow("Sleep", seconds=0), "s": policy("Hang", timeout=0.1), "l": flow("Letters", text="ab")},
    )

    run = await shared.run(document)

    assert state(run, "l").status == "complete"
    assert state(run, "s").status == "error"


# --- when no try is left --------------------------------------------------------------------------


async def test_a_node_fails_the_run_unless_its_policy_says_otherwise(shared: Bench) -> None:
    run = await shared.run(workflow({"n": policy("Boom"), "after": "Take"}, "n.value > after.value"))

    assert (run.status, state(run, "after").status) == ("error", "skipped")


async def test_default_outputs_take_the_place_of_those_that_did_not_come(shared: Bench) -> None:
    bad = policy(flow("FailAt", at=0, value=0), onError="default", defaults={"value": [1, {"a": 2}]})
    run = await shared.run(workflow({"n": bad, "after": "Take"}, "n.value > after.value"))

    assert (run.status, run.error) == ("complete", None)
    assert output(run, "after") == [1, {"a": 2}]
    shown = state(run, "n")
    assert shown.status == "error" and shown.error is not None
    assert shown.output == {"value": [1, {"a": 2}]}


async def test_outputs_without_a_default_are_the_empty_value_of_their_type(shared: Bench) -> None:
    bad = policy("Add", onError="default")
    run = await shared.run(
        workflow({"text": give("x"), "n": bad, "after": "Take"}, "text.value > n.a", "n.sum > after.value")
    )

    assert output(run, "after") == 0


async def test_defaults_have_the_type_of_their_slot(shared: Bench) -> None:
    bad = policy(flow("Less", a=1), onError="default", defaults={"value": True})
    ints = policy(flow("Add"), onError="default", defaults={"sum": 3.0})
    document = workflow(
        {"t": give([]), "n": bad, "i": ints, "a": "Take", "b": "Take"},
        "t.value > n.b", "t.value > i.a", "n.value > a.value", "i.sum > b.value",
    )  # fmt: skip

    run = await shared.run(document)

    assert (output(run, "a"), output(run, "b")) == (True, 3)
    assert isinstance(output(run, "b"), int)


async def test_a_default_that_a_node_changes_is_whole_in_the_next_run(shared: Bench) -> None:
    bad = policy(flow("FailAt", at=0, value=0), onError="default", defaults={"value": [1]})
    document = workflow({"n": bad, "append": flow("AppendInPlace", item=2)}, "n.value > append.items")

    for _ in range(2):
        assert output(await shared.run(document), "append", "list") == [1, 2]


def routed(bad: dict[str, Any]) -> Workflow:
    return workflow(
        {"n": policy(bad, onError="route"), "fine": "Take", "beyond": "Take", "handler": "Take", "m": flow("Merge")},
        "n.value > fine.value",
        "fine.value > beyond.value",
        "n.error > handler.value",
        "beyond.value > m.values",
        "handler.value > m.values",
    )


async def test_an_error_goes_out_by_the_error_output_and_the_others_are_branches_not_taken(shared: Bench) -> None:
    run = await shared.run(routed({"type": "Boom", "inputValues": {"message": "no luck"}}))

    assert (run.status, run.error) == ("complete", None)
    assert {state(run, name).status for name in ("fine", "beyond")} == {"skipped"}
    told = output(run, "handler")
    assert (told["code"], told["message"], told["plugin"]) == ("plugin_error", "ValueError: no luck", "acme-nodes")
    assert output(run, "m") == told


async def test_without_an_error_the_error_output_is_a_branch_that_was_not_taken(shared: Bench) -> None:
    run = await shared.run(routed(flow("Sleep", seconds=0, value=5)))

    assert (output(run, "m"), state(run, "handler").status) == (5, "skipped")


async def test_an_error_that_goes_nowhere_is_shown_at_its_node_and_the_run_completes(shared: Bench) -> None:
    run = await shared.run(workflow({"n": policy("Boom", onError="route"), "after": "Take"}, "n.value > after.value"))

    assert (run.status, state(run, "after").status) == ("complete", "skipped")
    assert state(run, "n").error is not None


async def test_inputs_that_do_not_fit_are_an_error_that_a_policy_takes_care_of_too(shared: Bench) -> None:
    bad = policy("Add", onError="default", defaults={"sum": -1})
    document = workflow({"text": give("x"), "n": bad, "after": "Take"}, "text.value > n.a", "n.sum > after.value")

    assert output(await shared.run(document), "after") == -1


async def test_readers_of_a_stream_that_breaks_off_are_skipped_where_its_branch_is(shared: Bench, file: Path) -> None:
    document = workflow(
        {
            "s": policy(flow("BreakOff", text="abc", file=file, after=2), onError="skip_branch"),
            "read": flow("Read"),
            "one": give(1),
            "m": flow("Merge"),
        },
        "s.letters > read.items",
        "read.list > m.values",
        "one.value > m.values",
    )

    run = await asyncio.wait_for(shared.run(document), 10)

    assert (run.status, state(run, "read").status, output(run, "m")) == ("complete", "skipped", 1)


async def test_readers_of_a_stream_that_never_began_get_its_default_items(shared: Bench, file: Path) -> None:
    document = workflow(
        {
            "s": policy(flow("BreakOff", text="abc", file=file), onError="default", defaults={"letters": ["x", "y"]}),
            "read": flow("Read"),
        },
        "s.letters > read.items",
    )

    run = await asyncio.wait_for(shared.run(document), 10)

    assert output(run, "read", "list") == ["x", "y"]


async def test_policies_of_nodes_in_a_group_hold_and_one_of_the_group_itself_has_no_effect(
    bench: Bench, file: Path
) -> None:
    inner = workflow(
        {"in": IN, "n": policy(flow("FailTimes", file=file, times=1), retry=1), "out": OUT},
        "in.value > n.value",
        "n.value > out.value",
        interfaceInputs={"value": slot()},
        interfaceOutputs={"value": slot()},
    )
    await bench.host.services.get(WORKFLOW_MANAGER).save("inner", inner)
    group = {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}}
    document = workflow({"one": give(1), "g": policy(group, timeout=0.001)}, "one.value > g.value")

    run = await bench.run(document)

    assert (output(run, "g"), state(run, "g/n").attempts) == (1, 2)
    problems = await bench.host.services.get(WORKFLOW_MANAGER).check(document.to_json())
    assert [(p.node, p.severity) for p in problems if "policy" in p.path] == [("g", "warning")]


async def test_a_failure_that_its_policy_takes_care_of_is_not_used_again(shared: Bench, file: Path) -> None:
    """A default is no result: the next run tries the node itself."""
    bad = policy(flow("FailTimes", file=file, times=1, value="real"), onError="default", defaults={"value": "instead"})
    document = workflow({"n": bad, "after": "Take"}, "n.value > after.value")

    assert output(await shared.run(document), "after") == "instead"
    assert output(await shared.run(document), "after") == "real"
