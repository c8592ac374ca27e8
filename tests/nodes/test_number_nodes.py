"""Number nodes: random numbers, comparing and converting."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tavern_host import InvalidInput, NotFound

STEPS = [
    ("固定", 7, 7),
    ("增加", 7, 8),
    ("减少", 7, 6),
    ("增加", 4294967295, 0),
    ("减少", 0, 4294967295),
]


@pytest.mark.parametrize(("mode", "value", "expected"), STEPS)
async def test_random_number_keeps_or_steps(nodes: Any, mode: str, value: int, expected: int) -> None:
    assert await nodes.run("RandomNumber", {"mode": mode, "value": value}) == {"number": expected}


async def test_random_number_keeps_zero_unless_told_otherwise(nodes: Any) -> None:
    assert await nodes.run("RandomNumber") == {"number": 0}


async def test_random_number_draws_new_32_bit_numbers(nodes: Any) -> None:
    drawn = [(await nodes.run("RandomNumber", {"mode": "随机", "value": 5}))["number"] for _ in range(20)]
    assert len(set(drawn)) > 15
    assert all(0 <= number <= 4294967295 for number in drawn)


@pytest.mark.parametrize("value", [-1, 4294967296, 1.5, True, "1", None])
async def test_random_number_refuses_what_is_not_a_32_bit_number(nodes: Any, value: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run("RandomNumber", {"value": value})
    assert refused.value.message == (f"RandomNumber: value must be a whole number from 0 to 4294967295, not {value!r}")


async def test_random_number_refuses_an_unknown_mode(nodes: Any) -> None:
    with pytest.raises(InvalidInput, match="mode must be one of 固定, 增加, 减少, 随机, not 'random'"):
        await nodes.run("RandomNumber", {"mode": "random"})


COMPARISONS: list[tuple[Any, str, Any, bool]] = [
    (1, "=", 1.0, True),
    (1, "≠", 2, True),
    ("a", "=", "b", False),
    ([1, {"a": 2}], "=", [1, {"a": 2}], True),
    (1, "=", "1", False),
    (1, "=", True, False),
    (None, "=", None, True),
    (1, "<", 2.5, True),
    (2, "<", 2, False),
    (2, "≤", 2, True),
    ("b", ">", "a", True),
    (2, ">", 3, False),
    (2, "≥", 3, False),
    (3, "≥", 3, True),
]


@pytest.mark.parametrize(("a", "operator", "b", "expected"), COMPARISONS)
async def test_compare(nodes: Any, a: Any, operator: str, b: Any, expected: bool) -> None:
    assert await nodes.run("Compare", {"a": a, "b": b}, {"operator": operator}) == {"result": expected}


@pytest.mark.parametrize(
    ("a", "b", "kinds"), [(1, "2", "a number and text"), (True, 1, "a boolean and a number"), ([1], [2], "a list")]
)
async def test_values_without_an_order_are_not_ordered(nodes: Any, a: Any, b: Any, kinds: str) -> None:
    with pytest.raises(InvalidInput, match=f"Compare: < needs two numbers or two texts, not {kinds}"):
        await nodes.run("Compare", {"a": a, "b": b}, {"operator": "<"})


async def test_compare_refuses_an_unknown_operator(nodes: Any) -> None:
    with pytest.raises(InvalidInput, match="Compare: operator must be one of =, ≠, <, ≤, >, ≥, not '<>'"):
        await nodes.run("Compare", {"a": 1, "b": 2}, {"operator": "<>"})


NUMBERS: list[tuple[Any, float]] = [(3, 3.0), (2.5, 2.5), (" -1.5e3 ", -1500.0), ("７", 7.0), (True, 1.0)]


@pytest.mark.parametrize(("value", "expected"), NUMBERS)
async def test_to_number(nodes: Any, value: Any, expected: float) -> None:
    outputs = await nodes.run("ToNumber", {"value": value})
    assert outputs == {"number": expected}
    assert type(outputs["number"]) is float


INTEGERS: list[tuple[Any, str, int]] = [
    (2.5, "round", 3),
    (-2.5, "round", -3),
    (2.9, "floor", 2),
    (-2.1, "floor", -3),
    (2.1, "ceil", 3),
    (-2.9, "truncate", -2),
    ("42", "round", 42),
    ("9007199254740993", "round", 9007199254740993),
    ("1.5", "ceil", 2),
    (False, "round", 0),
]


@pytest.mark.parametrize(("value", "rounding", "expected"), INTEGERS)
async def test_to_integer(nodes: Any, value: Any, rounding: str, expected: int) -> None:
    outputs = await nodes.run("ToInteger", {"value": value}, {"rounding": rounding})
    assert outputs == {"integer": expected}
    assert type(outputs["integer"]) is int


@pytest.mark.parametrize("type", ["ToNumber", "ToInteger"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("abc", "cannot read 'abc' as a number"),
        ("", "cannot read '' as a number"),
        ("1_000", "cannot read '1_000' as a number"),
        ("9" * 5000, "as a number"),
        (None, "cannot read nothing as a number"),
        ([1], "cannot read a list as a number"),
        ("inf", "inf is not a finite number"),
        (math.nan, "nan is not a finite number"),
    ],
)
async def test_what_is_no_number_is_refused(nodes: Any, type: str, value: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{type}: .*{reason}$"):
        await nodes.run(type, {"value": value})


@pytest.mark.parametrize("value", [2**63, "1" * 300, 1e30, 10**400])
async def test_integers_beyond_64_bits_are_refused(nodes: Any, value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^ToInteger: .* does not fit into 64 bits$"):
        await nodes.run("ToInteger", {"value": value})


async def test_an_integer_too_large_for_a_float_is_refused(nodes: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^ToNumber: an integer of 1329 bits is too large$"):
        await nodes.run("ToNumber", {"value": 10**400})


async def test_number_passes_its_value_on(nodes: Any) -> None:
    assert await nodes.run("Number", {"value": 1.5}) == {"number": 1.5}
    assert await nodes.run("Number") == {"number": 0.0}


async def test_number_refuses_infinity(nodes: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^Number: inf is not a finite number$"):
        await nodes.run("Number", {"value": math.inf})


@pytest.mark.parametrize("inputs", [{"mode": "随机"}, {}, {"mode": 1}], ids=["random", "unknown yet", "wrong"])
async def test_a_number_is_drawn_anew_in_each_run_where_it_may_be_random(nodes: Any, inputs: dict[str, Any]) -> None:
    change = nodes.runner("RandomNumber").change
    assert await change(inputs, {}) != await change(inputs, {})


@pytest.mark.parametrize("mode", ["固定", "增加", "减少"])
async def test_a_number_that_is_not_drawn_does_not_change_by_itself(nodes: Any, mode: str) -> None:
    change = nodes.runner("RandomNumber").change
    assert await change({"mode": mode, "value": 1}, {}) == await change({"mode": mode, "value": 1}, {})


async def test_the_button_of_a_random_number_gives_a_new_one(nodes: Any) -> None:
    act = nodes.runner("RandomNumber").act
    found = [await act("reroll", {"mode": "固定", "value": 1}, {}) for _ in range(20)]
    assert all(set(changed) == {"value"} and 0 <= changed["value"] < 2**32 for changed in found)
    assert len({changed["value"] for changed in found}) > 1


async def test_another_button_is_not_there(nodes: Any) -> None:
    with pytest.raises(NotFound, match="no action 'rerol'"):
        await nodes.runner("RandomNumber").act("rerol", {}, {})
