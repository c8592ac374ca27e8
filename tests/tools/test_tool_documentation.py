"""What a language model reads about a tool."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.documentation import describe_tool, describe_unknown, tool_schema


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
