"""`MatrixOperation`: matrices, vectors and numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.repetition import Failures
from hypothesis import assume, given
from hypothesis import strategies as st
from node_bench import Nodes

from tavern_host import InvalidInput
from tavern_nodes.nodes.matrix import matrix_operation

A = [[1, 2], [3, 4]]
B = [[0, 1], [1, 0]]


def compute(mode: str, **inputs: Any) -> Any:
    """Return the result, a matrix or vector as a plain list."""
    result = matrix_operation(inputs, {"operationMode": mode})["result"]
    return result["data"] if isinstance(result, dict) else result


RESULTS: list[tuple[str, dict[str, Any], Any]] = [
    ("add", {"a": A, "b": B}, [[1, 3], [4, 4]]), ("add", {"a": A, "b": 1}, [[2, 3], [4, 5]]),
    ("add", {"a": 2, "b": 1}, 3), ("add", {"a": [1, 2], "b": [3, 4]}, [4, 6]), ("add", {}, [[2, 0], [0, 2]]),
    ("subtract", {"a": A, "b": B}, [[1, 1], [2, 4]]), ("subtract", {"a": 1, "b": A}, [[0, -1], [-2, -3]]),
    ("multiply", {"a": A, "b": B}, [[2, 1], [4, 3]]), ("multiply", {"a": A, "b": 2}, [[2, 4], [6, 8]]),
    ("multiply", {"a": [1, 2], "b": [3, 4]}, 11), ("multiply", {"a": A, "b": [1, 1]}, [3, 7]),
    ("multiply", {"a": [1, 1], "b": A}, [4, 6]), ("multiply", {"a": [[1, 2, 3]], "b": [[1], [2], [3]]}, [[14]]),
    ("transpose", {"matrix": [[1, 2, 3], [4, 5, 6]]}, [[1, 4], [2, 5], [3, 6]]),
    ("transpose", {"matrix": [1, 2]}, [1, 2]), ("invert", {"matrix": [[2, 0], [0, 4]]}, [[0.5, 0], [0, 0.25]]),
    ("invert", {"matrix": [[0, 1], [1, 0]]}, [[0, 1], [1, 0]]),
    ("invert", {"matrix": [[1e200, 0], [0, 1e-200]]}, [[1e-200, 0], [0, 1e200]]), ("det", {"matrix": A}, -2),
    ("det", {"matrix": [[1, 2, 3], [4, 5, 6], [7, 8, 9]]}, 0), ("det", {"matrix": [[0, 0], [0, 0]]}, 0),
    ("det", {"matrix": "[[3]]"}, 3),
]  # fmt: skip


def test_an_operation_gives_its_result() -> None:
    with Failures() as failures:
        for mode, inputs, result in RESULTS:
            with failures.row((mode, inputs)):
                assert flat(compute(mode, **inputs)) == pytest.approx(flat(result))


def flat(value: Any) -> list[float]:
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


async def test_a_result_goes_into_the_next_operation(nodes: Nodes) -> None:
    first = await nodes.run("MatrixOperation", {"a": A, "b": B}, {"operationMode": "multiply"})
    assert first == {"result": {"mathjs": "DenseMatrix", "data": [[2.0, 1.0], [4.0, 3.0]], "size": [2, 2]}}
    second = await nodes.run("MatrixOperation", {"matrix": first["result"]}, {"operationMode": "det"})
    assert second == {"result": pytest.approx(2.0)}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
        ("add", {"a": A, "b": [[1]]}, "add: A is 2×2 and B is 1×1; they must be of one size"),
        ("add", {"a": A, "b": [1, 2]}, "add: A is 2×2 and B is a vector of 2; they must be of one "
            "size"),
        ("multiply", {"a": A, "b": [1]}, "multiply: A is 2×2 and B is a vector of 1; A needs as many "
            "columns as B has rows"),
        ("invert", {"matrix": [[1, 2], [2, 4]]}, "invert: the matrix has no inverse: its determinant "
            "is 0"),
        ("invert", {"matrix": [[1, 2]]}, "invert: the matrix is 1×2; it must have as many rows as "
            "columns"),
        ("det", {"matrix": 3}, "det: expected a matrix, got a number"),
        ("det", {}, "det: matrix: expected a number, a vector or a matrix, not nothing"),
        ("add", {"a": [[1, 2], [3]]}, "add: a: row 1 must be a list of 2 numbers, as the first is"),
        ("add", {"a": [[1, "x"]]}, "add: a[0][1]: expected a number, a vector or a matrix, not text"),
        ("add", {"a": [[True]]}, "add: a[0][0]: expected a number, a vector or a matrix, not a "
            "boolean"),
        ("add", {"a": [math.nan]}, "add: a[0]: expected a finite number, not nan"),
        ("add", {"a": [10**400]}, "add: a[0]: expected a finite number, not an integer of 1329 bits"),
        ("add", {"a": []}, "add: a has 0 rows or numbers; 1 to 200 are possible"),
        ("add", {"a": [[]]}, "add: a has 0 columns; 1 to 200 are possible"),
        ("add", {"a": [[1] * 201]}, "add: a has 201 columns; 1 to 200 are possible"),
        ("add", {"a": [1] * 201}, "add: a has 201 rows or numbers; 1 to 200 are possible"),
        ("add", {"a": "[[1, 2"}, "add: a is not JSON: Expecting ',' delimiter at line 1, column 7"),
        ("multiply", {"a": 1e200, "b": 1e200}, "multiply: the result is too large"),
        ("power", {}, ": operationMode must be one of add, subtract, multiply, transpose, invert, det, "
            "not 'power'"),
]  # fmt: skip


def test_what_cannot_be_computed_is_told() -> None:
    with Failures() as failures:
        for mode, inputs, message in REFUSED:
            with failures.row(message):
                with pytest.raises(InvalidInput) as caught:
                    compute(mode, **inputs)
                assert caught.value.message == f"MatrixOperation {message}".replace(" :", ":")


numbers = st.integers(-20, 20).map(float)
squares = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n), min_size=n, max_size=n)
)


@given(squares)
def test_a_matrix_times_its_inverse_is_the_identity(matrix: list[list[float]]) -> None:
    assume(abs(compute("det", matrix=matrix)) > 0.5)
    product = compute("multiply", a=matrix, b=compute("invert", matrix=matrix))
    identity = [float(row == column) for row in range(len(matrix)) for column in range(len(matrix))]
    assert flat(product) == pytest.approx(identity, abs=1e-6)


@given(squares)
def test_the_transposed_matrix_has_the_same_determinant(matrix: list[list[float]]) -> None:
    scale = max(1.0, math.prod(max(1.0, sum(map(abs, row))) for row in matrix))
    transposed = compute("transpose", matrix=matrix)
    assert compute("det", matrix=matrix) == pytest.approx(compute("det", matrix=transposed), abs=scale * 1e-12)
