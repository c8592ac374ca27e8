"""What becomes of a node that fails or takes long: tries, time limits, and what follows when no try is left."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, give, group, output, slot, state, workflow
from helpers.waiting import until
from loops_bench import flow, notes, policy
from run_cases import case, check

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]
IN, OUT = "core:GroupInput", "core:GroupOutput"


def fails(**options: Any) -> dict[str, Any]:
    """Return a node that fails, with a policy."""
    return policy(flow("FailAt", at=0, value=0), **options)


def routed(bad: dict[str, Any]) -> tuple[Any, ...]:
    """Return a node whose errors are routed, what follows its output and its error, and a merge of both."""
    nodes = {"n": policy(bad, onError="route"), "fine": "Take", "beyond": "Take", "handler": "Take", "m": flow("Merge")}
    return nodes, *(
        *("n.value > fine.value", "fine.value > beyond.value", "n.error > handler.value"),
        *("beyond.value > m.values", "handler.value > m.values"),
    )


NO_LUCK = {"code": "plugin_error", "message": "ValueError: no luck", "details": {}, "plugin": "acme-nodes",
    "retryable": False}  # fmt: skip
CASES = [
    case("a node fails its run unless its policy says otherwise", {"n": policy("Boom"), "after": "Take"}, "n > after",
        failed="n", skipped="after", error="node n (boom): ValueError: boom"),
    case("default outputs take the place of those that did not come",
        {"n": fails(onError="default", defaults={"value": [1, {"a": 2}]}), "after": "Take"}, "n > after",
        gives={"n": [1, {"a": 2}], "after": [1, {"a": 2}]}, failed="n"),
    case("outputs without a default are the empty value of their type",
        {"text": give("x"), "n": policy("Add", onError="default"), "after": "Take"}, "text > n.a, n.sum > after",
        gives={"after": 0}, failed="n"),
    case("defaults have the type of their slot",
        {"t": give([]), "n": policy(flow("Less", a=1), onError="default", defaults={"value": True}),
            "i": policy("Add", onError="default", defaults={"sum": 3.0}), "a": "Take", "b": "Take"},
        "t > n.b, t > i.a, n > a, i.sum > b", gives={"a": True, "b": 3}),
    case("a default that a node changes is whole in the next run",
        {"n": fails(onError="default", defaults={"value": [1]}), "append": flow("AppendInPlace", item=2)},
        "n > append.items", gives={"append.list": [1, 2]}),
    case("an error is routed to the error output", *routed({"type": "Boom", "inputValues": {"message": "no luck"}}),
        gives={"handler": NO_LUCK, "m": NO_LUCK}, skipped="fine beyond"),
    case("without an error its output is a branch not taken", *routed(flow("Sleep", seconds=0, value=5)),
        gives={"m": 5}, skipped="handler"),
    case("a routed error that leads nowhere is shown at its node", {"n": policy("Boom", onError="route"), "t": "Take"},
        "n > t", failed="n", skipped="t"),
    case("a node that ends in time is not touched", {"n": policy(flow("Sleep", seconds=0.05, value=3), timeout=30)},
        gives={"n": 3}),
    case("a time limit ends its node alone", {"l": flow("Letters", text="ab"), "s": policy("Hang", timeout=0.1)},
        gives={"l.letters": "ab"}, failed="s", error="node s (hang): it did not end within 0.1 s"),
]  # fmt: skip


async def test_a_policy_says_what_follows_a_failure(shared: Bench) -> None:
    await check(shared, CASES)


# --- trying again ---------------------------------------------------------------------------------


async def test_a_node_is_retried_as_often_as_allowed(shared: Bench, file: Path, tmp_path: Path) -> None:
    """With its inputs unchanged, and whatever it did to its task."""
    append = {"type": "acme-flow:AppendThenFail", "inputValues": {"items": [1], "file": str(tmp_path / "append")}}
    nodes = {
        "n": policy(flow("FailTimes", file=file, times=2, value=7), retry=2),
        "after": "Take",
        "bad": policy(flow("FailTimes", file=tmp_path / "bad", times=9), retry=2),
        "append": policy(append, retry=1),
        "cancels": policy(flow("CancelAndFail", file=tmp_path / "cancels", times=2, value=1), retry=2),
        "last": "Take",
    }

    run = await asyncio.wait_for(shared.run(workflow(nodes, "n > after, cancels > last")), 60)

    assert (output(run, "after"), output(run, "last"), output(run, "append", "list")) == (7, 1, [1, 2])
    assert (state(run, "n").attempts, len(notes(file))) == (3, 3)
    error = state(run, "bad").error
    assert (error.message, state(run, "bad").attempts, run.status) == ("ValueError: failure 3", 3, "error")


async def test_the_delay_before_a_retry_doubles_and_is_logged(
    shared: Bench, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = policy(flow("FailTimes", file=file, times=2), retry=2, retryDelay=0.05)
    with caplog.at_level(logging.WARNING):
        run = await shared.run(workflow({"n": node}))

    assert run.status == "complete"
    logged = [record.message for record in caplog.records if "; attempt " in record.message]
    assert logged == [
        f"run {run.id}, node n: ValueError: failure 1; attempt 2 comes in 0.05 s",
        f"run {run.id}, node n: ValueError: failure 2; attempt 3 comes in 0.1 s",
    ]


async def test_an_interrupt_ends_the_delay_before_a_retry(shared: Bench, file: Path, tmp_path: Path) -> None:
    """While the node waits for its next try, another one is run."""
    node = policy(flow("FailTimes", file=file, times=9), retry=9, retryDelay=60)
    run_id = await shared.start(workflow({"n": node, "other": flow("Note", file=tmp_path / "other", value=1)}))
    await until(lambda: notes(file) and notes(tmp_path / "other"))

    run = await asyncio.wait_for(shared.interrupted(run_id), 60)

    assert (run.status, state(run, "n").status, len(notes(file))) == ("interrupted", "interrupted", 1)


async def test_a_default_is_not_cached(shared: Bench, file: Path) -> None:
    """The next run tries the node itself."""
    bad = policy(flow("FailTimes", file=file, times=1, value="real"), onError="default", defaults={"value": "instead"})
    document = workflow({"n": bad, "after": "Take"}, "n > after")

    assert [output(await shared.run(document), "after") for _ in range(2)] == ["instead", "real"]


async def test_policies_hold_in_groups_not_for_them(shared: Bench, file: Path) -> None:
    inner = workflow(
        {"in": IN, "n": policy(flow("FailTimes", file=file, times=1), retry=1), "out": OUT},
        "in > n > out",
        interfaceInputs={"value": slot()},
        interfaceOutputs={"value": slot()},
    )
    await shared.workflows.save("inner", inner)

    run = await shared.run(workflow({"one": give(1), "g": policy(group("inner"), timeout=0.001)}, "one > g"))

    assert (output(run, "g"), state(run, "g/n").attempts) == (1, 2)


# --- time limits ----------------------------------------------------------------------------------


async def test_a_node_is_cancelled_at_its_time_limit(shared: Bench) -> None:
    run = await shared.run(workflow({"n": policy("Hang", timeout=0.05, retry=2)}))

    error = state(run, "n").error
    assert (error.code, error.message) == ("deadline_exceeded", "it did not end within 0.05 s")
    assert state(run, "n").attempts == 3  # each with the time limit for itself
    await shared.until("ACME_RELEASED", node="n")


async def test_a_node_that_ignores_its_limit_is_left_behind(
    shared: Bench, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late = policy(flow("Swallow", file=file, seconds=90), timeout=0.1, onError="default", defaults={"value": "instead"})

    with caplog.at_level(logging.WARNING):
        run = await shared.run(workflow({"n": late, "after": "Take"}, "n > after"))

    assert output(run, "after") == "instead"
    assert "ended" not in notes(file)
    file.with_name(f"{file.name}.over").touch()
    assert any("ignores that its time is over" in record.message for record in caplog.records)
