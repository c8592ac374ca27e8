"""What may flow along an edge, and how a value changes on the way.

Pure functions that checking and running a workflow share, so that both say the same.
"""

from __future__ import annotations

import base64
import binascii
import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.documents import json_type
from tavern_host.contracts.nodes import DataFlowType, NodeDefinition, SlotDefinition
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_workflows.api.loops import zone_of
from tavern_workflows.api.workflows import ERROR_OUTPUT, GROUP_INPUT, GROUP_OUTPUT, LOOP_ZONE, NODE_GROUP

Slots = Mapping[str, SlotDefinition]
Converter = Callable[[Any], Any]

ANY_TYPES = frozenset({DataFlowType.WILDCARD, DataFlowType.CONVERTIBLE_ANY})
"""The types that go with every other."""

BEHAVIOR_WILDCARD = "BehaviorWildcard"
"""The category that makes a slot go with every other, whatever its type."""

OPEN_SLOT = SlotDefinition(data_flow_type=DataFlowType.WILDCARD)
"""Stands for a slot that a node with `dynamicSlots` has without declaring it."""

GROUP_REFERENCE = "referencedWorkflowId"
"""The configuration of a `core:NodeGroup` that names the workflow it stands for."""

DEEPEST_GROUPS = 50
"""How deep groups may lie in one another, and loops in one workflow."""

MOST_NODES = 100_000
"""How many nodes a workflow may have when its groups are laid out: each group counts, and what is in it."""

_ERROR_SLOT = SlotDefinition(
    data_flow_type=DataFlowType.OBJECT, description="The error, where there was one.", is_branch=True
)

_TEXT_FROM = frozenset({DataFlowType.INTEGER, DataFlowType.FLOAT, DataFlowType.BOOLEAN})


def compatible(source: SlotDefinition, target: SlotDefinition) -> str | None:
    """Say why an edge from `source` to `target` cannot be, or return None where it can.

    In this order: a batch output cannot feed a stream (a stream may feed a batch input: it is
    collected); a wildcard category on either side; a shared category; the types.
    """
    if target.is_stream and not source.is_stream:
        return "a batch output cannot feed a stream input"
    if source.is_stream and not target.is_stream and target.data_flow_type is DataFlowType.ARRAY:
        return None  # the list of its items, whatever they are
    if _share_a_category(source, target):
        return None
    offered, wanted = source.data_flow_type, target.data_flow_type
    if offered == wanted or offered in ANY_TYPES or wanted in ANY_TYPES or _converts(offered, wanted):
        return None
    return f"{offered} does not go into {wanted}"


def converter(source: SlotDefinition, target: SlotDefinition) -> Converter | None:
    """Return the function that converts a value on an edge from `source` to `target`, or None where it stays as it is.

    What comes out of an output of any type is looked at when it comes: the converter raises `ValueError`
    where it does not have the target's type. Null passes where the target is not required.
    """
    offered, wanted = source.data_flow_type, target.data_flow_type
    if offered in ANY_TYPES and wanted not in ANY_TYPES and not _share_a_category(source, target):
        return lambda value: None if value is None and not target.required else coerce(target, value)
    return _CONVERTERS.get(wanted) if _converts(offered, wanted) else None


def _share_a_category(source: SlotDefinition, target: SlotDefinition) -> bool:
    if not source.match_categories and not target.match_categories:
        return False
    ours, theirs = set(source.match_categories or ()), set(target.match_categories or ())
    return BEHAVIOR_WILDCARD in ours | theirs or bool(ours & theirs)


def empty_value(kind: DataFlowType) -> Any:
    """Return the empty value of a type, which a bypassed node gives: `""`, 0, false, `{}`, `[]`; else None."""
    return copy.copy(_EMPTY.get(kind))


