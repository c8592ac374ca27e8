"""`MathOperation`: one node with a mode for each operation, made from the table `OPERATIONS`.

An operation never yields infinity or not-a-number: what has no finite answer is an `InvalidInput` that
names the operation and its values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tavern_host import InvalidInput, NodeDefinition, node
from tavern_host.contracts.nodes import DataFlowType, NodeMode, SlotDefinition
from tavern_nodes.values import choose_from, kind_of, round_half_away

if TYPE_CHECKING:
    from collections.abc import Callable

MODE_KEY = "operationMode"
DEFAULT_MODE = "add"


@dataclass(frozen=True)
class Operand:
    """An input of an operation: its slot key, the platform's name for it, and its default if it has one."""

    key: str
    label: str
    default: float | None = None

    @property
    def slot(self) -> SlotDefinition:
        """The input slot of this operand."""
        config = {} if self.default is None else {"config": {"default": self.default}}
        return SlotDefinition(data_flow_type=DataFlowType.FLOAT, display_name=self.label, required=True, **config)


@dataclass(frozen=True)
class Operation:
    """A mode: its id, the group and name under which the platform lists it, its operands, what it computes.

    `formula` is the result in a line. `compute` may raise `ValueError` or `OverflowError`, or return an
    infinity, where there is no finite answer; `undefined` then says why.
    """

    id: str
    group: str
    label: str
    operands: tuple[Operand, ...]
    compute: Callable[..., float]
    formula: str
    undefined: str = "the values are outside of what it is defined for"


_A, _B = Operand("a", "数值 A"), Operand("b", "数值 B")
_VALUE = (Operand("value", "数值"),)
_ANGLE = (Operand("value", "数值 (弧度)"),)
_RATIO = (Operand("value", "数值 (-1 to 1)"),)
_FACTORS = (Operand("val1", "数值 A"), Operand("val2", "数值 B"), Operand("val3", "数值 C"))
_POWER = (Operand("base", "底数"), Operand("exponent", "指数", default=2))
_LOGARITHM = (Operand("value", "数值", default=1), Operand("base", "底数", default=math.e))
_POINT = (Operand("y", "Y"), Operand("x", "X"))

_BY_ZERO = "B must not be zero"
_BETWEEN = "the value must be between -1 and 1"
_NEGATIVE = "the value must not be negative"
_NOT_ABOVE_ZERO = "the value must be above zero"
_NO_POWER = "zero has no negative power, and a negative base needs a whole exponent"
_NO_LOGARITHM = "the value and the base must be above zero, and the base not 1"


def _divide(a: float, b: float) -> float:
    if b == 0:
        raise ValueError
    return a / b


def _logarithm(value: float, base: float) -> float:
    if base == 1:
        raise ValueError
    exact = {2: math.log2, 10: math.log10, math.e: math.log}.get(base)
    return exact(value) if exact else math.log(value) / math.log(base)


def _inverse_sqrt(value: float) -> float:
    return _divide(1, math.sqrt(value))


def _sign(value: float) -> float:
    return (value > 0) - (value < 0)


OPERATIONS = (
    Operation("add", "函数", "相加", (_A, _B), lambda a, b: a + b, "A + B"),
    Operation("subtract", "函数", "相减", (_A, _B), lambda a, b: a - b, "A - B"),
    Operation("multiply", "函数", "相乘", (_A, _B), lambda a, b: a * b, "A × B"),
    Operation("multiply_add", "函数", "乘后再加", _FACTORS, lambda a, b, c: a * b + c, "A × B + C"),
    Operation("divide", "函数", "相除", (_A, _B), _divide, "A / B", _BY_ZERO),
    Operation("power", "函数", "幂", _POWER, math.pow, "the base raised to the exponent", _NO_POWER),
    Operation("logarithm", "函数", "对数", _LOGARITHM, _logarithm, "the logarithm to the base", _NO_LOGARITHM),
    Operation("sqrt", "函数", "平方根", _VALUE, math.sqrt, "the square root that is not negative", _NEGATIVE),
    Operation("inverse_sqrt", "函数", "平方根取倒", _VALUE, _inverse_sqrt, "1 / the square root", _NOT_ABOVE_ZERO),
    Operation("absolute", "函数", "绝对值", _VALUE, abs, "the value without its sign"),
    Operation("exp", "函数", "指数", _VALUE, math.exp, "e raised to the value"),
    Operation("min", "比较", "最小值", (_A, _B), min, "the smaller of A and B"),
    Operation("max", "比较", "最大值", (_A, _B), max, "the larger of A and B"),
    Operation("lessThan", "比较", "小于", (_A, _B), lambda a, b: a < b, "1 if A < B, else 0"),
    Operation("greaterThan", "比较", "大于", (_A, _B), lambda a, b: a > b, "1 if A > B, else 0"),
    Operation("sign", "比较", "符号", _VALUE, _sign, "-1, 0 or 1"),
    Operation("round", "舍入", "四舍五入", _VALUE, round_half_away, "the nearest whole number, halves away from zero"),
    Operation("floor", "舍入", "向下取整", _VALUE, math.floor, "the largest whole number that is not above the value"),
    Operation("ceil", "舍入", "向上取整", _VALUE, math.ceil, "the smallest whole number that is not below the value"),
    Operation("truncate", "舍入", "截断", _VALUE, math.trunc, "the value without its fraction"),
    Operation("fraction", "舍入", "分数", _VALUE, lambda v: math.modf(v)[0], "the value's fraction, with its sign"),
    Operation("modulo", "舍入", "模数", (_A, _B), math.fmod, "the remainder of A / B, with the sign of A", _BY_ZERO),
    Operation("sin", "三角函数", "正弦", _ANGLE, math.sin, "the sine of an angle in radians"),
    Operation("cos", "三角函数", "余弦", _ANGLE, math.cos, "the cosine of an angle in radians"),
    Operation("tan", "三角函数", "正切", _ANGLE, math.tan, "the tangent of an angle in radians"),
    Operation("asin", "三角函数", "反正弦", _RATIO, math.asin, "the arc sine, in radians", _BETWEEN),
    Operation("acos", "三角函数", "反余弦", _RATIO, math.acos, "the arc cosine, in radians", _BETWEEN),
    Operation("atan", "三角函数", "反正切", _VALUE, math.atan, "the arc tangent, in radians"),
    Operation("atan2", "三角函数", "反正切2", _POINT, math.atan2, "the angle from the x axis to (x, y), in radians"),
    Operation("sinh", "三角函数", "双曲正弦", _VALUE, math.sinh, "the hyperbolic sine"),
    Operation("cosh", "三角函数", "双曲余弦", _VALUE, math.cosh, "the hyperbolic cosine"),
    Operation("tanh", "三角函数", "双曲正切", _VALUE, math.tanh, "the hyperbolic tangent"),
    Operation("to_radians", "转换", "到弧度", (Operand("degrees", "角度"),), math.radians, "degrees as radians"),
    Operation("to_degrees", "转换", "到角度", (Operand("radians", "弧度"),), math.degrees, "radians as degrees"),
)
_BY_ID = {operation.id: operation for operation in OPERATIONS}

