"""What a `*.tool.json` may say, and what its author is told when it is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tavern_host.contracts.tools import ToolDefinition
from tavern_tools.files import ToolFolder, read_file, read_folders, stamps

SCRIPT = {"type": "script", "command": "python fetch.py", "protocol": "stdio", "timeout": 30000}


def read(tmp_path: Path, document: Any) -> tuple[ToolDefinition | None, list[str]]:
    path = tmp_path / "a.tool.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
    definition, problems = read_file(path, "acme")
    return definition, [str(problem).removeprefix(f"{path}:").strip() for problem in problems]


def problems_of(tmp_path: Path, document: Any) -> list[str]:
    definition, problems = read(tmp_path, document)
    assert definition is None
    return problems


def test_the_first_form_is_id_and_implementation(tmp_path: Path) -> None:
    definition, problems = read(
        tmp_path,
        {
            "id": "Acme:fetch",
            "displayName": "获取",
            "description": "Fetches.",
            "implementation": SCRIPT,
            "parameters": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
            "configSchema": [{"key": "cookie", "type": "string"}],
        },
    )
    assert problems == []
    assert definition is not None
    assert (definition.id, definition.kind, definition.display_name) == ("Acme:fetch", "script", "获取")
    assert (definition.implementation.command, definition.implementation.timeout) == ("python fetch.py", 30000)
    assert definition.implementation.model_extra == {"protocol": "stdio"}
    assert definition.parameters["required"] == ["url"]
    assert (definition.plugin, definition.source) == ("acme", str(tmp_path / "a.tool.json"))
    assert definition.config_schema == [{"key": "cookie", "type": "string"}]


def test_the_second_form_is_tool_id_and_handler(tmp_path: Path) -> None:
    definition, problems = read(
        tmp_path,
        {
            "toolId": "core:run",
            "displayName": "Run",
            "description": "Runs.",
            "version": "1.2.0",
            "handler": {"type": "service-method", "serviceName": "WorkflowThing", "methodName": "doIt"},
            "output": {"type": "object"},
            "securityContext": {"networkAccess": {"allowHosts": []}},
            "examples": [{"description": "One.", "input": {}}],
            "tags": ["core"],
        },
    )
    assert problems == []
    assert definition is not None
    assert (definition.id, definition.kind, definition.version) == ("core:run", "service", "1.2.0")
    assert (definition.implementation.service, definition.implementation.method) == ("WorkflowThing", "doIt")
    assert (definition.output, definition.tags) == ({"type": "object"}, ["core"])


def test_an_external_script_names_its_language(tmp_path: Path) -> None:
    handler = {"type": "external-script", "scriptPath": "a.py", "language": "python"}
    definition, _ = read(tmp_path, {"toolId": "a", "handler": handler})
    assert definition is not None
    assert (definition.kind, definition.implementation.script_path) == ("script", "a.py")
    assert problems_of(tmp_path, {"toolId": "a", "handler": {"type": "external-script", "scriptPath": "a.py"}}) == [
        '$.handler: a tool of type "external-script" needs "language" beside its "scriptPath"'
    ]


def test_every_problem_of_a_file_is_told_with_its_json_path(tmp_path: Path) -> None:
    document = {
        "id": " padded ",
        "description": 7,
        "implementation": {"type": "script", "timeout": -1, "command": ["python"]},
        "parameters": {"type": "object", "properties": {"url": {"type": "text", "pattern": "["}}},
        "tags": ["fine", 3],
    }
    assert problems_of(tmp_path, document) == [
        '$.id: expected a name without spaces around it, got " padded "',
        '$.implementation.command: expected text, got an array: ["python"]',
        "$.implementation.timeout: expected milliseconds, a number above 0, got -1",
        "$.description: expected text, got an integer: 7",
        '$.parameters.properties.url.type: expected one of "string", "integer", "number", "boolean", "array", '
        '"object", "null" or a list of them, got "text"',
        "$.parameters.properties.url.pattern: '[' is not a 'regex'",
        "$.tags[1]: expected text, got an integer",
    ]


def test_a_syntax_error_is_told_with_line_and_column(tmp_path: Path) -> None:
    assert problems_of(tmp_path, '{\n  "id": "a",\n  oops\n}') == [
        "is not JSON: line 3, column 3: Expecting property name enclosed in double quotes"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must hold a JSON object, not an array"),
        ("[" * 100_000, "is not JSON that can be read: nested too deeply"),
    ],
)
def test_json_that_is_no_tool_is_told(tmp_path: Path, text: str, message: str) -> None:
    assert problems_of(tmp_path, text) == [message]


def test_a_number_that_json_cannot_write_is_told(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, '{"id": NaN}')
    assert problem.startswith("holds what JSON has no form for: ")


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.tool.json").write_bytes(b'{"id": "\xff"}')
    definition, problems = read_file(tmp_path / "a.tool.json", None)
    assert definition is None
    assert [p.message for p in problems] == ["is not UTF-8 text (byte 8)"]


def test_an_unknown_type_is_told_with_the_near_one(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, {"id": "a", "implementation": {"type": "workflows"}})
    assert problem.startswith('$.implementation.type: expected one of "workflow", "node"')
    assert problem.endswith('got "workflows" (did you mean workflow?)')


@pytest.mark.parametrize(
    ("implementation", "needs"),
    [
        ({"type": "workflow"}, '"workflowId"'),
        ({"type": "node"}, '"nodeType"'),
        ({"type": "service", "service": "toolManager"}, '"method"'),
        ({"type": "script"}, '"command", or "scriptPath" and "language"'),
    ],
)
def test_each_type_says_what_it_needs(tmp_path: Path, implementation: dict[str, Any], needs: str) -> None:
    [problem] = problems_of(tmp_path, {"id": "a", "implementation": implementation})
    assert problem == f'$.implementation: a tool of type "{implementation["type"]}" needs {needs}'


def test_ids_of_workflow_tools_are_reserved(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, {"id": "workflow:mine", "implementation": SCRIPT})
    assert problem == '$.id: ids that begin with "workflow:" are made from workflows; choose another'


def test_two_spellings_that_differ_are_a_problem(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, {"id": "a", "toolId": "b", "implementation": SCRIPT})
    assert problem == '$.toolId: says something else than "id"; give one of the two'


@pytest.mark.parametrize("reference", ["http://example.com/s.json", "#/$defs/absent"])
def test_a_schema_may_only_refer_to_parts_of_itself(tmp_path: Path, reference: str) -> None:
    parameters = {"type": "object", "properties": {"a": {"$ref": reference}}}
    [problem] = problems_of(tmp_path, {"id": "a", "implementation": SCRIPT, "parameters": parameters})
    assert problem.startswith(f"$.parameters.properties.a.$ref: refers to '{reference}'")


def test_parameters_are_an_object(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, {"id": "a", "implementation": SCRIPT, "parameters": {"type": "array"}})
    assert problem == '$.parameters.type: expected "object", got "array"'


def test_a_misspelled_key_is_a_warning_and_an_unknown_one_nothing(tmp_path: Path) -> None:
    definition, problems = read(tmp_path, {"id": "a", "implementation": SCRIPT, "paramters": {}, "x-owner": "me"})
    assert definition is not None
    assert problems == ["$.paramters: is not a key of a tool and is left unread (did you mean parameters?)"]


def test_a_bad_file_does_not_keep_the_others_from_loading(tmp_path: Path) -> None:
    (tmp_path / "a.tool.json").write_text("{")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.tool.json").write_text(json.dumps({"id": "b", "implementation": SCRIPT}))
    (tmp_path / "note.json").write_text("not a tool")
    files = read_folders([ToolFolder(str(tmp_path), None), ToolFolder(str(tmp_path / "absent"), None)])
    assert [d.id for d in files.definitions] == ["b"]
    assert [p.file for p in files.problems] == [str(tmp_path / "a.tool.json")]


def test_a_changed_file_has_another_stamp(tmp_path: Path) -> None:
    folder = str(tmp_path)
    (tmp_path / "a.tool.json").write_text("{}")
    before = stamps(folder)
    (tmp_path / "a.tool.json").write_text("{ }")
    assert stamps(folder) != before