_EMPTY: dict[DataFlowType, Any] = {
    DataFlowType.STRING: "",
    DataFlowType.INTEGER: 0,
    DataFlowType.FLOAT: 0.0,
    DataFlowType.BOOLEAN: False,
    DataFlowType.OBJECT: {},
    DataFlowType.ARRAY: [],
    DataFlowType.BINARY: b"",
}


def collected(items: list[Any], target: SlotDefinition | None = None) -> Any:
    """Return a stream's items as one value: a slot for text or for what can be converted, or none, gets all text of a
    stream of texts, any other slot the list of the items."""
    wants_text = target is None or target.data_flow_type in (DataFlowType.STRING, DataFlowType.CONVERTIBLE_ANY)
    if wants_text and items and all(issubclass(kind, str) for kind in set(map(type, items))):
        return "".join(items)
    return "" if not items and target is not None and target.data_flow_type is DataFlowType.STRING else list(items)


def literal_converter(target: SlotDefinition) -> Converter | None:
    """Return the function that converts a value that a creator wrote down for `target`, or None."""
    return _CONVERTERS.get(target.data_flow_type)


def _converts(offered: DataFlowType, wanted: DataFlowType) -> bool:
    if wanted is DataFlowType.FLOAT:
        return offered is DataFlowType.INTEGER
    return wanted is DataFlowType.STRING and offered in _TEXT_FROM


