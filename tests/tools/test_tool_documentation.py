"""What a language model reads about a tool."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.catalog.documentation import describe_tool, describe_unknown, tool_schema


def tool(parameters: dict[str, Any] | None = None, **values: Any) -> ToolDefinition:
    given = {} if parameters is None else {"parameters": parameters}
    implementation = ToolImplementation(kind="workflow", workflow_id="w")
    return ToolDefinition(
        id="Files.Edit", description="Replaces lines.", implementation=implementation, **given, **values
    )


def test_parameters_are_listed_with_type_need_description_and_choices() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file,\n  an absolute path."},
            "mode": {"type": "string", "enum": ["once", "all"], "default": "once"},
            "lines": {"type": "array", "items": {"type": "integer"}},
            "any": {},
            "limit": {"type": ["integer", "null"]},
            "where": {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]},
        },
        "required": ["path"],
    }
    assert describe_tool(tool(parameters)) == (
        "- Tool ID: Files.Edit\n"
        "  - Description: Replaces lines.\n"
        "  - Parameters:\n"
        "    - path (string, required): The file, an absolute path.\n"
        '    - mode (string, optional): One of: "once", "all". Default: "once".\n'
        "    - lines (array of integer, optional)\n"
        "    - any (any, optional)\n"
        "    - limit (integer or null, optional)\n"
        "    - where (object, optional)\n"
        "      - line (integer, required)"
    )


def test_a_tool_without_parameters_says_so() -> None:
    assert describe_tool(tool()).endswith("  - Parameters: none")


def test_a_tool_that_cannot_be_called_says_why() -> None:
    assert "  - Cannot be called now: needs service x\n" in describe_tool(tool(unavailable="needs service x"))


def test_an_unknown_id_is_named() -> None:
    assert describe_unknown("a:b") == "- Tool ID: a:b\n  - Cannot be called: no tool has this id"


def test_the_schema_has_name_description_and_parameters() -> None:
    assert tool_schema(tool()) == {
        "name": "Files.Edit",
        "description": "Replaces lines.",
        "parameters": {"type": "object", "properties": {}},
    }


def test_how_a_tool_is_called_is_noted() -> None:
    notes = describe_tool(tool(is_async=True, requires_approval={"required": ["force"]}))
    assert "  - Note: some calls wait until a person approves it\n" in notes
    assert "  - Note: a call gives a task id at once; system:task_result gives its result\n" in notes
    assert "  - Note: each call waits until a person approves it\n" in describe_tool(tool(requires_approval=True))


def test_bounds_choices_and_what_is_referred_to_are_told() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "maximum": 9},
            "kind": {"const": "line"},
            "mode": {"enum": ["a", 1]},
            "at": {"$ref": "#/$defs/place", "description": "Where."},
            "list": {"type": "array", "maxItems": 3, "items": {"$ref": "#/$defs/place"}},
            "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/place"}]},
        },
        "$defs": {"place": {"type": "object", "properties": {"next": {"$ref": "#/$defs/place"}}, "required": ["next"]}},
    }
    lines = describe_tool(tool(parameters)).splitlines()[3:]
    assert lines[0] == "    - n (integer, optional): At least 1. At most 9."
    assert lines[1] == '    - kind (string, optional): One of: "line".'
    assert lines[2] == '    - mode (string or integer, optional): One of: "a", 1.'
    assert lines[3:5] == ["    - at (object, optional): Where.", "      - next (object, required)"]
    assert "    - list (array of object, optional): At most 3 items." in lines
    assert "    - either (null or object, optional)" in lines
    assert len(lines) < 20


def test_examples_are_told_with_their_arguments() -> None:
    examples: list[dict[str, Any]] = [
        {"description": "Replaces\none line.", "input": {"path": "a.py", "n": 1}},
        {"input": {}},
        {"description": "third", "input": {}},
        {"description": "too many", "input": {}},
    ]
    assert describe_tool(tool(examples=examples)).endswith(
        '  - Examples:\n    - Replaces one line: {"path": "a.py", "n": 1}\n    - {}\n    - third: {}'
    )


def test_bounds_are_told_in_words_that_fit_their_number() -> None:
    properties: dict[str, Any] = {
        "one": {"type": "string", "minLength": 1, "maxLength": 2},
        "none": {"type": "array", "minItems": 0, "maxItems": 1},
        "zero": {"type": "integer", "minimum": 0},
    }
    assert describe_tool(tool({"type": "object", "properties": properties})).splitlines()[-3:] == [
        "    - one (string, optional): At least 1 character. At most 2 characters.",
        "    - none (array, optional): At most 1 item.",
        "    - zero (integer, optional): At least 0.",
    ]
