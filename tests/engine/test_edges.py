"""Which edges are possible, and what becomes of a value on one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from engine_bench import Bench, give, workflow
from helpers.repetition import Failures
from loops_bench import flow
from run_cases import case, check

from tavern_host.contracts.dataflow import compatible, converter, find_slot, text_of
from tavern_host.contracts.nodes import DataFlowType, SlotDefinition

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


@pytest.mark.parametrize(
    ("source", "target", "possible"),
    [
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
    ],
)
def test_streams_are_looked_at_first_then_categories_then_types(
    source: SlotDefinition, target: SlotDefinition, possible: bool
) -> None:
    assert (compatible(source, target) is None) == possible


ARRIVING = [
    *(("INTEGER", "FLOAT", 3, 3.0), ("INTEGER", "STRING", -3, "-3"), ("FLOAT", "STRING", 0.1, "0.1")),
    *(("FLOAT", "STRING", 3.0, "3"), ("FLOAT", "STRING", 1e21, "1e+21"), ("BOOLEAN", "STRING", True, "true")),
    *(("BOOLEAN", "STRING", False, "false"), ("WILDCARD", "STRING", 3, "3"), ("CONVERTIBLE_ANY", "FLOAT", 3, 3.0)),
    *(("WILDCARD", "INTEGER", 3.0, 3), ("INTEGER", "WILDCARD", 3, 3), ("STRING", "STRING", "x", "x")),
    ("ARRAY", "ARRAY", [1], [1]),
]


@on_module_loop
async def test_a_value_arrives_as_the_input_has_it(shared: Bench) -> None:
    await check(
        shared,
        (
            case(
                f"{value!r} from {source} into {target}",
                {"give": give(value, source), "take": {"type": "Take", "configValues": {"type": target}}},
                "give > take",
                gives={"take": arrives},
            )
            for source, target, value, arrives in ARRIVING
        ),
    )


def test_an_edge_that_changes_nothing_has_no_converter() -> None:
    assert converter(a_slot("STRING"), a_slot("STRING")) is None
    assert converter(a_slot("OBJECT", "Chat"), a_slot("STRING", "Chat")) is None
    assert converter(a_slot("WILDCARD"), a_slot("WILDCARD")) is None
    assert converter(a_slot("WILDCARD", "Chat"), a_slot("OBJECT", "Chat")) is None


def test_a_value_from_an_output_of_any_type_is_looked_at_when_it_comes() -> None:
    convert = converter(a_slot("WILDCARD"), a_slot("STRING"))
    assert [convert("a"), convert(3.0), convert(None)] == ["a", "3", None]
    with pytest.raises(ValueError, match="expected text, got an object"):
        convert({})


@on_module_loop
async def test_a_value_that_cannot_be_converted_is_the_error_of_the_node_that_gets_it(shared: Bench) -> None:
    document = workflow({"give": give({}), "take": {"type": "Take", "configValues": {"type": "STRING"}}}, "give > take")

    run = await shared.run(document)

    assert run.nodes["give"].status == "complete"
    assert run.nodes["take"].error.message.startswith("the input 'value': the value on edge e0 is no STRING")


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (0, "0"), (-0.0, "0"), (1e20, "100000000000000000000"), (float("nan"), "NaN")]
)
def test_numbers_become_text_as_the_platform_writes_them(value: float, text: str) -> None:
    assert text_of(value) == text


def test_a_handle_names_a_slot_or_a_place_in_a_multi_slot() -> None:
    slots = {
        "one": a_slot("STRING"),
        "many": SlotDefinition(data_flow_type=DataFlowType.STRING, multi=True),
        "odd__1": a_slot("STRING"),
    }

    assert find_slot(slots, "one") == ("one", slots["one"], None)
    assert find_slot(slots, "many") == ("many", slots["many"], None)
    assert find_slot(slots, "many__12") == ("many", slots["many"], 12)
    assert find_slot(slots, "odd__1") == ("odd__1", slots["odd__1"], None)
    assert find_slot(slots, "one__0") is None
    assert find_slot(slots, "none") is None
    assert find_slot(slots, "none", dynamic=True) is not None


ONE, TWO = "one.value > n.must", "two.value > n.may"
ORDERS: list[tuple[dict[str, Any], list[str]]] = [
    *(({}, [ONE, TWO]), ({}, [TWO, ONE]), ({"must": 1}, [TWO]), ({"may": 2}, [ONE])),
    *(({"may": "another", "must": "another"}, [TWO, ONE]), ({"may": 2, "must": 1}, []), ({"must": 1, "may": 2}, [])),
]


@on_module_loop
async def test_values_find_their_inputs_in_any_order(shared: Bench) -> None:
    await check(
        shared,
        (
            case(
                f"{values} {edges}",
                {"n": flow("Needs", **values), "one": give(1), "two": give(2)},
                *edges,
                gives={"n.list": [1, 2]},
            )
            for values, edges in ORDERS
        ),
    )
