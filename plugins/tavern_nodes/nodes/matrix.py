"""`MatrixOperation`: calculates with matrices, vectors and single numbers, in plain Python and thus with small ones.

A matrix goes in as rows (`[[1, 0], [0, 1]]`), as text of them, or as what comes out: `{"mathjs": "DenseMatrix",
"data": rows, "size": [rows, columns]}`, the JSON of the library math.js; an edge of objects carries objects.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tavern_host import InvalidInput, NodeDefinition, node
from tavern_host.contracts.nodes import NodeMode, SlotDefinition
from tavern_nodes.documents import read_json
from tavern_nodes.platform_slots import choices, slot
from tavern_nodes.values import choose_from, kind_of, show

MODE_KEY = "operationMode"
DEFAULT_MODE = "add"
MAX_SIDE = 200
"""The most rows and columns of a matrix, and numbers of a vector: a product of two such takes half a second."""

Row = list[float]
Rows = list[Row]
Operand = float | Row | Rows
_IDENTITY = [[1.0, 0.0], [0.0, 1.0]]


@dataclass(frozen=True)
class Mode:
    """An operation: its id, the platform's name for it, its inputs, its result's slot, and what it computes."""

    id: str
    label: str
    description: str
    inputs: tuple[str, ...]
    result: SlotDefinition
    compute: Callable[..., Operand]


def _add(a: Operand, b: Operand) -> Operand:
    result: Operand = _each(operator.add, a, b)
    return result


def _subtract(a: Operand, b: Operand) -> Operand:
    result: Operand = _each(operator.sub, a, b)
    return result


def _each(compute: Callable[[float, float], float], a: Any, b: Any) -> Any:
    """Compute number by number; a single number goes with each of the other side's."""
    if isinstance(a, list) and isinstance(b, list):
        if _size(a) != _size(b):
            raise ValueError(f"A is {_shape(a)} and B is {_shape(b)}; they must be of one size")
        return [_each(compute, x, y) for x, y in zip(a, b, strict=True)]
    if isinstance(a, list):
        return [_each(compute, x, b) for x in a]
    if isinstance(b, list):
        return [_each(compute, a, y) for y in b]
    return compute(a, b)


def _multiply(a: Operand, b: Operand) -> Operand:
    """Multiply as matrices; a vector is a row on the left and a column on the right, two give their dot product."""
    if not isinstance(a, list) or not isinstance(b, list):
        scaled: Operand = _each(operator.mul, a, b)
        return scaled
    left, right = _as_rows(a), _as_rows(b) if _is_matrix(b) else [[x] for x in _vector(b)]
    if len(left[0]) != len(right):
        raise ValueError(f"A is {_shape(a)} and B is {_shape(b)}; A needs as many columns as B has rows")
    columns = list(zip(*right, strict=True))
    product = [[sum(map(operator.mul, row, column)) for column in columns] for row in left]
    rows: Operand = product
    if not _is_matrix(b):
        rows = [row[0] for row in product]
    if not _is_matrix(a):
        return rows[0] if isinstance(rows, list) else rows
    return rows


def _transpose(matrix: Operand) -> Operand:
    if isinstance(matrix, list) and not _is_matrix(matrix):
        return matrix
    return [list(column) for column in zip(*_matrix(matrix), strict=True)]


def _invert(matrix: Operand) -> Operand:
    rows, row_scales, column_scales = _scaled(_square(matrix))
    size = len(rows)
    wide = [row + [float(i == j) for j in range(size)] for i, row in enumerate(rows)]
    if _eliminate(wide) == 0:
        raise ValueError("the matrix has no inverse: its determinant is 0")
    for index in reversed(range(size)):
        pivot = wide[index][index]
        wide[index] = [value / pivot for value in wide[index]]
        for above in range(index):
            _subtract_row(wide, above, index, wide[above][index])
    return [
        [value / column_scales[i] / row_scales[j] for j, value in enumerate(row[size:])] for i, row in enumerate(wide)
    ]


