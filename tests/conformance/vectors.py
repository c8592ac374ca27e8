"""Fills in what the rules in Python say of the cases in the JSON files here; a new case is written without that.

Names and descriptions of slots are left out: they are for people, and nothing follows from them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tavern_engine.compile.values import interface_values
from tavern_host.contracts.nodes import DataFlowType, NodeDefinition, SlotDefinition
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_nodes.nodes.group import LOOP_ZONE
from tavern_workflows.api.dataflow import (
    BEHAVIOR_WILDCARD,
    collected,
    compatible,
    converter,
    edge_order,
    find_output,
    find_slot,
)
from tavern_workflows.api.loops import enclosing_zones, zone_of
from tavern_workflows.check import check
from tavern_workflows.check_context import CheckContext
from tavern_workflows.report import Hints
from tavern_workflows.shape import read

FOLDER = Path(__file__).parent
Item = dict[str, Any]


def vectors(name: str) -> Item:
    """Return the vectors of a kind, with what the rules say now."""
    inputs = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return {**inputs, **RULES[name](inputs)}


def rendered(name: str) -> str:
    """Return the vectors of a kind as their file has them, each case in a line."""
    parts = []
    for key, value in vectors(name).items():
        rows = [json.dumps(row, ensure_ascii=False) for row in (value if isinstance(value, list) else [value])]
        text = "[\n  " + ",\n  ".join(rows) + "\n ]" if isinstance(value, list) else rows[0]
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def slot_pairs(_: Item) -> Item:
    """Every pair of slots: by output, for each input `.` where an edge may be, else `s` (a batch output and a stream
    input) or `t` (the types)."""
    facets = itertools.product(DataFlowType, (None, ("Chat",), (BEHAVIOR_WILDCARD,)), (None, True))
    slots = [SlotDefinition(data_flow_type=kind, match_categories=c, is_stream=s) for kind, c, s in facets]

    def verdict(source: SlotDefinition, target: SlotDefinition) -> str:
        problem = compatible(source, target)
        return "." if problem is None else "s" if "stream" in problem else "t"

    verdicts = ["".join(verdict(source, target) for target in slots) for source in slots]
    return {"slots": [slot.to_json() for slot in slots], "verdicts": verdicts}


def conversions(inputs: Item) -> Item:
    """What arrives of a value on an edge, or why it is refused; what a stream becomes in an input that is none."""

    def arriving(row: Item) -> Item:
        convert = converter(_slot(row["from"]), _slot(row["to"]))
        try:
            return {"arrives": row["value"] if convert is None else convert(row["value"])}
        except ValueError as error:
            return {"refused": str(error)}

    edges = [{key: row[key] for key in ("from", "to", "value")} | arriving(row) for row in inputs["edges"]]
    streams = [{**row, "arrives": collected(row["items"], _slot(row["to"]))} for row in inputs["streams"]]
    return {"edges": edges, "streams": streams}


def _slot(kind: str) -> SlotDefinition:
    return SlotDefinition(data_flow_type=DataFlowType(kind))


def handles(inputs: Item) -> Item:
    """Which slot a handle names: of inputs the key and the place, of outputs whether there is one."""
    slots, rows = _slots(inputs["slots"]), []
    for row in inputs["rows"]:
        handle, dynamic = row["handle"], row["isDynamic"]
        found, output = find_slot(slots, handle, dynamic=dynamic), find_output(slots, handle, dynamic=dynamic)
        rows.append({**row, "input": found and [found[0], found[2]], "isOutput": output is not None})
    return {"rows": rows}


def _slots(slots: Mapping[str, Item]) -> dict[str, SlotDefinition]:
    return {key: SlotDefinition.model_validate(slot) for key, slot in slots.items()}


def edge_orders(inputs: Item) -> Item:
    """In which order edges into the input `k` count, which the document has by their `handles`."""
    cases = []
    for case in inputs["cases"]:
        node = WorkflowNode(id="n", type="acme:N", input_connection_orders={"k": case["order"]})
        found = [find_slot(_slots(case["slots"]), handle) for handle in case["handles"]]
        edges = [
            (f"e{index}", slot[2], index) for index, slot in enumerate(found) if slot is not None and slot[0] == "k"
        ]
        cases.append({**case, "counts": [edge[0] for edge in sorted(edges, key=edge_order(node, "k"))]})
    return {"cases": cases}


def slots_of_nodes(source: Item) -> Item:
    """The slots of a node, and for whom they are: of a loop those inside too."""
    known = [NodeDefinition.model_validate(one) for one in source["definitions"] if one["namespace"] != "core"]
    by_type = {one.full_type: one for one in (*known, LOOP_ZONE)}
    groups = {key: Workflow.model_validate(one) for key, one in source["groups"].items()}
    cases = []
    for case in source["cases"]:
        document = {**source["interface"], "nodes": [case["node"]]}
        checked = CheckContext(read(document), by_type, groups, Hints([])).nodes["n"]
        zone, inputs, outputs = checked.zone, checked.inputs, checked.outputs
        if zone is not None:  # `in__key` is an input outside, and an output inside
            inputs, outputs = zone.outer_inputs, {k: s for k, s in outputs.items() if k not in zone.inner_outputs}
        cases.append({"node": case["node"], "isKnown": checked.is_known, "isDynamic": checked.dynamic}
            | {"inputs": _bare(inputs), "outputs": _bare(outputs)}
            | {"innerInputs": _bare(zone.inner_inputs if zone else {})}
            | {"innerOutputs": _bare(zone.inner_outputs if zone else {})})  # fmt: skip
    return {"definitions": [one.to_json() for one in by_type.values()], "cases": cases}


_FACETS = ("dataFlowType", "isStream", "multi", "required", "matchCategories", "isBranch")


def _bare(slots: Mapping[str, SlotDefinition]) -> Item:
    """Return the facets of slots from which something follows."""
    return {
        key: {facet: value for facet, value in slot.to_json().items() if facet in _FACETS and value}
        | ({} if slot.default is None else {"default": slot.default})
        for key, slot in slots.items()
    }


_ENDS = ("source", "sourceHandle", "target", "targetHandle")


def borders(inputs: Item) -> Item:
    """By output, for each input `.` where an edge may be, else `x`: where it crosses the borders of loops wrongly, and
    where a node of this kind feeds itself."""
    known = {one.full_type: one for one in map(NodeDefinition.model_validate, inputs["definitions"])}
    verdicts = []
    for output in inputs["outputs"]:
        edges = [dict(zip(_ENDS, f"{output}.{into}".split("."), strict=True), id=into) for into in inputs["inputs"]]
        found = check(read({"nodes": inputs["nodes"], "edges": edges}), known)
        refused = {problem.path for problem in found if problem.severity == "error"}
        verdicts.append("".join("x" if f"$.edges[{place}]" in refused else "." for place in range(len(edges))))
    return {"verdicts": verdicts}


def zones(inputs: Item) -> Item:
    """The innermost loop that each node lies in."""
    nodes = [(case, map(WorkflowNode.model_validate, case["nodes"])) for case in inputs["cases"]]
    return {"cases": [{**case, "within": enclosing_zones(each)} for case, each in nodes]}


def checks(inputs: Item) -> Item:
    """What both sides refuse before they ask the other: names in loops, inputs of a workflow that lack a value."""
    names = {
        kind: [{**one, "isAllowed": not zone_of(config(one["name"])).problems} for one in inputs[kind]]
        for kind, config in {
            "variables": lambda name: {"carried": [{"key": name}]},
            "conditions": lambda name: {"conditionSlot": name},
        }.items()
    }
    missing = [
        {**one, "missing": [found.slot for found in interface_values(Workflow.model_validate(one), one["values"])[1]]}
        for one in inputs["missing"]
    ]
    return {**names, "missing": missing}


RULES: dict[str, Callable[[Item], Item]] = {
    each.__name__: each for each in (slot_pairs, conversions, handles, edge_orders, borders, zones, checks)
} | dict.fromkeys(("derived_slots", "modes", "groups", "loops"), slots_of_nodes)
