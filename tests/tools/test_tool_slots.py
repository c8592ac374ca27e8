"""How slots become the JSON Schemas of tools."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures

from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.workflows import InterfaceSlot
from tavern_tools.catalog.slots import file_parameters, interface_parameters, node_parameters


def interface(**slots: dict[str, Any]) -> dict[str, Any]:
    return interface_parameters({key: InterfaceSlot.model_validate(slot) for key, slot in slots.items()})


def node(**slots: dict[str, Any]) -> dict[str, Any]:
    return node_parameters({key: SlotDefinition.model_validate(slot) for key, slot in slots.items()})


def test_each_data_flow_type_has_its_json_type() -> None:
    rows: Any = [
        ("STRING", {"type": "string"}),
        ("INTEGER", {"type": "integer"}),
        ("FLOAT", {"type": "number"}),
        ("BOOLEAN", {"type": "boolean"}),
        ("OBJECT", {"type": "object"}),
        ("ARRAY", {"type": "array"}),
        ("WILDCARD", {}),
        ("CONVERTIBLE_ANY", {}),
    ]
    with Failures() as failures:
        for flow_type, expected in rows:
            with failures.row(flow_type):
                schema = interface(value={"dataFlowType": flow_type, "description": "What it is."})
                assert schema["properties"]["value"] == {**expected, "description": "What it is."}


def test_binary_data_is_a_file_of_the_project_by_its_path() -> None:
    schema = interface(image={"dataFlowType": "BINARY", "description": "A picture."})
    note = "(a file: its path in the project's files folder)"
    assert schema["properties"]["image"] == {
        "type": "string",
        "format": "project-file",
        "description": f"A picture. {note}",
    }
    slots = {"image": InterfaceSlot(data_flow_type="BINARY"), "text": InterfaceSlot(data_flow_type="STRING")}
    assert file_parameters(slots) == {"image"}


def test_the_required_inputs_are_listed_and_defaults_are_left_out() -> None:
    schema = interface(
        text={"dataFlowType": "STRING", "required": True},
        count={"dataFlowType": "INTEGER", "required": False, "config": {"default": 3}},
    )
    assert schema == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["text"],
    }


def test_a_workflow_without_required_inputs_has_an_empty_list() -> None:
    assert interface() == {"type": "object", "properties": {}, "required": []}


def test_suggestions_are_an_enum_only_for_combo_options() -> None:
    config = {"suggestions": [{"value": "short", "label": "Short"}, {"value": "long"}]}
    schema = interface(
        length={"dataFlowType": "STRING", "matchCategories": ["ComboOption"], "config": config},
        title={"dataFlowType": "STRING", "config": config},
    )
    assert schema["properties"] == {
        "length": {"type": "string", "enum": ["short", "long"]},
        "title": {"type": "string"},
    }


def test_the_custom_description_stands_in_for_a_missing_one() -> None:
    schema = interface(
        both={"dataFlowType": "STRING", "description": "Inherited.", "customDescription": "Own."},
        one={"dataFlowType": "STRING", "customDescription": "Own."},
    )
    assert [part["description"] for part in schema["properties"].values()] == ["Inherited.", "Own."]


def test_the_hollow_slot_of_an_editor_is_no_parameter() -> None:
    hollow = {"key": "input_0", "displayName": "*", "dataFlowType": "CONVERTIBLE_ANY", "allowDynamicType": True}
    assert interface(input_0=hollow)["properties"] == {}


def test_a_node_input_with_a_default_need_not_be_given_and_its_bounds_count() -> None:
    schema = node(
        text={"dataFlowType": "STRING", "required": True},
        count={"dataFlowType": "INTEGER", "required": True, "config": {"default": 1, "min": 1, "max": 9}},
    )
    assert schema["required"] == ["text"]
    assert schema["properties"]["count"] == {"type": "integer", "minimum": 1, "maximum": 9}


def test_a_multi_input_of_a_node_takes_an_array() -> None:
    schema = node(texts={"dataFlowType": "STRING", "multi": True, "description": "The parts."})
    assert schema["properties"]["texts"] == {"type": "array", "items": {"type": "string"}, "description": "The parts."}


def test_bounds_that_are_no_numbers_and_those_of_other_types_are_left_out() -> None:
    config = {"min": float("-inf"), "max": True}
    schema = node(
        count={"dataFlowType": "FLOAT", "config": config},
        text={"dataFlowType": "STRING", "config": {"min": 1, "max": 2}},
    )
    assert schema["properties"] == {"count": {"type": "number"}, "text": {"type": "string"}}


def test_a_multi_input_of_files_takes_their_paths() -> None:
    schema = node(images={"dataFlowType": "BINARY", "multi": True})
    assert schema["properties"]["images"] == {
        "type": "array",
        "items": {"type": "string", "format": "project-file"},
        "description": "(a file: its path in the project's files folder)",
    }
