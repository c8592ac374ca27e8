"""JSON Schemas from slots: the mapping of a workflow's interface and of a node's inputs.

Binary data is given as a file: the text is its path in the project's files folder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import JsonValue

from tavern_host.contracts.nodes import DataFlowType, SlotDefinition
from tavern_host.contracts.workflows import InterfaceSlot
from tavern_tools.api.projectfiles import PROJECT_FILE

Schema = dict[str, JsonValue]

_TYPES = {
    DataFlowType.STRING: "string",
    DataFlowType.INTEGER: "integer",
    DataFlowType.FLOAT: "number",
    DataFlowType.BOOLEAN: "boolean",
    DataFlowType.OBJECT: "object",
    DataFlowType.ARRAY: "array",
    DataFlowType.BINARY: "string",
}

_FILE_NOTE = "(a file: its path in the project's files folder)"


def interface_parameters(inputs: Mapping[str, InterfaceSlot]) -> Schema:
    """Return the parameters of a workflow with these interface inputs, one property for each."""
    used = {key: slot for key, slot in inputs.items() if not is_placeholder(slot)}
    return {
        "type": "object",
        "properties": {
            key: _property(slot, slot.description if slot.description is not None else slot.custom_description)
            for key, slot in used.items()
        },
        "required": [key for key, slot in used.items() if slot.required],
    }


def node_parameters(inputs: Mapping[str, SlotDefinition]) -> Schema:
    """Return the parameters of a node with these inputs.

    A slot with a value of its own need not be given; a `multi` slot takes an array.
    """
    required: list[JsonValue] = [key for key, slot in inputs.items() if slot.required and not slot.has_default]
    properties: Schema = {key: _node_property(slot) for key, slot in inputs.items()}
    return {"type": "object", "properties": properties, "required": required}


def taken(inputs: Mapping[str, SlotDefinition]) -> dict[str, Schema]:
    """Return the JSON Schema of each of these inputs, with its default."""
    return {
        key: _node_property(slot) | ({"default": slot.default} if slot.default is not None else {})
        for key, slot in inputs.items()
    }


def file_parameters(inputs: Mapping[str, SlotDefinition]) -> frozenset[str]:
    """Return which parameters are files by their path: what the tool gets is their content."""
    return frozenset(key for key, slot in inputs.items() if slot.data_flow_type is DataFlowType.BINARY)


def streaming(outputs: Mapping[str, SlotDefinition]) -> frozenset[str]:
    """Return which outputs come as streams."""
    return frozenset(key for key, slot in outputs.items() if slot.is_stream and not is_placeholder(slot))


def is_placeholder(slot: SlotDefinition) -> bool:
    """Return whether this is the hollow slot that an editor offers for the next connection."""
    return bool(
        slot.allow_dynamic_type
        and slot.data_flow_type is DataFlowType.CONVERTIBLE_ANY
        and slot.display_name in (None, "*")
    )


def _property(slot: SlotDefinition, description: str | None) -> Schema:
    schema: Schema = {}
    if slot.data_flow_type in _TYPES:
        schema["type"] = _TYPES[slot.data_flow_type]
    if slot.data_flow_type is DataFlowType.BINARY:
        description = f"{description} {_FILE_NOTE}" if description else _FILE_NOTE
    if slot.data_flow_type is DataFlowType.BINARY or (slot.config or {}).get("format") == PROJECT_FILE:
        schema["format"] = PROJECT_FILE
    if description:
        schema["description"] = description
    choices = _choices(slot)
    if choices:
        schema["enum"] = choices
    return schema


def _node_property(slot: SlotDefinition) -> Schema:
    schema = _property(slot, slot.description) | _bounds(slot)
    if not slot.multi:
        return schema
    description = schema.pop("description", None)
    array: Schema = {"type": "array", "items": schema}
    return array if description is None else array | {"description": description}


def _choices(slot: SlotDefinition) -> list[JsonValue]:
    if "ComboOption" not in (slot.match_categories or ()):
        return []
    suggestions = (slot.config or {}).get("suggestions")
    if not isinstance(suggestions, list):
        return []
    return [s["value"] if isinstance(s, dict) and "value" in s else s for s in suggestions]


def _bounds(slot: SlotDefinition) -> Schema:
    if slot.data_flow_type not in (DataFlowType.INTEGER, DataFlowType.FLOAT):
        return {}
    config = slot.config or {}
    named = (("min", "minimum"), ("max", "maximum"))
    return {keyword: config[key] for key, keyword in named if _is_number(config.get(key))}


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