_CLAMP = SlotDefinition(
    data_flow_type=DataFlowType.BOOLEAN,
    display_name="钳制 (0-1)",
    description="Limit the result to 0…1.",
    required=False,
    config={"default": False},
)


def _mode(operation: Operation) -> NodeMode:
    result = SlotDefinition(
        data_flow_type=DataFlowType.FLOAT, display_name="结果", description=f"Gives {operation.formula}."
    )
    return NodeMode(
        id=operation.id,
        display_name=operation.label,
        description=f"{operation.formula[0].upper()}{operation.formula[1:]}.",
        inputs={**{operand.key: operand.slot for operand in operation.operands}, "clamp": _CLAMP},
        outputs={"result": result},
    )


def _definition() -> NodeDefinition:
    modes = {operation.id: _mode(operation) for operation in OPERATIONS}
    mode = SlotDefinition(
        data_flow_type=DataFlowType.STRING,
        display_name="运算模式",
        required=True,
        match_categories=("ComboOption",),
        config={
            "searchable": True,
            "suggestions": [{"value": o.id, "label": f"{o.group}/{o.label}"} for o in OPERATIONS],
            "default": DEFAULT_MODE,
        },
    )
    return NodeDefinition(
        type="MathOperation",
        namespace="core",
        category="数学",
        display_name="数学运算",
        description="Calculates with numbers; the mode selects how.",
        inputs=modes[DEFAULT_MODE].inputs,
        outputs=modes[DEFAULT_MODE].outputs,
        config_schema={MODE_KEY: mode},
        config_values={MODE_KEY: DEFAULT_MODE},
        modes=modes,
        default_mode_id=DEFAULT_MODE,
        mode_config_key=MODE_KEY,
    )


@node(definition=_definition())
def math_operation(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, float]:
    """Compute the selected operation. Raises `InvalidInput` naming the operation and the values."""
    mode = config.get(MODE_KEY) or DEFAULT_MODE
    operation = choose_from(_BY_ID, mode, f"MathOperation: {MODE_KEY}")
    clamp = inputs.get("clamp") or False
    if not isinstance(clamp, bool):
        raise InvalidInput(f"MathOperation {operation.id}: clamp must be true or false, not {kind_of(clamp)}")
    result = _compute(operation, [_number(operation, operand, inputs) for operand in operation.operands])
    return {"result": min(1.0, max(0.0, result)) if clamp else result}


def _number(operation: Operation, operand: Operand, inputs: dict[str, Any]) -> float:
    value = inputs.get(operand.key, operand.default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"MathOperation {operation.id}: {operand.key} must be a number, not {kind_of(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(f"MathOperation {operation.id}: {operand.key} must be a finite number, not {number}")
    return number


def _compute(operation: Operation, values: list[float]) -> float:
    shown = ", ".join(f"{operand.key}={value:g}" for operand, value in zip(operation.operands, values, strict=True))
    try:
        result = float(operation.compute(*values))
    except ValueError:
        raise InvalidInput(f"MathOperation {operation.id}: {operation.undefined} ({shown})") from None
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise InvalidInput(f"MathOperation {operation.id}: the result is too large ({shown})")
    return result + 0.0
