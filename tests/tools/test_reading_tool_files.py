"""What a `*.tool.json` may say, and what its author is told when it is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.contracts.json_positions import JsonText
from tavern_host.contracts.tools import ToolCaching, ToolDefinition, ToolRate
from tavern_tools.catalog.definitions import read_definition
from tavern_tools.catalog.files import ToolFolder, check, read_file, read_folders, stamps

SCRIPT = {"type": "script", "command": "python fetch.py", "protocol": "stdio", "timeout": 30000}


def read(tmp_path: Path, document: Any) -> tuple[ToolDefinition | None, list[str]]:
    path = tmp_path / "a.tool.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
    definition, problems = read_file(path, "acme")
    return definition, [problem.message for problem in problems]


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
    assert (definition.id, definition.kind, definition.version) == ("core:run", "service", "1.2.0")
    assert (definition.implementation.service, definition.implementation.method) == ("WorkflowThing", "doIt")
    assert (definition.output, definition.tags) == ({"type": "object"}, ["core"])


def test_an_external_script_names_its_language(tmp_path: Path) -> None:
    handler = {"type": "external-script", "scriptPath": "a.py", "language": "python"}
    definition, _ = read(tmp_path, {"toolId": "a", "handler": handler})
    assert (definition.kind, definition.implementation.script_path) == ("script", "a.py")
    [problem] = problems_of(tmp_path, {"toolId": "a", "handler": {"type": "external-script", "scriptPath": "a"}})
    assert problem.startswith('$.handler: a tool of type "external-script" needs "language" beside its "scriptPath"')


def test_every_problem_of_a_file_is_told_with_its_json_path(tmp_path: Path) -> None:
    document = {
        "id": " padded ",
        "description": 7,
        "implementation": {"type": "script", "timeout": -1, "command": ["python"]},
        "parameters": {"type": "object", "properties": {"url": {"type": "text"}}},
        "output": {"properties": {"a": {"pattern": "["}}},
        "tags": ["fine", 3],
    }
    assert problems_of(tmp_path, document) == [
        '$.id: expected a name without spaces around it, got " padded "',
        "$.description: expected text, got an integer: 7",
        "$.implementation.timeout: expected milliseconds, a number above 0, got -1",
        '$.implementation.command: expected text, got an array: ["python"]',
        '$.parameters.properties.url.type: expected one of "string", "integer", "number", "boolean", "array", '
        '"object", "null" or a list of them, got "text"',
        '$.output.properties.a.pattern: "[" is not a regular expression',
        "$.tags[1]: expected text, got an integer",
    ]


def test_a_syntax_error_is_told_with_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "a.tool.json"
    path.write_text('{\n  "id": "a",\n  oops\n}')
    _, [problem] = read_file(path, "acme")
    assert str(problem) == f"{path}:3:3: is not JSON: Expecting property name enclosed in double quotes"


MANY_WRONG = r"""{
  "tags": ["a", "\"]}{", 3],
  "parameters": {"properties": {"x y": {"type": ["string", "tall"]},
                                "z": {"minLength": -1}}},
  "id": " a",
  "versoin": "1"
}"""


@pytest.mark.parametrize("head", ["", "\ufeff"])
def test_every_problem_has_its_line_and_column_in_the_order_of_the_file(tmp_path: Path, head: str) -> None:
    path = tmp_path / "a.tool.json"
    path.write_text(head + MANY_WRONG, "utf-8")
    _, problems = read_file(path, None)
    assert [(p.line, p.column, p.message.partition(": ")[0]) for p in problems] == [
        (1, 1, "$"),
        (2, 26, "$.tags[2]"),
        (3, 41, '$.parameters.properties["x y"].type'),
        (4, 39, "$.parameters.properties.z.minLength"),
        (5, 3, "$.id"),
        (6, 3, "$.versoin"),
    ]
    assert [p.warning for p in problems] == [False, False, False, False, False, True]


def test_a_key_that_stands_twice_is_a_problem_where_it_does_so_again(tmp_path: Path) -> None:
    path = tmp_path / "a.tool.json"
    implementation = '{"type": "script",\n  "command": "x", "command": "y"}'
    path.write_text(f'{{"id": "a",\n "implementation": {implementation},\n "id": "b"}}')
    definition, problems = read_file(path, None)
    assert definition is None
    assert [str(p).removeprefix(str(path)) for p in problems] == [
        ":3:19: $.implementation.command: stands here twice: keep one of them",
        ":4:2: $.id: stands here twice: keep one of them",
    ]


def test_places_are_right_in_any_document() -> None:
    document = {"a": [1, {"b": [[], {}, "x", [[2]]], "": None}], 'c"\\{': {"d": True}, "é😀": [0.5, "😀"]}
    places: list[tuple[str | int, ...]] = [("a", 1, "b", 3, 0, 0), ("a", 1, ""), ('c"\\{', "d"), ("é😀", 1), ("a", 0)]
    for indent in (None, 1, 3):
        text = json.dumps(document, indent=indent, ensure_ascii=indent is None)
        for place in places:
            line, column = JsonText(text).marks([place])[place]
            rest = text.split("\n")[line - 1][column - 1 :]
            there = (
                json.JSONDecoder().raw_decode(rest)[0]
                if indent is None
                else json.loads(rest.strip(" ,{[").split(":")[0])
            )
            assert there == (place[-1] if isinstance(place[-1], str) else value_at(document, place))


def value_at(document: Any, place: tuple[str | int, ...]) -> Any:
    for part in place:
        document = document[part]
    return document


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must hold a JSON object, not an array"),
        ("[" * 100_000, "is not JSON: it is nested more than 100 levels deep"),
    ],
)
def test_json_that_is_no_tool_is_told(tmp_path: Path, text: str, message: str) -> None:
    assert problems_of(tmp_path, text) == [message]


def test_what_json_cannot_write_is_told_with_its_place(tmp_path: Path) -> None:
    assert problems_of(tmp_path, r'{"id": NaN, "tags": [1e999, "\ud800", -Infinity], "\udfff": 1}') == [
        "$: has a key with half of a character (a lone surrogate)",
        "$.id: expected a number that JSON can write, got nan",
        "$.tags[0]: expected a number that JSON can write, got inf",
        "$.tags[1]: holds half of a character (a lone surrogate)",
        "$.tags[2]: expected a number that JSON can write, got -inf",
    ]


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "half.tool.json").write_bytes(b'{"id": "\xed\xa0\xbd"}')
    _, problems = read_file(tmp_path / "half.tool.json", None)
    assert "holds half of a character" in str(problems[0])
    (tmp_path / "a.tool.json").write_bytes(b'{"id": "\xff"}')
    definition, problems = read_file(tmp_path / "a.tool.json", None)
    assert definition is None
    assert [p.message for p in problems] == ["is not UTF-8 text (byte 8)"]


def test_a_file_that_is_too_large_is_told_and_not_read_on(tmp_path: Path) -> None:
    assert problems_of(tmp_path, " " * (1 << 20) + "{}") == ["is larger than 1024 KiB"]


def test_links_are_read_and_one_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text(json.dumps({"id": "linked", "implementation": SCRIPT}))
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "a.tool.json").symlink_to(tmp_path / "elsewhere.json")
    (folder / "b.tool.json").symlink_to(tmp_path / "absent")
    (folder / "round").symlink_to(folder)
    (folder / "c.tool.json").mkdir()
    os.mkfifo(folder / "d.tool.json")
    files = read_folders([ToolFolder(str(folder), None)])
    assert [d.id for d in files.definitions] == ["linked"]
    assert [(Path(p.file or "").name, p.message.removesuffix(str(p.file))) for p in files.problems] == [
        ("b.tool.json", "there is no file "),
        ("c.tool.json", "is not a regular file"),
        ("d.tool.json", "is not a regular file"),
    ]


def test_an_unknown_type_is_told_with_the_near_one(tmp_path: Path) -> None:
    [problem] = problems_of(tmp_path, {"id": "a", "implementation": {"type": "workflows"}})
    assert problem.startswith('$.implementation.type: expected one of "workflow", "node"')
    assert problem.endswith('got "workflows" (did you mean workflow?)')


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


def test_how_a_tool_is_called_is_read(tmp_path: Path) -> None:
    document: dict[str, Any] = {
        "id": "a",
        "implementation": {**SCRIPT, "entryPoint": "main"},
        "async": True,
        "readOnly": True,
        "idempotent": True,
        "cache": {"seconds": 60, "shared": True},
        "timeout": 30000,
        "rateLimit": {"calls": 5, "seconds": 1.5},
        "concurrency": 2,
        "requiresApproval": {"properties": {"force": {"const": True}}, "required": ["force"]},
        "permissions": ["services.use:workflowManager:save"],
        "dependencies": ["kb:Query", "tool:x@^1", "service:llm", "node:core:A", "workflow:w"],
    }
    definition, problems = read(tmp_path, document)
    assert problems == []
    assert (definition.is_async, definition.read_only, definition.idempotent) == (True, True, True)
    assert definition.cache == ToolCaching(seconds=60, shared=True)
    assert definition.rate_limit == ToolRate(calls=5, seconds=1.5)
    assert (definition.timeout, definition.concurrency) == (30000, 2)
    assert definition.requires_approval == document["requiresApproval"]
    assert definition.dependencies == document["dependencies"]
    assert definition.implementation.model_extra == {"protocol": "stdio", "entryPoint": "main"}


def test_caching_is_written_in_three_ways(tmp_path: Path) -> None:
    rows: Any = [
        (True, ToolCaching(seconds=300)),
        (False, None),
        (5, ToolCaching(seconds=5)),
        ({"shared": True}, ToolCaching(seconds=300, shared=True)),
    ]
    with Failures() as failures:
        for cache, expected in rows:
            with failures.row(cache):
                definition, problems = read(tmp_path, {"id": "a", "implementation": SCRIPT, "cache": cache})
                assert (definition.cache, problems) == (expected, [])


def test_the_time_limit_of_the_implementation_is_that_of_the_tool_whose_own_comes_first(tmp_path: Path) -> None:
    definition, problems = read(tmp_path, {"id": "a", "implementation": SCRIPT})
    assert (definition and definition.timeout, problems) == (30000, [])
    definition, problems = read(tmp_path, {"id": "a", "implementation": SCRIPT, "timeout": 5})
    assert definition.timeout == 5
    assert problems == ["$.timeout: says 5, the implementation 30000: 5 is used"]


def test_what_a_key_may_not_say_is_told(tmp_path: Path) -> None:
    begins, refers = "ids that begin with", '["$ref"]: refers to'
    rows: Any = [
        ("id", "workflow:mine", f'{begins} "workflow:" are made from workflows; choose another'),
        ("id", "node:mine", f'{begins} "node:" are made from node types; choose another'),
        ("id", "mine@2", '"@" stands between an id and a range of versions; choose another than "mine@2"'),
        ("id", "x" * 201, "expected at most 200 characters, got 201"),
        ("toolId", "b", 'says something else than "id"; give one of the two'),
        ("implementation", {"type": "workflow"}, 'a tool of type "workflow" needs "workflowId"'),
        ("implementation", {"type": "node"}, 'a tool of type "node" needs "nodeType"'),
        ("implementation", {"type": "service", "service": "plugins"}, 'a tool of type "service" needs "method"'),
        ("implementation", {"type": "script"}, 'a tool of type "script" needs "command", or "scriptPath"'),
        ("parameters", {"type": "array"}, '.type: expected "object", got "array"'),
        *(
            ("parameters", {"properties": {"a": {"$ref": to}}}, f'.properties.a{refers} "{to}"')
            for to in ("http://example.com/s.json", "file:///etc/passwd", "#/$defs/absent", "#gone")
        ),
        ("async", "yes", 'expected true or false, got text: "yes"'),
        ("cache", -1, "expected true, seconds or an object with them, a number above 0, got -1"),
        ("cache", {"seconds": "5"}, '.seconds: expected seconds, a number above 0, got "5"'),
        ("timeout", True, "expected milliseconds, a number above 0, got true"),
        ("rateLimit", {"calls": 5}, '"seconds" is missing: a limit is {"calls": 10, "seconds": 60}'),
        ("rateLimit", {"calls": 0, "seconds": 1}, ".calls: expected a whole number from 1, got 0"),
        ("concurrency", 1.5, "expected a whole number from 1, got 1.5"),
        ("concurrency", 1e300, "expected a whole number from 1, got 1e+300"),
        ("requiresApproval", "always", 'expected true, false or a JSON Schema, got "always"'),
        ("dependencies", ["service: "], "[0]: expected tool:…, service:…, node:…, workflow:… or the id of a tool, got"),
        ("permissions", "all", 'expected an array, got text: "all"'),
        ("implementation", {**SCRIPT, "entryPoint": 3}, ".entryPoint: expected text, got an integer: 3"),
        ("implementation", {**SCRIPT, "protocol": "http"}, '.protocol: expected one of "stdio", "channel", got "http"'),
        ("implementation", {**SCRIPT, "tools": ["*"]}, ".tools: scripts of plugins are given no tools"),
        ("securityContext", {"networkAccess": []}, ".networkAccess: expected an object, got an array"),
        ("securityContext", {"networkAccess": {"allowHosts": "a.b"}}, ".networkAccess.allowHosts: expected an array"),
        ("securityContext", {"fileAccess": {"allowRead": [1]}}, ".fileAccess.allowRead[0]: expected text, got an inte"),
        ("securityContext", {"fileAccess": {"allow": []}}, ".fileAccess.allow: is not a key of fileAccess"),
        ("securityContext", {"requiredCapabilities": {}}, ".requiredCapabilities: expected an array, got an object"),
    ]
    with Failures() as failures:
        for key, value, problem in rows:
            with failures.row(key):
                [told] = problems_of(tmp_path, {"id": "a", "implementation": SCRIPT, key: value})
                assert told.removeprefix(f"$.{key}").removeprefix(": ").startswith(problem)


def test_settings_that_cannot_be_used_and_misspelled_wishes_are_warnings() -> None:
    document = {
        "id": "a",
        "implementation": SCRIPT,
        "configSchema": [{"key": "token", "type": "string", "label": "Token"}, {"key": "a b", "type": "password"}],
        "securityContext": {"networkAcess": {}, "x-ours": {}},
    }
    wishes = "$.securityContext.networkAcess: is not a key of securityContext and is left unread"
    # the kernel tells of the settings of plugins
    for plugin, settings in ((None, ["$.configSchema[1].key", "$.configSchema[1].label"]), ("acme", [])):
        definition, findings = read_definition(document, source="", plugin=plugin)
        assert definition is not None
        assert str(findings[0]) == f"{wishes} (did you mean networkAccess?)"
        assert [str(finding).partition(": ")[0] for finding in findings[1:]] == settings


def test_examples_that_the_tool_does_not_allow_are_warnings(tmp_path: Path) -> None:
    document = {
        "id": "a",
        "implementation": SCRIPT,
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "output": {"type": "string"},
        "examples": [
            {"input": {"n": 1}, "expectedOutput": "x"},
            {"input": {"m": 1}, "expectedOutput": 2},
            {"input": []},
        ],
    }
    definition, problems = read(tmp_path, document)
    assert definition is not None
    assert problems == [
        "$.examples[1].input.n: is required and missing",
        "$.examples[1].input.m: is no parameter of this tool",
        '$.examples[1].expectedOutput: 2 is not of type "string"',
        "$.examples[2].input: expected an object, got an array",
    ]


def test_a_version_that_no_range_finds_is_a_warning(tmp_path: Path) -> None:
    definition, problems = read(tmp_path, {"id": "a", "implementation": SCRIPT, "version": "newest"})
    assert (definition and definition.version) == "newest"
    assert problems == ['$.version: "newest" is no version like 1.2.3: no range of versions finds it']


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def multiplying(levels: int) -> dict[str, Any]:
    again = [{"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(levels)]
    return {"$ref": "#/$defs/l0", "$defs": {**{f"l{n}": s for n, s in enumerate(again)}, f"l{levels}": {}}}


def test_a_schema_that_could_take_endless_time_or_reach_out_is_refused() -> None:
    rows: Any = [
        ({"pattern": "(?=a)b"}, '.pattern: the pattern "(?=a)b" cannot be used: look-around and references to'),
        ({"patternProperties": {r"(a)\1": {}}}, r'.patternProperties["(a)\\1"]: the pattern "(a)\\1" cannot be used'),
        ({"pattern": "(a{1,1000}){1,1000}"}, ".pattern: "),
        (nested(5000), ": the schema is nested too deeply"),
        ({"enum": [*range(60_000)]}, ": the schema has more than 50000 values"),
        (multiplying(40), ": its references lead too far"),
        ({"properties": {"default": {"$ref": "http://x/"}}}, '.properties.default["$ref"]: refers to "http://x/"'),
        ({"items": {"$id": "http://x/", "$ref": "y"}}, '.items["$id"]: a schema within a schema has no name'),
        ({"description": "\ud800"}, ": holds what JSON has no form for: "),
        ({"minimum": float("nan")}, ": holds what JSON has no form for: "),
        ({"$dynamicRef": "http://x/#y"}, '["$dynamicRef"]: refers to "http://x/#y"'),
    ]
    with Failures() as failures:
        for schema, problem in rows:
            with failures.row(schema):
                document = {"id": "a", "implementation": SCRIPT, "output": schema}
                definition, findings = read_definition(document, source="a.tool.json", plugin=None)
                assert definition is None
                assert str(findings[0]).startswith(f"$.output{problem}")


def test_recursion_in_a_schema_and_many_parameters_are_fine(tmp_path: Path) -> None:
    many = {f"key{n}": {"type": "string", "minLength": 1} for n in range(10_000)}
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}}
    parameters = {"type": "object", "properties": {**many, "t": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}
    definition, problems = read(tmp_path, {"id": "a", "implementation": SCRIPT, "parameters": parameters})
    assert definition is not None
    assert problems == []


def test_files_are_checked_without_a_host(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    (tmp_path / "empty").mkdir()
    node = {"type": "node", "nodeType": "core:Uper"}
    documents = {"a": {"implementation": node}, "b": {"implementation": SCRIPT}}
    documents["c"] = {"implementation": SCRIPT, "version": "2"}
    documents["e"] = {"id": "e", "implementation": {"type": "service", "service": "plugin", "method": "get"}}
    for name, document in documents.items():
        (folder / f"{name}.tool.json").write_text(json.dumps({"id": "a", **document}))
    (folder / "d.tool.json").write_text('{"id": }')

    class Around:
        nodes = ("core:Upper",)
        workflows = ()

        def find(self, name: str) -> None: ...

    def unserved(definition: ToolDefinition) -> list[str]:
        implementation = definition.implementation
        return [f"there is no service {implementation.service}"] if definition.kind == "service" else []

    paths = [folder, folder / "a.tool.json", tmp_path / "empty", tmp_path / "absent.tool.json"]
    found = check(paths, Around(), unserved)
    assert [str(p).replace(f"{tmp_path}/", "") for p in found] == [
        "empty: there is no *.tool.json in it",
        "tools/a.tool.json: there is no node core:Uper (did you mean core:Upper?)",
        "tools/d.tool.json:1:8: is not JSON: Expecting value",
        "tools/e.tool.json: there is no service plugin",
        "absent.tool.json: there is no file absent.tool.json",
        'tools/a.tool.json: the tool "a" is defined in tools/b.tool.json, too',
        'tools/b.tool.json: the tool "a" is defined in tools/a.tool.json, too',
    ]