def _determinant(matrix: Operand) -> Operand:
    rows, row_scales, column_scales = _scaled(_square(matrix))
    result = _eliminate(rows)
    for scale in (*row_scales, *column_scales):
        result *= scale
    return result


def _scaled(rows: Rows) -> tuple[Rows, Row, Row]:
    """Return the matrix with its rows and columns brought to one scale, by powers of two, and the scales."""
    row_scales = [_scale(row) for row in rows]
    rows = [[value / scale for value in row] for row, scale in zip(rows, row_scales, strict=True)]
    column_scales = [_scale(list(column)) for column in zip(*rows, strict=True)]
    rows = [[value / scale for value, scale in zip(row, column_scales, strict=True)] for row in rows]
    return rows, row_scales, column_scales


def _scale(values: Row) -> float:
    largest = max(map(abs, values))
    return 2.0 ** math.frexp(largest)[1] if largest and math.frexp(largest)[1] < 1024 else 1.0


def _eliminate(rows: Rows) -> float:
    """Bring the left square of `rows` into upper triangular form, in place; return its determinant.

    It is 0 where what is left of a column is within the error of the calculation.
    """
    size = len(rows)
    determinant = 1.0
    for index in range(size):
        best = max(range(index, size), key=lambda row: abs(rows[row][index]))
        if abs(rows[best][index]) <= 4 * size * sys.float_info.epsilon:
            return 0.0
        if best != index:
            rows[index], rows[best] = rows[best], rows[index]
            determinant = -determinant
        determinant *= rows[index][index]
        for below in range(index + 1, size):
            _subtract_row(rows, below, index, rows[below][index] / rows[index][index])
    return determinant


def _subtract_row(rows: Rows, target: int, source: int, factor: float) -> None:
    if factor:
        rows[target] = [value - factor * other for value, other in zip(rows[target], rows[source], strict=True)]


_ANY_RESULT = slot("WILDCARD", "结果", "A matrix, a vector or a number.")
_DOT_RESULT = slot("WILDCARD", "结果", "A matrix, a vector, or a number where two vectors are multiplied.")
_MATRIX_RESULT = slot("OBJECT", "结果", categories=("Matrix",))

MODES = {
    mode.id: mode
    for mode in (
        Mode("add", "相加", "Adds two matrices or numbers.", ("a", "b"), _ANY_RESULT, _add),
        Mode("subtract", "相减", "Subtracts B, a matrix or number, from A.", ("a", "b"), _ANY_RESULT, _subtract),
        Mode("multiply", "相乘", "Multiplies matrices, vectors or numbers.", ("a", "b"), _DOT_RESULT, _multiply),
        Mode("transpose", "转置", "Makes columns of the rows.", ("matrix",), _MATRIX_RESULT, _transpose),
        Mode("invert", "求逆", "Inverts a square matrix.", ("matrix",), _MATRIX_RESULT, _invert),
        Mode(
            "det", "行列式", "The determinant of a square matrix.", ("matrix",), slot("FLOAT", "行列式"), _determinant
        ),
    )
}

_INPUTS = {
    **{
        key: slot("OBJECT", label, required=True, categories=("Matrix",), config={"default": "[[1, 0], [0, 1]]"})
        for key, label in (("a", "矩阵 A"), ("b", "矩阵 B"))
    },
    "matrix": slot("OBJECT", "矩阵", required=True, categories=("Matrix",)),
}


def _definition() -> NodeDefinition:
    modes = {
        mode.id: NodeMode(
            id=mode.id,
            display_name=mode.label,
            description=mode.description,
            inputs={key: _INPUTS[key] for key in mode.inputs},
            outputs={"result": mode.result},
        )
        for mode in MODES.values()
    }
    labels = tuple(f"矩阵/{mode.label}" for mode in MODES.values())
    return NodeDefinition(
        type="MatrixOperation",
        namespace="core",
        category="数学",
        display_name="矩阵运算",
        description="Calculates with matrices; the mode selects how.",
        inputs=modes[DEFAULT_MODE].inputs,
        outputs=modes[DEFAULT_MODE].outputs,
        config_schema={
            MODE_KEY: slot(
                "STRING",
                "运算模式",
                required=True,
                categories=("ComboOption",),
                config={"searchable": True, "suggestions": choices(*MODES, labels=labels), "default": DEFAULT_MODE},
            )
        },
        config_values={MODE_KEY: DEFAULT_MODE},
        modes=modes,
        default_mode_id=DEFAULT_MODE,
        mode_config_key=MODE_KEY,
    )


