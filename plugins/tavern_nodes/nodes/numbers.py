"""Nodes that give, compare and convert numbers. What calculates with them is in `math`."""

from __future__ import annotations

import math
import random
import secrets
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tavern_host import Config, InvalidInput, NodeDefinition, Slot, node
from tavern_host.contracts.nodes import DataFlowType, SlotDefinition
from tavern_nodes.values import check_size, choose_from, finite, fits_64_bits, kind_of, round_half_away, show

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_RANDOM = 2**32 - 1

KEEP, INCREMENT, DECREMENT, RANDOM = "固定", "增加", "减少", "随机"
"""The modes of `RandomNumber`, as the platform names them."""

_STEPS = {KEEP: 0, INCREMENT: 1, DECREMENT: -1, RANDOM: 0}

RANDOM_NUMBER = NodeDefinition(
    type="RandomNumber",
    namespace="core",
    category="实用工具",
    display_name="🎲随机数生成器",
    description="Gives a 32-bit number: the same, the next, the one before, or a random one.",
    width=260,
    inputs={
        "mode": SlotDefinition(
            data_flow_type=DataFlowType.STRING,
            display_name="模式",
            description="How the number changes: keep, increment, decrement or random.",
            match_categories=("ComboOption",),
            config={"suggestions": [{"value": mode, "label": mode} for mode in _STEPS], "default": KEEP},
        ),
        "value": SlotDefinition(
            data_flow_type=DataFlowType.INTEGER,
            display_name="当前值",
            description="The number to start from.",
            config={"default": 0, "min": 0, "max": MAX_RANDOM},
        ),
        "reroll": SlotDefinition(
            data_flow_type=DataFlowType.WILDCARD,
            display_name="重新随机",
            description="Click for a new random number.",
            match_categories=("Trigger",),
            config={"label": "重新随机"},
        ),
    },
    outputs={
        "number": SlotDefinition(
            data_flow_type=DataFlowType.INTEGER, display_name="数值", description="The number, from 0 to 4294967295."
        )
    },
    client_script_url="client-scripts/RandomNumberNode.js",
)


def _draws_anew(inputs: dict[str, Any], config: dict[str, Any]) -> str:
    """Return a value that differs in each run that draws a number, or may: the mode may only be known in the run."""
    return inputs["mode"] if inputs.get("mode") in (KEEP, INCREMENT, DECREMENT) else secrets.token_hex(16)


def _reroll(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, int]:
    """Return a new number for the node's face."""
    return {"value": random.getrandbits(32)}


@node(definition=RANDOM_NUMBER, is_changed=_draws_anew, actions={"reroll": _reroll})
def random_number(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, int]:
    """Keep, step (wrapping around at 32 bits) or draw a number. Raises `InvalidInput`.

    `reroll` is a button of the node's face, which puts a new number into `value`; what arrives there is not looked at.
    """
    mode, value = inputs.get("mode", KEEP), inputs.get("value", 0)
    step = choose_from(_STEPS, mode, "RandomNumber: mode")
    if mode == RANDOM:
        return {"number": random.getrandbits(32)}
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_RANDOM:
        raise InvalidInput(f"RandomNumber: value must be a whole number from 0 to {MAX_RANDOM}, not {show(value)}")
    return {"number": (value + step) % (MAX_RANDOM + 1)}


@node(category="Numbers", display_name="Number")
def number(
    value: Annotated[float, Slot("The number.")] = 0.0,
) -> Annotated[float, Slot("The number.", key="number")]:
    """A number to use in several places."""
    return finite(value, "Number")


_OPERATORS: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "≠": lambda order: order != 0,
    "<": lambda order: order < 0,
    "≤": lambda order: order <= 0,
    ">": lambda order: order > 0,
    "≥": lambda order: order >= 0,
}
"""Whether a comparison holds, given the order of its sides: negative where A is before B, 0 where equal."""


@node(category="Numbers", display_name="Compare")
def compare(
    a: Annotated[Any, Slot("The left side.")],
    b: Annotated[Any, Slot("The right side.")],
    operator: Annotated[Literal["=", "≠", "<", "≤", ">", "≥"], Config("How A is compared with B.")] = "=",
) -> Annotated[bool, Slot("Whether the comparison holds.", key="result")]:
    """Compare two values. Any two can be equal or not; only two numbers or two texts have an order."""
    holds = choose_from(_OPERATORS, operator, "Compare: operator")
    if operator in ("=", "≠"):
        check_size(a, "Compare: A")
        check_size(b, "Compare: B")
        return holds(0 if isinstance(a, bool) == isinstance(b, bool) and a == b else 1)
    if not (_is_number(a) and _is_number(b)) and not (isinstance(a, str) and isinstance(b, str)):
        raise InvalidInput(f"Compare: {operator} needs two numbers or two texts, not {kind_of(a)} and {kind_of(b)}")
    return holds((a > b) - (a < b))


@node(category="Numbers", display_name="To number")
def to_number(
    value: Annotated[Any, Slot("A number, a text that holds one, or true or false.")],
) -> Annotated[float, Slot("The number.", key="number")]:
    """Read a value as a number; true is 1, false is 0."""
    try:
        return finite(float(_read_number(value, "ToNumber")), "ToNumber")
    except OverflowError:
        raise InvalidInput(f"ToNumber: {show(value)} is too large") from None


_ROUNDINGS: dict[str, Callable[[float], int]] = {
    "round": lambda number: int(round_half_away(number)),
    "floor": math.floor,
    "ceil": math.ceil,
    "truncate": math.trunc,
}


@node(category="Numbers", display_name="To integer")
def to_integer(
    value: Annotated[Any, Slot("A number, a text that holds one, or true or false.")],
    rounding: Annotated[
        Literal["round", "floor", "ceil", "truncate"],
        Config("What becomes of a fraction: nearest (halves away from zero), down, up, or cut off."),
    ] = "round",
) -> Annotated[int, Slot("The whole number.", key="integer")]:
    """Read a value as a whole number."""
    rounded = choose_from(_ROUNDINGS, rounding, "ToInteger: rounding")
    found = _read_number(value, "ToInteger")
    if isinstance(found, float):
        found = rounded(finite(found, "ToInteger"))
    return fits_64_bits(found, "ToInteger")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_number(value: Any, who: str) -> int | float:
    if isinstance(value, int | float):
        return int(value) if isinstance(value, bool) else value
    if not isinstance(value, str):
        raise InvalidInput(f"{who}: cannot read {kind_of(value)} as a number")
    text = value.strip()
    if len(text) <= 400 and "_" not in text:  # Python reads 1_000, which nobody writes as data
        for read in (int, float):
            try:
                return read(text)
            except ValueError:
                continue
    raise InvalidInput(f"{who}: cannot read {show(text)} as a number")
