"""What a language model reads about a tool, and how slots become the JSON Schemas of tools."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures

from tavern_host.contracts.nodes import SlotDefinition
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_host.contracts.workflows import InterfaceSlot
from tavern_tools.catalog.documentation import describe_tool, describe_unknown, tool_schema
from tavern_tools.catalog.slots import file_parameters, interface_parameters, node_parameters


def tool(parameters: dict[str, Any] | None = None, **values: Any) -> ToolDefinition:
    more = {} if parameters is None else {"parameters": parameters}
    node = ToolImplementation(kind="workflow", workflow_id="w")
    return ToolDefinition(id="Files.Edit", description="Replaces lines.", implementation=node, **more, **values)


PLACE = {"$ref": "#/$defs/place"}
PARAMETERS: dict[str, tuple[Any, str]] = {
    # name: its schema, and what is said of it
    "path": (
        {"type": "string", "description": "The file,\n  an absolute path."},
        "(string, required): The file, an absolute path.",
    ),
    "mode": (
        {"type": "string", "enum": ["once", "all"], "default": "once"},
        '(string, optional): One of: "once", "all". Default: "once".',
    ),
    "lines": ({"type": "array", "items": {"type": "integer"}}, "(array of integer, optional)"),
    "any": ({}, "(any, optional)"),
    "limit": ({"type": ["integer", "null"]}, "(integer or null, optional)"),
    "where": (
        {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]},
        "(object, optional)\n      - line (integer, required)",
    ),
    "n": ({"type": "integer", "minimum": 1, "maximum": 9}, "(integer, optional): At least 1. At most 9."),
    "zero": ({"type": "integer", "minimum": 0}, "(integer, optional): At least 0."),
    "kind": ({"const": "line"}, '(string, optional): One of: "line".'),
    "either": ({"enum": ["a", 1]}, '(string or integer, optional): One of: "a", 1.'),
    "at": (PLACE | {"description": "Where."}, "(object, optional): Where.\n      - next (object, required)"),
    "all": ({"type": "array", "maxItems": 3, "items": PLACE}, "(array of object, optional): At most 3 items."),
    "one": (
        {"type": "string", "minLength": 1, "maxLength": 2},
        "(string, optional): At least 1 character. At most 2 characters.",
    ),
    "none": ({"type": "array", "minItems": 0, "maxItems": 1}, "(array, optional): At most 1 item."),
    "maybe": ({"anyOf": [{"type": "null"}, PLACE]}, "(null or object, optional)"),
}


def test_parameters_are_told_with_type_need_and_bounds() -> None:
    place = {"type": "object", "properties": {"next": PLACE}, "required": ["next"]}
    properties = {name: schema for name, (schema, _) in PARAMETERS.items()}
    schema = {"type": "object", "properties": properties, "required": ["path"], "$defs": {"place": place}}
    head, told = describe_tool(tool(schema)).split("  - Parameters:\n")
    assert head == "- Tool ID: Files.Edit\n  - Description: Replaces lines.\n"
    with Failures() as failures:
        for name, (_, said) in PARAMETERS.items():
            with failures.row(name):
                assert f"    - {name} {said}\n" in told + "\n"
    assert [line.split()[1] for line in told.splitlines() if line.startswith("    - ")] == list(PARAMETERS)
    assert len(told.splitlines()) < 30  # what refers to itself ends


def test_what_else_matters_for_a_call_is_noted() -> None:
    assert describe_tool(tool()).endswith("  - Parameters: none")
    assert describe_unknown("a:b") == "- Tool ID: a:b\n  - Cannot be called: no tool has this id"
    assert "  - Cannot be called now: needs service x\n" in describe_tool(tool(unavailable="needs service x"))
    notes = describe_tool(tool(is_async=True, requires_approval={"required": ["force"]}))
    assert "  - Note: some calls wait until a person approves it\n" in notes
    assert "  - Note: a call gives a task id at once; system:task_result gives its result\n" in notes
    assert "  - Note: each call waits until a person approves it\n" in describe_tool(tool(requires_approval=True))
    described: Any = {"description": "Replaces\none line.", "input": {"path": "a.py", "n": 1}}
    further: Any = [{"description": name, "input": {}} for name in ("third", "too many")]
    assert describe_tool(tool(examples=[described, {"input": {}}, *further])).endswith(
        '  - Examples:\n    - Replaces one line: {"path": "a.py", "n": 1}\n    - {}\n    - third: {}'
    )
    schema = {"name": "Files.Edit", "description": "Replaces lines."}
    assert tool_schema(tool()) == {**schema, "parameters": {"type": "object", "properties": {}}}


# --- slots ----------------------------------------------------------------------------------------


FILE = {"type": "string", "format": "project-file"}
NOTE = "(a file: its path in the project's files folder)"
COMBO = {"suggestions": [{"value": "short", "label": "Short"}, {"value": "long"}]}
HOLLOW = {"key": "input_0", "displayName": "*", "dataFlowType": "CONVERTIBLE_ANY", "allowDynamicType": True}
BOUNDS = {"min": float("-inf"), "max": True}
TYPES = {
    "STRING": "string",
    "INTEGER": "integer",
    "FLOAT": "number",
    "BOOLEAN": "boolean",
    "OBJECT": "object",
    "ARRAY": "array",
}
INTERFACE: Any = [
    # a slot of a workflow's interface, its schema
    *(({"dataFlowType": flow, "description": "It."}, {"type": t, "description": "It."}) for flow, t in TYPES.items()),
    *(
        ({"dataFlowType": flow, "description": "It."}, {"description": "It."})
        for flow in ("WILDCARD", "CONVERTIBLE_ANY")
    ),
    ({"dataFlowType": "BINARY", "description": "A picture."}, {**FILE, "description": f"A picture. {NOTE}"}),
    ({"dataFlowType": "INTEGER", "config": {"default": 3}}, {"type": "integer"}),
    (
        {"dataFlowType": "STRING", "matchCategories": ["ComboOption"], "config": COMBO},
        {"type": "string", "enum": ["short", "long"]},
    ),
    ({"dataFlowType": "STRING", "config": COMBO}, {"type": "string"}),
    (
        {"dataFlowType": "STRING", "description": "Inherited.", "customDescription": "Own."},
        {"type": "string", "description": "Inherited."},
    ),
    ({"dataFlowType": "STRING", "customDescription": "Own."}, {"type": "string", "description": "Own."}),
    (HOLLOW, None),
]
NODE: Any = [
    # an input of a node, its schema
    (
        {"dataFlowType": "INTEGER", "required": True, "config": {"default": 1, "min": 1, "max": 9}},
        {"type": "integer", "minimum": 1, "maximum": 9},
    ),
    (
        {"dataFlowType": "STRING", "multi": True, "description": "The parts."},
        {"type": "array", "items": {"type": "string"}, "description": "The parts."},
    ),
    ({"dataFlowType": "BINARY", "multi": True}, {"type": "array", "items": FILE, "description": NOTE}),
    # bounds that are no numbers, and those of other types
    ({"dataFlowType": "FLOAT", "config": BOUNDS}, {"type": "number"}),
    ({"dataFlowType": "STRING", "config": {"min": 1, "max": 2}}, {"type": "string"}),
]


def test_each_slot_becomes_a_parameter() -> None:
    text = {"dataFlowType": "STRING", "required": True}
    with Failures() as failures:
        for kind, make, rows in (
            (InterfaceSlot, interface_parameters, INTERFACE),
            (SlotDefinition, node_parameters, NODE),
        ):
            for slot, expected in rows:
                with failures.row(slot):
                    name = slot.get("key", "value")
                    schema = make({"text": kind.model_validate(text), name: kind.model_validate(slot)})
                    wanted = {"text": {"type": "string"}} | ({} if expected is None else {name: expected})
                    assert schema == {"type": "object", "properties": wanted, "required": ["text"]}
    assert interface_parameters({}) == {"type": "object", "properties": {}, "required": []}
    slots = {"image": InterfaceSlot(data_flow_type="BINARY"), "text": InterfaceSlot(data_flow_type="STRING")}
    assert file_parameters(slots) == {"image"}
