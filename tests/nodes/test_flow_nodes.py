"""Flow nodes: choosing, waiting, failing, counting; and the two that carry a workflow's interface."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

import pytest

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
