"""Number nodes: random numbers, comparing and converting."""

from __future__ import annotations

import math
from typing import Any

import pytest
from node_bench import Nodes, Row, check_outputs, check_refusals

from tavern_host import NotFound

STEPS = [
    ("固定", 7, 7), ("增加", 7, 8), ("减少", 7, 6), ("增加", 4294967295, 0), ("减少", 0, 4294967295),
]  # fmt: skip


async def test_random_number_draws_new_32_bit_numbers(nodes: Any) -> None:
    drawn = [(await nodes.run("RandomNumber", {"mode": "随机", "value": 5}))["number"] for _ in range(20)]
    assert len(set(drawn)) > 15
    assert all(0 <= number <= 4294967295 for number in drawn)


COMPARISONS: list[tuple[Any, str, Any, bool]] = [
    (1, "=", 1.0, True), (1, "≠", 2, True), ("a", "=", "b", False), ([1, {"a": 2}], "=", [1, {"a": 2}], True),
    (1, "=", "1", False), (1, "=", True, False), (None, "=", None, True), (1, "<", 2.5, True), (2, "<", 2, False),
    (2, "≤", 2, True), ("b", ">", "a", True), (2, ">", 3, False), (2, "≥", 3, False), (3, "≥", 3, True),
]  # fmt: skip


NUMBERS: list[tuple[Any, float]] = [(3, 3.0), (2.5, 2.5), (" -1.5e3 ", -1500.0), ("７", 7.0), (True, 1.0)]


INTEGERS: list[tuple[Any, str, int]] = [
    (2.5, "round", 3), (-2.5, "round", -3), (2.9, "floor", 2), (-2.1, "floor", -3), (2.1, "ceil", 3),
    (-2.9, "truncate", -2), ("42", "round", 42), ("9007199254740993", "round", 9007199254740993), ("1.5", "ceil", 2),
    (False, "round", 0),
]  # fmt: skip


UNREADABLE = [
    ("abc", "cannot read 'abc' as a number"), ("", "cannot read '' as a number"),
    ("1_000", "cannot read '1_000' as a number"), ("9" * 5000, "cannot read '999…"),
    (None, "cannot read nothing as a number"), ([1], "cannot read a list as a number"),
    ("inf", "inf is not a finite number"), (math.nan, "nan is not a finite number"),
]  # fmt: skip
ORDERLESS = [(1, "2", "a number and text"), (True, 1, "a boolean and a number"), ([1], [2], "a list and a list")]
REFUSED: list[Row] = [
    *(("RandomNumber", {"value": value}, {}, f"value must be a whole number from 0 to 4294967295, not {value!r}")
        for value in (-1, 4294967296, 1.5, True, "1", None)),
    ("RandomNumber", {"mode": "random"}, {}, "mode must be one of 固定, 增加, 减少, 随机, not 'random'"),
    *(("Compare", {"a": a, "b": b}, {"operator": "<"}, f"< needs two numbers or two texts, not {kinds}")
        for a, b, kinds in ORDERLESS),
    ("Compare", {"a": 1, "b": 2}, {"operator": "<>"}, "operator must be one of =, ≠, <, ≤, >, ≥, not '<>'"),
    *((type, {"value": value}, {}, reason) for type in ("ToNumber", "ToInteger") for value, reason in UNREADABLE),
    ("ToInteger", {"value": 2**63}, {}, "9223372036854775808 does not fit into 64 bits"),
    *(("ToInteger", {"value": value}, {}, "…") for value in ("1" * 300, 1e30, 10**400)),
    ("ToNumber", {"value": 10**400}, {}, "an integer of 1329 bits is too large"),
    ("Number", {"value": math.inf}, {}, "inf is not a finite number"),
]  # fmt: skip


async def test_number_nodes_give_their_numbers(nodes: Nodes) -> None:
    rows: list[Row] = [("RandomNumber", {"mode": m, "value": v}, {}, {"number": number}) for m, v, number in STEPS]
    rows += [("Compare", {"a": a, "b": b}, {"operator": o}, {"result": result}) for a, o, b, result in COMPARISONS]
    rows += [("ToNumber", {"value": value}, {}, {"number": number}) for value, number in NUMBERS]
    rows += [("ToInteger", {"value": v}, {"rounding": r}, {"integer": integer}) for v, r, integer in INTEGERS]
    rows += [("Number", {"value": 1.5}, {}, {"number": 1.5}), ("Number", {}, {}, {"number": 0.0})]
    await check_outputs(nodes, [*rows, ("RandomNumber", {}, {}, {"number": 0})])


async def test_refusals_of_number_nodes_say_why(nodes: Nodes) -> None:
    await check_refusals(nodes, REFUSED)


async def test_a_number_changes_where_it_may_be_random(nodes: Nodes) -> None:
    change = nodes.runner("RandomNumber").change
    for inputs in ({"mode": "随机"}, {}, {"mode": 1}):  # the second is not known yet, the third is wrong
        assert await change(inputs, {}) != await change(inputs, {}), inputs
    for mode in ("固定", "增加", "减少"):
        assert await change({"mode": mode, "value": 1}, {}) == await change({"mode": mode, "value": 1}, {}), mode


async def test_the_button_of_a_random_number_gives_a_new_one(nodes: Any) -> None:
    act = nodes.runner("RandomNumber").act
    found = [await act("reroll", {"mode": "固定", "value": 1}, {}) for _ in range(20)]
    assert all(set(changed) == {"value"} and 0 <= changed["value"] < 2**32 for changed in found)
    assert len({changed["value"] for changed in found}) > 1
    with pytest.raises(NotFound, match="no action 'rerol'"):
        await act("rerol", {}, {})