@node(definition=_definition(), blocking=True)
def matrix_operation(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Compute the selected operation. Raises `InvalidInput` naming the operation and what is wrong."""
    mode = choose_from(MODES, config.get(MODE_KEY) or DEFAULT_MODE, f"MatrixOperation: {MODE_KEY}")
    who = f"MatrixOperation {mode.id}"
    operands = [_read(inputs.get(key, _INPUTS[key].default), f"{who}: {key}") for key in mode.inputs]
    try:
        result = mode.compute(*operands)
    except (ValueError, OverflowError) as problem:
        raise InvalidInput(f"{who}: {problem}") from None
    return {"result": _output(result, who)}


def _read(value: Any, where: str) -> Operand:
    """Return a number, a vector or the rows of a matrix. Raises `InvalidInput`."""
    if isinstance(value, str):
        value = read_json(value, where)
    if isinstance(value, dict):
        value = value.get("data")
    if not isinstance(value, list):
        return _number(value, where)
    if not value or len(value) > MAX_SIDE:
        raise InvalidInput(f"{where} has {len(value):,} rows or numbers; 1 to {MAX_SIDE} are possible")
    if not isinstance(value[0], list):
        return [_number(item, f"{where}[{index}]") for index, item in enumerate(value)]
    rows = []
    for index, row in enumerate(value):
        if not isinstance(row, list) or len(row) != len(value[0]):
            raise InvalidInput(f"{where}: row {index} must be a list of {len(value[0])} numbers, as the first is")
        if not row or len(row) > MAX_SIDE:
            raise InvalidInput(f"{where} has {len(row):,} columns; 1 to {MAX_SIDE} are possible")
        rows.append([_number(item, f"{where}[{index}][{column}]") for column, item in enumerate(row)])
    return rows


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{where}: expected a number, a vector or a matrix, not {kind_of(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(f"{where}: expected a finite number, not {show(value)}")
    return number


def _output(result: Operand, who: str) -> Any:
    if not all(map(math.isfinite, _numbers(result))):
        raise InvalidInput(f"{who}: the result is too large")
    if not isinstance(result, list):
        return result + 0.0
    return {"mathjs": "DenseMatrix", "data": result, "size": list(_size(result))}


def _numbers(value: Operand) -> list[float]:
    if not isinstance(value, list):
        return [value]
    return [number for row in _matrix(value) for number in row] if _is_matrix(value) else _vector(value)


def _is_matrix(value: Operand) -> bool:
    return isinstance(value, list) and isinstance(value[0], list)


def _vector(value: Operand) -> Row:
    assert isinstance(value, list)
    return value  # type: ignore[return-value]


def _as_rows(value: Row | Rows) -> Rows:
    return value if _is_matrix(value) else [value]  # type: ignore[return-value,list-item]


def _matrix(value: Operand) -> Rows:
    if not _is_matrix(value):
        raise ValueError(f"expected a matrix, got {_shape(value)}")
    return value  # type: ignore[return-value]


def _square(value: Operand) -> Rows:
    rows = _matrix(value)
    if len(rows) != len(rows[0]):
        raise ValueError(f"the matrix is {_shape(rows)}; it must have as many rows as columns")
    return rows


def _size(value: Row | Rows) -> tuple[int, ...]:
    return (len(value), len(value[0])) if _is_matrix(value) else (len(value),)  # type: ignore[arg-type]


def _shape(value: Operand) -> str:
    if not isinstance(value, list):
        return "a number"
    size = _size(value)
    return f"{size[0]}×{size[1]}" if len(size) == 2 else f"a vector of {size[0]}"
