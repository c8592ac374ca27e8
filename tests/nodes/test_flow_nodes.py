"""Flow nodes: choosing, waiting, failing, counting; and the two that carry a workflow's interface."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from node_bench import DEFINITIONS, Nodes, Row, check_outputs, check_refusals

from tavern_host import TavernError


async def test_wait_ends_at_once_when_it_is_cancelled(nodes: Nodes) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await nodes.run("Wait", {"seconds": 3600})


async def test_fail_says_its_message_or_what_happened(nodes: Nodes) -> None:
    for message, told in (("no luck today", "no luck today"), (" ", "the Fail node was reached")):
        with pytest.raises(TavernError) as failed:
            await nodes.run("Fail", {"message": message})
        assert (failed.value.info.code, failed.value.message) == ("error", told)


async def test_counter_counts_for_each_instance_on_its_own(nodes: Nodes) -> None:
    first, second = nodes.open("Counter"), nodes.open("Counter", {"start": 10, "step": -5})
    counted = [await nodes.step(node, {"trigger": "anything"}) for node in (first, first, first, second, second)]
    assert [outputs["count"] for outputs in counted] == [1, 2, 3, 10, 5]


SWITCHED: list[Any] = ["Yes", ["no", "never"], 3, True, 0.5]
KEYS = [
    *(("yes", "case_1", 1), (" NEVER\n", "case_2", 2), (3, "case_3", 3), (3.0, "case_3", 3), ("3", "case_3", 3)),
    *(("true", "case_4", 4), (True, "case_4", 4), (0.5, "case_5", 5), ("perhaps", "default", 0)),
    *((None, "default", 0), ("", "default", 0)),
]
CHOICE = {"when_true": "yes", "when_false": "no"}
CASES: list[Row] = [
    *((type, {"input_0": 1, "input_1": ["a"]}, {}, {"input_0": 1, "input_1": ["a"]})
        for type in ("GroupInput", "GroupOutput")),
    ("Wait", {"value": "x", "seconds": 0.05}, {}, {"value": "x"}),
    ("Choose", {"condition": True, **CHOICE}, {}, {"value": "yes"}),
    ("Choose", {"condition": False, **CHOICE}, {}, {"value": "no"}),
    ("Fail", {"value": 3, "condition": False, "message": "no"}, {}, {"value": 3}),
    ("Switch", {"condition": True, "value": 0}, {}, {"when_true": 0}),
    ("Switch", {"condition": False, "value": 0}, {}, {"when_false": 0}),
    *(("SwitchCase", {"key": key, "value": "v"}, {"cases": SWITCHED}, {slot: "v", "case": number})
        for key, slot, number in KEYS),
    ("SwitchCase", {"key": "a"}, {"cases": ["a"]}, {"case_1": "a", "case": 1}),
    ("SwitchCase", {"key": "a"}, {}, {"default": "a", "case": 0}),
    ("SwitchCase", {"key": "A"}, {"cases": ["a", "A"], "ignore_case": False}, {"case_2": "A", "case": 2}),
    ("Gate", {"is_open": True, "value": None}, {}, {"value": None}),
    ("Gate", {"is_open": False, "value": 1}, {}, {}),
    *(("Merge", {"values": values}, {}, {"value": value})
        for values, value in (([None, 0, 1], 0), ([None], None), ([], None), ([False], False))),
]  # fmt: skip
REFUSED: list[Row] = [
    *(("Wait", {"seconds": seconds}, {}, f"seconds must be from 0 to 3600, not {seconds:g}")
        for seconds in (-1, 3601, float("nan"), float("inf"))),
    ("Counter", {}, {"start": "1"}, "start must be a whole number, not…"),
    ("Counter", {}, {"step": 0.5}, "step must be a whole number, not…"),
    ("SwitchCase", {"key": []}, {"cases": ["a"]}, "the key must be a text, a number, true or false, not a list"),
    ("SwitchCase", {"key": "a"}, {"cases": ["b", {}]},
        "case 2 must be a text, a number, true or false, not an object"),
    ("SwitchCase", {"key": "a"}, {"cases": "a"}, "cases must be a list of texts and numbers, not text"),
    ("SwitchCase", {"key": "a"}, {"cases": ["b"] * 9}, "there are 9 cases; at most 8 are possible"),
]  # fmt: skip


async def test_flow_nodes_give_their_values(nodes: Nodes) -> None:
    await check_outputs(nodes, CASES)


async def test_refusals_of_flow_nodes_say_why(nodes: Nodes) -> None:
    await check_refusals(nodes, REFUSED)


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