def _to_float(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    except OverflowError:
        raise ValueError("expected a number, got an integer too large for one") from None


def _to_text(value: Any) -> Any:
    return text_of(value) if isinstance(value, bool | int | float) else value


_CONVERTERS: dict[DataFlowType, Converter] = {DataFlowType.FLOAT: _to_float, DataFlowType.STRING: _to_text}


def text_of(value: bool | int | float) -> str:
    """Return the text of a boolean or number as the platform writes it: `true`, `3` for 3.0, `0.1`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)


def coerce(slot: SlotDefinition, value: Any) -> Any:
    """Return a value from outside (JSON) as the slot's type has it.

    Numbers and booleans become text, integers floats, whole floats integers, base64 text bytes, the JSON of a handle a
    `Blob`. Raises `ValueError` saying what was expected and what came; nothing is guessed from text.
    """
    wanted = slot.data_flow_type
    if wanted in ANY_TYPES:
        return value
    value = _adapt(wanted, value)
    expected, types = _EXPECTED[wanted]
    if not isinstance(value, types) or (isinstance(value, bool) and wanted is not DataFlowType.BOOLEAN):
        raise ValueError(f"expected {expected}, got {json_type(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected {expected}, got {value}")
    return value


def _adapt(wanted: DataFlowType, value: Any) -> Any:
    """Return the value in the wanted type where it has an exact form there, else as it is."""
    if wanted is DataFlowType.STRING:
        return _to_text(value)
    if wanted is DataFlowType.INTEGER and isinstance(value, float) and value.is_integer():
        return int(value)
    if wanted is DataFlowType.FLOAT:
        return _to_float(value)
    if wanted is DataFlowType.BINARY and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("expected binary data as base64 text, got other text") from None
    if wanted is DataFlowType.BINARY:
        return Blob.of(value) or value
    return value


_EXPECTED: dict[DataFlowType, tuple[str, type | tuple[type, ...]]] = {
    DataFlowType.STRING: ("text", str),
    DataFlowType.INTEGER: ("an integer", int),
    DataFlowType.FLOAT: ("a number", float),
    DataFlowType.BOOLEAN: ("a boolean", bool),
    DataFlowType.OBJECT: ("an object", dict),
    DataFlowType.ARRAY: ("an array", list),
    DataFlowType.BINARY: ("binary data as base64 text or the handle of a Blob", (bytes, Blob)),
}


def find_slot(slots: Slots, handle: str, *, dynamic: bool = False) -> tuple[str, SlotDefinition, int | None] | None:
    """Return the key, slot and position that an edge's handle names, or None where there is no such slot.

    `key__2` is the third place of the `multi` input `key`; a node with `dynamic` slots has any.
    """
    if handle in slots:
        return handle, slots[handle], None
    key, _, place = handle.rpartition("__")
    if key in slots and slots[key].multi and place.isascii() and place.isdigit() and len(place) < 10:
        return key, slots[key], int(place)
    return (handle, OPEN_SLOT, None) if dynamic and handle else None


def find_output(slots: Slots, handle: str, *, dynamic: bool = False) -> SlotDefinition | None:
    """Return the output that an edge's handle names, or None where there is no such slot; a node with `dynamic` slots
    has any."""
    return slots.get(handle) or (OPEN_SLOT if dynamic and handle else None)


def group_reference(node: WorkflowNode) -> str | None:
    """Return the id of the workflow that a group stands for, or None where it names none."""
    value = node.config_values.get(GROUP_REFERENCE)
    return value if isinstance(value, str) and value else None


def config_of(definition: NodeDefinition, node: WorkflowNode) -> dict[str, Any]:
    """Return a node's configuration: declared defaults, overridden by the type's values, overridden by its own."""
    schema = definition.config_schema or {}
    values = {key: slot.default for key, slot in schema.items() if slot.has_default}
    values |= definition.config_values or {}
    values |= node.config_values
    return {key: copy.deepcopy(v) if isinstance(v, dict | list) else v for key, v in values.items()}


def mode_of(definition: NodeDefinition, node: WorkflowNode) -> str | None:
    """Return the mode that a node's configuration selects, or None where its type has none."""
    return definition.mode(node.config_values)


def slots_of(
    node: WorkflowNode,
    definition: NodeDefinition | None,
    workflow: Workflow,
    groups: Mapping[str, Workflow] | None = None,
) -> tuple[Slots, Slots, bool]:
    """Return the input and output slots in force at a node, and whether it has others beside them.

    `core:GroupInput` and `core:GroupOutput` have those of the workflow's interface, `core:NodeGroup` those of the
    interface of the workflow, among `groups`, that it stands for, `core:LoopZone` those that its configuration
    says, of both its sides. Without a definition a node of another type has none.
    """
    if node.type == GROUP_INPUT:
        return {}, workflow.interface_inputs, False
    if node.type == GROUP_OUTPUT:
        return workflow.interface_outputs, {}, False
    if node.type == NODE_GROUP:
        group = (groups or {}).get(group_reference(node) or "")
        return (group.interface_inputs, group.interface_outputs, False) if group is not None else ({}, {}, False)
    if node.type == LOOP_ZONE:
        zone = zone_of(node.config_values)
        outputs: Slots = {**zone.inner_outputs, **zone.outer_outputs}
        return {**zone.outer_inputs, **zone.inner_inputs}, with_error_output(node, outputs), False
    if definition is None:
        return {}, {}, False
    inputs, outputs = definition.slots(node.config_values)
    return inputs, with_error_output(node, outputs), bool(definition.dynamic_slots)


def with_error_output(node: WorkflowNode, outputs: Slots) -> Slots:
    """Return a node's outputs with the one that its policy routes errors to, where it does."""
    if node.policy is None or node.policy.on_error != "route" or ERROR_OUTPUT in outputs:
        return outputs
    return {**outputs, ERROR_OUTPUT: _ERROR_SLOT}


def edge_order(node: WorkflowNode, key: str) -> Callable[[tuple[str, int | None, int]], tuple[int, int, int]]:
    """Return the sort key for the edges `(id, position, place in the document)` into a `multi` input.

    Edges that `inputConnectionOrders` names come first, in its order; then those whose handle says a
    position, by position; then the others, as the document has them.
    """
    orders = {edge: place for place, edge in enumerate(node.input_connection_orders.get(key, ()))}

    def place(edge: tuple[str, int | None, int]) -> tuple[int, int, int]:
        identifier, position, index = edge
        if identifier in orders:
            return 0, orders[identifier], index
        return (1, position, index) if position is not None else (2, 0, index)

    return place
