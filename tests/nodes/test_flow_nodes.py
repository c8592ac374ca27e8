"""Flow nodes: choosing, waiting, failing, counting; and the two that carry a workflow's interface."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

import pytest
from node_bench import DEFINITIONS

from tavern_host import InvalidInput, TavernError


@pytest.mark.parametrize("type", ["GroupInput", "GroupOutput"])
async def test_group_nodes_pass_on_what_they_are_fed(nodes: Any, type: str) -> None:
    assert await nodes.run(type, {"input_0": 1, "input_1": ["a"]}) == {"input_0": 1, "input_1": ["a"]}


@pytest.mark.parametrize(("condition", "expected"), [(True, "yes"), (False, "no")])
async def test_choose(nodes: Any, condition: bool, expected: str) -> None:
    inputs = {"condition": condition, "when_true": "yes", "when_false": "no"}
    assert await nodes.run("Choose", inputs) == {"value": expected}


async def test_wait_passes_its_value_on_after_the_time(nodes: Any) -> None:
    begun = perf_counter()
    assert await nodes.run("Wait", {"value": "x", "seconds": 0.05}) == {"value": "x"}
    assert perf_counter() - begun >= 0.045


async def test_wait_ends_at_once_when_it_is_cancelled(nodes: Any) -> None:
    begun = perf_counter()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await nodes.run("Wait", {"seconds": 3000})
    assert perf_counter() - begun < 5


@pytest.mark.parametrize("seconds", [-1, 3601, float("nan"), float("inf")])
async def test_wait_refuses_times_outside_of_an_hour(nodes: Any, seconds: float) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run("Wait", {"seconds": seconds})
    assert refused.value.message == f"Wait: seconds must be from 0 to 3600, not {seconds:g}"


async def test_fail_says_the_message_and_nothing_else(nodes: Any) -> None:
    with pytest.raises(TavernError) as failed:
        await nodes.run("Fail", {"message": "no luck today"})
    assert (failed.value.info.code, failed.value.message) == ("error", "no luck today")


async def test_fail_without_a_message_says_what_happened(nodes: Any) -> None:
    with pytest.raises(TavernError, match=r"^the Fail node was reached$"):
        await nodes.run("Fail", {"message": " "})


async def test_fail_passes_its_value_on_where_the_condition_is_false(nodes: Any) -> None:
    assert await nodes.run("Fail", {"value": 3, "condition": False, "message": "no"}) == {"value": 3}


async def test_counter_counts_for_each_instance_on_its_own(nodes: Any) -> None:
    first, second = nodes.open("Counter"), nodes.open("Counter", {"start": 10, "step": -5})
    assert [await nodes.step(first, {"trigger": "anything"}) for _ in range(3)] == [
        {"count": 1},
        {"count": 2},
        {"count": 3},
    ]
    assert [await nodes.step(second) for _ in range(2)] == [{"count": 10}, {"count": 5}]


@pytest.mark.parametrize("config", [{"start": "1"}, {"step": 0.5}, {"start": None}, {"step": True}])
async def test_a_counter_counts_in_whole_numbers(nodes: Any, config: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"^Counter: (start|step) must be a whole number, not "):
        await nodes.run("Counter", {}, config)


async def test_a_switch_sends_the_value_one_way_only(nodes: Any) -> None:
    assert await nodes.run("Switch", {"condition": True, "value": 0}) == {"when_true": 0}
    assert await nodes.run("Switch", {"condition": False, "value": 0}) == {"when_false": 0}


CASES: list[Any] = ["Yes", ["no", "never"], 3, True, 0.5]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("yes", ("case_1", 1)),
        (" NEVER\n", ("case_2", 2)),
        (3, ("case_3", 3)),
        (3.0, ("case_3", 3)),
        ("3", ("case_3", 3)),
        ("true", ("case_4", 4)),
        (True, ("case_4", 4)),
        (0.5, ("case_5", 5)),
        ("perhaps", ("default", 0)),
        (None, ("default", 0)),
        ("", ("default", 0)),
    ],
)
async def test_a_value_goes_the_way_of_its_case(nodes: Any, key: Any, expected: tuple[str, int]) -> None:
    slot, number = expected
    outputs = await nodes.run("SwitchCase", {"key": key, "value": "v"}, {"cases": CASES})
    assert outputs == {slot: "v", "case": number}


async def test_the_key_itself_goes_on_where_there_is_no_value(nodes: Any) -> None:
    assert await nodes.run("SwitchCase", {"key": "a"}, {"cases": ["a"]}) == {"case_1": "a", "case": 1}
    assert await nodes.run("SwitchCase", {"key": "a"}) == {"default": "a", "case": 0}


async def test_case_matters_where_the_node_says_so(nodes: Any) -> None:
    outputs = await nodes.run("SwitchCase", {"key": "A"}, {"cases": ["a", "A"], "ignore_case": False})
    assert outputs == {"case_2": "A", "case": 2}


@pytest.mark.parametrize(
    ("key", "cases", "message"),
    [
        ([], ["a"], "the key must be a text, a number, true or false, not a list"),
        ("a", ["b", {}], "case 2 must be a text, a number, true or false, not an object"),
        ("a", "a", "cases must be a list of texts and numbers, not text"),
        ("a", ["b"] * 9, "there are 9 cases; at most 8 are possible"),
    ],
)
async def test_wrong_cases_are_refused(nodes: Any, key: Any, cases: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run("SwitchCase", {"key": key}, {"cases": cases})
    assert refused.value.message == f"SwitchCase: {message}"


async def test_a_gate_lets_a_value_through_or_not(nodes: Any) -> None:
    assert await nodes.run("Gate", {"is_open": True, "value": None}) == {"value": None}
    assert await nodes.run("Gate", {"is_open": False, "value": 1}) == {}


@pytest.mark.parametrize(("values", "expected"), [([None, 0, 1], 0), ([None], None), ([], None), ([False], False)])
async def test_merge_passes_on_the_first_value_that_is_there(nodes: Any, values: list[Any], expected: Any) -> None:
    assert await nodes.run("Merge", {"values": values}) == {"value": expected}


def test_what_has_to_be_done_in_each_run_is_not_taken_from_an_earlier_one() -> None:
    assert not any(DEFINITIONS[type].traits.cached for type in ("Wait", "Counter", "WriteFile"))


def test_the_outputs_of_what_branches_are_branches() -> None:
    branches = {type: [key for key, slot in DEFINITIONS[type].outputs.items() if slot.is_branch] for type in BRANCHING}
    assert branches == BRANCHING


BRANCHING = {
    "Switch": ["when_true", "when_false"],
    "SwitchCase": [*(f"case_{number}" for number in range(1, 9)), "default"],
    "Gate": ["value"],
    "Merge": [],
}
