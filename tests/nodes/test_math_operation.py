"""MathOperation: every mode, and that nothing without a finite answer gets out."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st
from node_bench import Nodes, check_outputs, check_refusals

from tavern_host import InvalidInput
from tavern_nodes.nodes.math import OPERATIONS, math_operation

RESULTS: list[tuple[str, dict[str, Any], float]] = [
    ("add", {"a": 1, "b": 2.5}, 3.5), ("subtract", {"a": 1, "b": 3}, -2), ("multiply", {"a": -2, "b": 3}, -6),
    ("multiply_add", {"val1": 2, "val2": 3, "val3": 4}, 10), ("divide", {"a": 1, "b": 4}, 0.25),
    ("power", {"base": 2, "exponent": 10}, 1024), ("power", {"base": 3}, 9),
    ("logarithm", {"value": 1000, "base": 10}, 3), ("logarithm", {"value": 8, "base": 2}, 3),
    ("logarithm", {"value": 81, "base": 3}, 4), ("logarithm", {"value": math.e}, 1), ("logarithm", {}, 0),
    ("sqrt", {"value": 9}, 3), ("inverse_sqrt", {"value": 4}, 0.5), ("absolute", {"value": -1.5}, 1.5),
    ("exp", {"value": 0}, 1), ("min", {"a": 1, "b": -1}, -1), ("max", {"a": 1, "b": -1}, 1),
    ("lessThan", {"a": 1, "b": 2}, 1), ("lessThan", {"a": 2, "b": 2}, 0), ("greaterThan", {"a": 3, "b": 2}, 1),
    ("greaterThan", {"a": 2, "b": 2}, 0), ("sign", {"value": -7}, -1), ("sign", {"value": 0}, 0),
    ("sign", {"value": 0.1}, 1), ("round", {"value": 2.5}, 3), ("round", {"value": -2.5}, -3),
    ("round", {"value": 2.4}, 2), ("round", {"value": 0.49999999999999994}, 0), ("round", {"value": 1e300}, 1e300),
    ("floor", {"value": -1.2}, -2), ("ceil", {"value": -1.2}, -1), ("truncate", {"value": -1.7}, -1),
    ("fraction", {"value": -1.75}, -0.75), ("modulo", {"a": 7, "b": 3}, 1), ("modulo", {"a": -7, "b": 3}, -1),
    ("sin", {"value": math.pi / 2}, 1), ("cos", {"value": math.pi}, -1), ("tan", {"value": math.pi / 4}, 1),
    ("asin", {"value": 1}, math.pi / 2), ("acos", {"value": -1}, math.pi), ("atan", {"value": 1}, math.pi / 4),
    ("atan2", {"y": 1, "x": -1}, 3 * math.pi / 4), ("sinh", {"value": 1}, (math.e - 1 / math.e) / 2),
    ("cosh", {"value": 1}, (math.e + 1 / math.e) / 2), ("tanh", {"value": 100}, 1),
    ("to_radians", {"degrees": 180}, math.pi), ("to_degrees", {"radians": math.pi}, 180),
]  # fmt: skip


async def test_every_mode_gives_its_result(nodes: Nodes) -> None:
    assert {mode for mode, _, _ in RESULTS} == {operation.id for operation in OPERATIONS}
    with Failures() as failures:
        for mode, inputs, expected in RESULTS:
            with failures.row((mode, inputs)):
                outputs = await nodes.run("MathOperation", inputs, {"operationMode": mode})
                assert outputs == {"result": pytest.approx(expected, rel=1e-12, abs=1e-15)}
                assert type(outputs["result"]) is float


async def test_results_are_limited_and_never_minus_zero(nodes: Nodes) -> None:
    clamped = [("MathOperation", {"a": a, "b": 0, "clamp": True}, {}, {"result": r}) for a, r in CLAMPED]
    plain = ("MathOperation", {"a": 1, "b": 1}, {}, {"result": 2.0})  # addition is the mode without configuration
    zero = ("MathOperation", {"value": -0.2}, {"operationMode": "round"}, {"result": 0.0})
    await check_outputs(nodes, [*clamped, plain, zero])


CLAMPED = [(-3, 0.0), (0.25, 0.25), (3, 1.0)]
BASES = "the value and the base must be above zero, and the base not 1"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("divide", {"a": 1, "b": 0}, "B must not be zero (a=1, b=0)"),
    ("modulo", {"a": 5, "b": 0}, "B must not be zero (a=5, b=0)"),
    ("sqrt", {"value": -1}, "the value must not be negative (value=-1)"),
    ("inverse_sqrt", {"value": 0}, "the value must be above zero (value=0)"),
    ("logarithm", {"value": 0, "base": 2}, f"{BASES} (value=0, base=2)"),
    ("logarithm", {"value": 2, "base": 1}, f"{BASES} (value=2, base=1)"),
    ("power", {"base": -8, "exponent": 0.5}, "zero has no negative power, and a negative base needs a whole exponent "
        "(base=-8, exponent=0.5)"),
    ("asin", {"value": 1.5}, "the value must be between -1 and 1 (value=1.5)"),
    ("exp", {"value": 1000}, "the result is too large (value=1000)"),
    ("multiply", {"a": 1e200, "b": 1e200}, "the result is too large (a=1e+200, b=1e+200)"),
    ("add", {"a": 1}, "b must be a number, not nothing"),
    ("add", {"a": "1", "b": 1}, "a must be a number, not text"),
    ("add", {"a": True, "b": 1}, "a must be a number, not a boolean"),
    ("add", {"a": math.nan, "b": 1}, "a must be a finite number, not nan"),
    ("add", {"a": 10**400, "b": 1}, "a must be a finite number, not inf"),
    ("add", {"a": 1, "b": 1, "clamp": "no"}, "clamp must be true or false, not text"),
]  # fmt: skip


async def test_refusals_name_the_operation_and_values(nodes: Nodes) -> None:
    plus = {"operationMode": "plus"}
    await check_refusals(nodes, [("MathOperation", {}, plus, "operationMode must be one of add, subtract, …")])
    with Failures() as failures:
        for mode, inputs, message in REFUSED:
            with failures.row((mode, inputs)):
                with pytest.raises(InvalidInput) as refused:
                    await nodes.run("MathOperation", inputs, {"operationMode": mode})
                assert refused.value.message == f"MathOperation {mode}: {message}"


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_a_result_is_finite_or_refused(values: list[float]) -> None:
    for operation in OPERATIONS:
        inputs = {operand.key: value for operand, value in zip(operation.operands, values, strict=False)}
        with suppress(InvalidInput):
            assert math.isfinite(math_operation(inputs, {"operationMode": operation.id})["result"]), operation.id
