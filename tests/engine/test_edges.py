"""Which edges are possible, and what becomes of a value on one."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.vectors import vectors
from engine_bench import Bench, give, output, take, workflow
from helpers.repetition import Failures
from helpers.workflow_documents import edge
from loops_bench import flow
from run_cases import case, check

from tavern_host.contracts.nodes import DataFlowType, SlotDefinition
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.dataflow import converter, text_of

on_module_loop = pytest.mark.asyncio(loop_scope="module")
SHARED_PLUGINS = ["acme_flow"]
ONE, TWO = "one > n.must", "two > n.may"
ORDERS: list[tuple[dict[str, Any], list[str]]] = [
    *(({}, [ONE, TWO]), ({}, [TWO, ONE]), ({"must": 1}, [TWO]), ({"may": 2}, [ONE])),
    *(({"may": "another", "must": "another"}, [TWO, ONE]), ({"may": 2, "must": 1}, []), ({"must": 1, "may": 2}, [])),
]
CASES = [
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


@on_module_loop
async def test_values_arrive_as_the_vectors_say(shared: Bench) -> None:
    rows = vectors("conversions")["edges"]
    nodes = {f"from{i}": give(row["value"], row["from"]) for i, row in enumerate(rows)}
    nodes |= {f"to{i}": take(row["to"]) for i, row in enumerate(rows)}
    run = await shared.run(workflow(nodes, *(f"from{i} > to{i}" for i in range(len(rows)))))
    with Failures() as failures:
        for i, row in enumerate(rows):
            with failures.row(row):
                found = run.nodes[f"to{i}"]
                if "refused" in row:
                    assert found.error is not None and row["refused"] in found.error.message
                else:
                    assert repr(found.output) == repr({"value": row["arrives"]})  # by which 1, 1.0 and True differ


@on_module_loop
async def test_edges_count_in_the_order_of_the_vectors(shared: Bench) -> None:
    cases = [one for one in vectors("edge_orders")["cases"] if len(one["counts"]) == len(one["handles"])]
    document: dict[str, Any] = {"nodes": [], "edges": []}
    for i, one in enumerate(cases):
        order = {"inputConnectionOrders": {"text_inputs": [f"{i}{name}" for name in one["order"]]}}
        document["nodes"].append({"id": f"{i}", "type": "core:TextMerge", "inputValues": {"separator": " "}, **order})
        for place, handle in enumerate(one["handles"]):
            name = f"e{place}"
            document["nodes"].append({"id": f"{i}{name}", "type": "core:Text", "inputValues": {"text": name}})
            ends = f"{i}{name}.text", f"{i}.{handle.replace('k', 'text_inputs', 1)}"
            document["edges"].append(edge(f"{i}{name}", *ends))
    run = await shared.run(Workflow.model_validate(document))
    merged = [output(run, f"{i}", "merged_text") for i in range(len(cases))]
    assert merged == [" ".join(one["counts"]) for one in cases]


def test_a_value_that_cannot_change_has_no_converter() -> None:
    anything, text = (SlotDefinition(data_flow_type=DataFlowType(kind)) for kind in ("WILDCARD", "STRING"))
    chat = SlotDefinition(data_flow_type=DataFlowType.OBJECT, match_categories=("Chat",))
    open_chat = chat.model_copy(update={"data_flow_type": DataFlowType.WILDCARD})
    for source, target in ((text, text), (anything, anything), (open_chat, chat)):
        assert converter(source, target) is None


def test_numbers_become_text_as_the_platform_writes_them() -> None:
    texts = [text_of(value) for value in (True, 0, -0.0, 1e20, float("nan"))]
    assert texts == ["true", "0", "0", "100000000000000000000", "NaN"]
