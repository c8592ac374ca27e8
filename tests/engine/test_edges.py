"""Which edges are possible, and what becomes of a value on one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from engine_bench import Bench, give, take
from helpers.repetition import Failures
from loops_bench import flow
from run_cases import case, check

from tavern_host.contracts.nodes import DataFlowType, SlotDefinition
from tavern_workflows.api.dataflow import compatible, converter, find_slot, text_of

on_module_loop = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]
TYPES = [str(t) for t in DataFlowType]
ANY = {"WILDCARD", "CONVERTIBLE_ANY"}
CONVERTED = {("INTEGER", "FLOAT"), ("INTEGER", "STRING"), ("FLOAT", "STRING"), ("BOOLEAN", "STRING")}


def a_slot(type: str, *categories: str, stream: bool = False) -> SlotDefinition:
    return SlotDefinition(
        data_flow_type=DataFlowType(type), match_categories=categories or None, is_stream=stream or None
    )


def test_types_match_if_equal_open_or_convertible() -> None:
    with Failures() as failures:
        for source, target in itertools.product(TYPES, TYPES):
            with failures.row((source, target)):
                possible = source == target or source in ANY or target in ANY or (source, target) in CONVERTED
                problem = compatible(a_slot(source), a_slot(target))
                assert problem == (None if possible else f"{source} does not go into {target}")


PAIRS = [
    (a_slot("OBJECT", "Chat"), a_slot("STRING", "Json", "Chat"), True),
    (a_slot("OBJECT", "Chat"), a_slot("STRING", "Json"), False),
    (a_slot("OBJECT", "BehaviorWildcard"), a_slot("STRING"), True),
    (a_slot("OBJECT"), a_slot("STRING", "BehaviorWildcard"), True),
    (a_slot("STRING", "Prompt"), a_slot("STRING", "Url"), True),
    (a_slot("STRING", stream=True), a_slot("STRING", stream=True), True),
    (a_slot("STRING", stream=True), a_slot("STRING"), True),
    (a_slot("STRING"), a_slot("STRING", stream=True), False),
    (a_slot("WILDCARD", "Chat"), a_slot("WILDCARD", "Chat", stream=True), False),
    (a_slot("OBJECT", stream=True), a_slot("INTEGER"), False),
    (a_slot("INTEGER", stream=True), a_slot("ARRAY"), True),
    (a_slot("STRING", stream=True), a_slot("ARRAY", stream=True), False),
]


def test_streams_count_first_then_categories_then_types() -> None:
    with Failures() as failures:
        for source, target, possible in PAIRS:
            with failures.row((source, target)):
                assert (compatible(source, target) is None) == possible


ARRIVING = [
    *(("INTEGER", "FLOAT", 3, 3.0), ("INTEGER", "STRING", -3, "-3"), ("FLOAT", "STRING", 0.1, "0.1")),
    *(("FLOAT", "STRING", 3.0, "3"), ("FLOAT", "STRING", 1e21, "1e+21"), ("BOOLEAN", "STRING", True, "true")),
    *(("BOOLEAN", "STRING", False, "false"), ("WILDCARD", "STRING", 3, "3"), ("CONVERTIBLE_ANY", "FLOAT", 3, 3.0)),
    *(("WILDCARD", "INTEGER", 3.0, 3), ("INTEGER", "WILDCARD", 3, 3), ("STRING", "STRING", "x", "x")),
    ("ARRAY", "ARRAY", [1], [1]),
]


ONE, TWO = "one > n.must", "two > n.may"
ORDERS: list[tuple[dict[str, Any], list[str]]] = [
    *(({}, [ONE, TWO]), ({}, [TWO, ONE]), ({"must": 1}, [TWO]), ({"may": 2}, [ONE])),
    *(({"may": "another", "must": "another"}, [TWO, ONE]), ({"may": 2, "must": 1}, []), ({"must": 1, "may": 2}, [])),
]
CASES = [
    *(case(f"{value!r} from {source} into {target}", {"give": give(value, source), "take": take(target)}, "give > take",
        gives={"take": arrives}) for source, target, value, arrives in ARRIVING),
    *(case(f"{values} {edges}", {"n": flow("Needs", **values), "one": give(1), "two": give(2)}, *edges,
        gives={"n.list": [1, 2]}) for values, edges in ORDERS),
    case("a value that cannot be converted is the error of the node that gets it",
        {"give": give({}), "take": take("STRING")}, "give > take", gives={"give": {}}, failed="take",
        error="node take (acme-nodes:Take): the input 'value': the value on edge e0 is no STRING: expected "
            "text, got an object"),
]  # fmt: skip


@on_module_loop
async def test_a_value_arrives_as_the_input_has_it(shared: Bench) -> None:
    await check(shared, CASES)


def test_a_converter_is_there_where_a_value_may_change() -> None:
    for source, target in (
        *((a_slot("STRING"), a_slot("STRING")), (a_slot("OBJECT", "Chat"), a_slot("STRING", "Chat"))),
        *((a_slot("WILDCARD"), a_slot("WILDCARD")), (a_slot("WILDCARD", "Chat"), a_slot("OBJECT", "Chat"))),
    ):
        assert converter(source, target) is None
    convert = converter(a_slot("WILDCARD"), a_slot("STRING"))
    assert [convert("a"), convert(3.0), convert(None)] == ["a", "3", None]
    with pytest.raises(ValueError, match="expected text, got an object"):
        convert({})


def test_numbers_become_text_as_the_platform_writes_them() -> None:
    texts = [text_of(value) for value in (True, 0, -0.0, 1e20, float("nan"))]
    assert texts == ["true", "0", "0", "100000000000000000000", "NaN"]


def test_a_handle_names_a_slot_or_a_place_in_a_multi_slot() -> None:
    many = SlotDefinition(data_flow_type=DataFlowType.STRING, multi=True)
    slots = {"one": a_slot("STRING"), "many": many, "odd__1": a_slot("STRING")}
    found = {handle: find_slot(slots, handle) for handle in ("one", "many", "many__12", "odd__1", "one__0", "none")}
    assert found == {
        "one": ("one", slots["one"], None),
        "many": ("many", many, None),
        "many__12": ("many", many, 12),
        "odd__1": ("odd__1", slots["odd__1"], None),
        "one__0": None,
        "none": None,
    }
    assert find_slot(slots, "none", dynamic=True) is not None
