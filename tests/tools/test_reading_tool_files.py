"""What a `*.tool.json` may say, and what its author is told when it is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from helpers.repetition import Failures

from tavern_host.contracts.tools import ToolCaching, ToolDefinition, ToolRate
from tavern_tools.api.json_positions import JsonText
from tavern_tools.catalog.definitions import read_definition
from tavern_tools.catalog.files import ToolFolder, check, read_file, read_folders

SCRIPT = {"type": "script", "command": "python fetch.py", "protocol": "stdio", "timeout": 30000}
LIMIT = {"force": {"const": True}}
FIRST_FORM: dict[str, Any] = {
    **{"id": "Acme:fetch", "displayName": "获取", "implementation": {**SCRIPT, "entryPoint": "main"}, "timeout": 30000},
    **{"async": True, "readOnly": True, "idempotent": True, "concurrency": 2, "cache": {"seconds": 60, "shared": True}},
    "parameters": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
    "rateLimit": {"calls": 5, "seconds": 1.5},
    "requiresApproval": {"properties": LIMIT, "required": ["force"]},
    "permissions": ["services.use:workflowManager:save"],
    "dependencies": ["kb:Query", "tool:x@^1", "service:llm", "node:core:A", "workflow:w"],
    "configSchema": [{"key": "cookie", "type": "string"}],
}
SECOND_FORM = {
    **{"toolId": "core:run", "description": "Runs.", "version": "1.2.0", "tags": ["core"]},
    "handler": {"type": "service-method", "serviceName": "WorkflowThing", "methodName": "doIt"},
    "output": {"type": "object"},
    "securityContext": {"networkAccess": {"allowHosts": []}},
    "examples": [{"description": "One.", "input": {}}],
}
EXTERNAL = {"toolId": "a", "handler": {"type": "external-script", "scriptPath": "a.py", "language": "python"}}


def read(tmp_path: Path, document: Any) -> tuple[ToolDefinition | None, list[str]]:
    path = tmp_path / "a.tool.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
    definition, problems = read_file(path, "acme")
    return definition, [problem.message for problem in problems]


def test_tools_are_read_in_both_forms(tmp_path: Path) -> None:
    rows: Any = [
        (
            FIRST_FORM,
            {
                **{"id": "Acme:fetch", "kind": "script", "display_name": "获取", "is_async": True, "read_only": True},
                **{
                    "idempotent": True,
                    "cache": ToolCaching(seconds=60, shared=True),
                    "timeout": 30000,
                    "concurrency": 2,
                },
                **{"rate_limit": ToolRate(calls=5, seconds=1.5), "requires_approval": FIRST_FORM["requiresApproval"]},
                **{key: FIRST_FORM[key] for key in ("parameters", "permissions", "dependencies")},
                **{
                    "config_schema": FIRST_FORM["configSchema"],
                    "plugin": "acme",
                    "source": str(tmp_path / "a.tool.json"),
                },
            },
            {"command": "python fetch.py", "model_extra": {"protocol": "stdio", "entryPoint": "main"}},
        ),
        (
            SECOND_FORM,
            {
                **{
                    "id": "core:run",
                    "kind": "service",
                    "version": "1.2.0",
                    "tags": ["core"],
                    "output": {"type": "object"},
                },
                "security_context": SECOND_FORM["securityContext"],
            },
            {"service": "WorkflowThing", "method": "doIt"},
        ),
        (EXTERNAL, {"kind": "script"}, {"script_path": "a.py"}),
        # keys that are not known are left unread
        ({"id": "a", "implementation": SCRIPT, "x-owner": "me"}, {"timeout": 30000, "cache": None}, {}),
        ({"id": "a", "implementation": SCRIPT, "cache": True}, {"cache": ToolCaching(seconds=300)}, {}),
        ({"id": "a", "implementation": SCRIPT, "cache": False}, {"cache": None}, {}),
        ({"id": "a", "implementation": SCRIPT, "cache": 5}, {"cache": ToolCaching(seconds=5)}, {}),
        (
            {"id": "a", "implementation": SCRIPT, "cache": {"shared": True}},
            {"cache": ToolCaching(seconds=300, shared=True)},
            {},
        ),
    ]
    with Failures() as failures:
        for document, expected, how in rows:
            with failures.row(document):
                definition, problems = read(tmp_path, document)
                assert problems == []
                assert {key: getattr(definition, key) for key in expected} == expected
                assert {key: getattr(definition.implementation, key) for key in how} == how


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def multiplying(levels: int) -> dict[str, Any]:
    again = [{"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(levels)]
    return {"$ref": "#/$defs/l0", "$defs": {**{f"l{n}": s for n, s in enumerate(again)}, f"l{levels}": {}}}


BEGINS, REFERS = "ids that begin with", '["$ref"]: refers to'
WRONG: Any = [
    # a key, a value that it may not have, how the only problem begins, behind the key's path
    ("id", "workflow:mine", f'{BEGINS} "workflow:" are made from workflows; choose another'),
    ("id", "node:mine", f'{BEGINS} "node:" are made from node types; choose another'),
    ("id", "mine@2", '"@" stands between an id and a range of versions; choose another than "mine@2"'),
    ("id", "x" * 201, "expected at most 200 characters, got 201"),
    ("toolId", "b", 'says something else than "id"; give one of the two'),
    ("implementation", {"type": "workflows"}, '.type: expected one of "workflow", "node"'),
    ("implementation", {"type": "workflow"}, 'a tool of type "workflow" needs "workflowId"'),
    ("implementation", {"type": "node"}, 'a tool of type "node" needs "nodeType"'),
    ("implementation", {"type": "service", "service": "plugins"}, 'a tool of type "service" needs "method"'),
    ("implementation", {"type": "script"}, 'a tool of type "script" needs "command", or "scriptPath"'),
    (
        "implementation",
        {"type": "external-script", "scriptPath": "a"},
        'a tool of type "external-script" needs "language"',
    ),
    ("parameters", {"type": "array"}, '.type: expected "object", got "array"'),
    *(
        ("parameters", {"properties": {"a": {"$ref": to}}}, f'.properties.a{REFERS} "{to}"')
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
    # schemas that could take endless time, or reach out
    ("output", {"pattern": "(?=a)b"}, '.pattern: the pattern "(?=a)b" cannot be used: look-around and references to'),
    (
        "output",
        {"patternProperties": {r"(a)\1": {}}},
        r'.patternProperties["(a)\\1"]: the pattern "(a)\\1" cannot be used',
    ),
    ("output", {"pattern": "(a{1,1000}){1,1000}"}, ".pattern: "),
    ("output", {"enum": [*range(60_000)]}, "the schema has more than 50000 values"),
    ("output", multiplying(40), "its references lead too far"),
    (
        "output",
        {"properties": {"default": {"$ref": "http://x/"}}},
        '.properties.default["$ref"]: refers to "http://x/"',
    ),
    ("output", {"items": {"$id": "http://x/", "$ref": "y"}}, '.items["$id"]: a schema within a schema has no name'),
    ("output", {"$dynamicRef": "http://x/#y"}, '["$dynamicRef"]: refers to "http://x/#y"'),
    # only definitions from code can be so
    ("output", nested(5000), "the schema is nested too deeply"),
    *(
        ("output", value, "holds what JSON has no form for: ")
        for value in ({"title": "\ud800"}, {"minimum": float("nan")})
    ),
]


def test_what_a_key_may_not_say_is_told() -> None:
    with Failures() as failures:
        for key, value, problem in WRONG:
            with failures.row((key, problem)):
                document = {"id": "a", "implementation": SCRIPT, key: value}
                definition, findings = read_definition(document, source="a.tool.json", plugin="acme")
                assert definition is None
                told = str(findings[0]).removeprefix("a.tool.json: ").removeprefix(f"$.{key}").removeprefix(": ")
                assert told.startswith(problem)
                assert len(findings) == 1 or key == "output"


INPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
MANY = {f"key{n}": {"type": "string", "minLength": 1} for n in range(10_000)}
TREE = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}}
WARNED: Any = [
    # keys of a tool that can be used, the warnings
    ({"paramters": {}}, "$.paramters: is not a key of a tool and is left unread (did you mean parameters?)"),
    ({"timeout": 5}, "$.timeout: says 5, the implementation 30000: 5 is used"),
    ({"version": "newest"}, '$.version: "newest" is no version like 1.2.3: no range of versions finds it'),
    (
        {
            **{"parameters": INPUT, "output": {"type": "string"}},
            "examples": [
                {"input": {"n": 1}, "expectedOutput": "x"},
                {"input": {"m": 1}, "expectedOutput": 2},
                {"input": []},
            ],
        },
        *("$.examples[1].input.n: is required and missing", "$.examples[1].input.m: is no parameter of this tool"),
        '$.examples[1].expectedOutput: 2 is not of type "string"',
        "$.examples[2].input: expected an object, got an array",
    ),
    # recursion and many parameters are fine
    ({"parameters": {"properties": {**MANY, "t": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": TREE}}},),
]


def test_what_is_odd_but_usable_is_warned_of(tmp_path: Path) -> None:
    with Failures() as failures:
        for keys, *warnings in WARNED:
            with failures.row(warnings):
                definition, problems = read(tmp_path, {"id": "a", "implementation": SCRIPT, **keys})
                assert definition is not None
                assert problems == warnings
    document = {
        **{"id": "a", "implementation": SCRIPT, "securityContext": {"networkAcess": {}, "x-ours": {}}},
        "configSchema": [{"key": "token", "type": "string", "label": "Token"}, {"key": "a b", "type": "password"}],
    }
    wishes = "$.securityContext.networkAcess: is not a key of securityContext and is left unread"
    # the kernel tells of the settings of plugins
    for plugin, settings in ((None, ["$.configSchema[1].key", "$.configSchema[1].label"]), ("acme", [])):
        definition, findings = read_definition(document, source="", plugin=plugin)
        assert definition is not None
        assert str(findings[0]) == f"{wishes} (did you mean networkAccess?)"
        assert [str(finding).partition(": ")[0] for finding in findings[1:]] == settings


EVERY = {
    **{"id": " padded ", "description": 7, "implementation": {"type": "script", "timeout": -1, "command": ["python"]}},
    "parameters": {"type": "object", "properties": {"url": {"type": "text"}}},
    **{"output": {"properties": {"a": {"pattern": "["}}}, "tags": ["fine", 3]},
}
UNREADABLE: Any = [
    # a text or document, all that is reported of it
    ("[]", "must hold a JSON object, not an array"),
    ("[" * 100_000, "is not JSON: it is nested more than 100 levels deep"),
    (" " * (1 << 20) + "{}", "is larger than 1024 KiB"),
    (
        r'{"id": NaN, "tags": [1e999, "\ud800", -Infinity], "\udfff": 1}',
        *(
            "$: has a key with half of a character (a lone surrogate)",
            "$.id: expected a number that JSON can write, got nan",
        ),
        *(
            "$.tags[0]: expected a number that JSON can write, got inf",
            "$.tags[1]: holds half of a character (a lone surrogate)",
        ),
        "$.tags[2]: expected a number that JSON can write, got -inf",
    ),
    (
        *(EVERY, '$.id: expected a name without spaces around it, got " padded "'),
        "$.description: expected text, got an integer: 7",
        "$.implementation.timeout: expected milliseconds, a number above 0, got -1",
        '$.implementation.command: expected text, got an array: ["python"]',
        '$.parameters.properties.url.type: expected one of "string", "integer", "number", "boolean", "array", '
        '"object", "null" or a list of them, got "text"',
        *('$.output.properties.a.pattern: "[" is not a regular expression', "$.tags[1]: expected text, got an integer"),
    ),
]


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with Failures() as failures:
        for document, *problems in UNREADABLE:
            with failures.row(problems):
                assert read(tmp_path, document) == (None, problems)
    for content, problem in (
        (b'{"id": "\xed\xa0\xbd"}', "holds half of a character"),
        (b'{"id": "\xff"}', "is not UTF-8 text (byte 8)"),
    ):
        (tmp_path / "a.tool.json").write_bytes(content)
        definition, [told] = read_file(tmp_path / "a.tool.json", None)
        assert definition is None
        assert problem in str(told)


MANY_WRONG = r"""{
  "tags": ["a", "\"]}{", 3],
  "parameters": {"properties": {"x y": {"type": ["string", "tall"]},
                                "z": {"minLength": -1}}},
  "id": " a",
  "versoin": "1"
}"""
TWICE = '{"id": "a",\n "implementation": {"type": "script",\n  "command": "x", "command": "y"},\n "id": "b"}'


def test_each_problem_has_its_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "a.tool.json"
    for head in ("", "\ufeff"):
        path.write_text(head + MANY_WRONG, "utf-8")
        _, problems = read_file(path, None)
        assert [(p.line, p.column, p.message.partition(": ")[0], p.warning) for p in problems] == [
            *((1, 1, "$", False), (2, 26, "$.tags[2]", False), (3, 41, '$.parameters.properties["x y"].type', False)),
            *((4, 39, "$.parameters.properties.z.minLength", False), (5, 3, "$.id", False), (6, 3, "$.versoin", True)),
        ]
    for text, *told in (
        ('{\n  "id": "a",\n  oops\n}', ":3:3: is not JSON: Expecting property name enclosed in double quotes"),
        (
            *(TWICE, ":3:19: $.implementation.command: stands here twice: keep one of them"),
            ":4:2: $.id: stands here twice: keep one of them",
        ),
    ):
        path.write_text(text)
        definition, problems = read_file(path, None)
        assert (definition, [str(p).removeprefix(str(path)) for p in problems]) == (None, told)


def test_places_are_right_in_any_document() -> None:
    document: Any = {"a": [1, {"b": [[], {}, "x", [[2]]], "": None}], 'c"\\{': {"d": True}, "é😀": [0.5, "😀"]}
    places: Any = {("a", 1, "b", 3, 0, 0): 2, ("é😀", 1): "😀", ("a", 0): 1, ("a", 1, ""): "", ('c"\\{', "d"): "d"}
    for indent in (None, 1, 3):
        text = json.dumps(document, indent=indent, ensure_ascii=indent is None)
        for place, expected in places.items():
            line, column = JsonText(text).marks([place])[place]
            rest = text.split("\n")[line - 1][column - 1 :]
            assert json.JSONDecoder().raw_decode(rest)[0] == expected, (indent, place)


def test_one_bad_file_does_not_spoil_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    (folder / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere.json").write_text(json.dumps({"id": "linked", "implementation": SCRIPT}))
    (folder / "a.tool.json").symlink_to(tmp_path / "elsewhere.json")
    (folder / "b.tool.json").symlink_to(tmp_path / "absent")
    (folder / "round").symlink_to(folder)
    (folder / "c.tool.json").mkdir()
    os.mkfifo(folder / "d.tool.json")
    (folder / "e.tool.json").write_text("{")
    (folder / "deep" / "b.tool.json").write_text(json.dumps({"id": "b", "implementation": SCRIPT}))
    (folder / "note.json").write_text("not a tool")
    files = read_folders([ToolFolder(str(folder), None), ToolFolder(str(tmp_path / "absent"), None)])
    assert [d.id for d in files.definitions] == ["linked", "b"]
    assert [(Path(p.file or "").name, p.message.removesuffix(str(p.file))[:26]) for p in files.problems] == [
        *(("b.tool.json", "there is no file "), ("c.tool.json", "is not a regular file")),
        *(("d.tool.json", "is not a regular file"), ("e.tool.json", "is not JSON: Expecting pro")),
    ]


def test_files_are_checked_without_a_host(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    (tmp_path / "empty").mkdir()
    documents: dict[str, Any] = {"a": {"implementation": {"type": "node", "nodeType": "core:Uper"}}}
    documents |= {"b": {"implementation": SCRIPT}, "c": {"implementation": SCRIPT, "version": "2"}}
    documents["e"] = {"id": "e", "implementation": {"type": "service", "service": "plugin", "method": "get"}}
    for name, document in documents.items():
        (folder / f"{name}.tool.json").write_text(json.dumps({"id": "a", **document}))
    (folder / "d.tool.json").write_text('{"id": }')

    class Around:
        nodes = ("core:Upper",)
        workflows = ()

        def find(self, name: str) -> None: ...

    def unserved(definition: ToolDefinition) -> list[str]:
        return [f"there is no service {definition.implementation.service}"] if definition.kind == "service" else []

    paths = [folder, folder / "a.tool.json", tmp_path / "empty", tmp_path / "absent.tool.json"]
    found = check(paths, Around(), unserved)
    assert [str(p).replace(f"{tmp_path}/", "") for p in found] == [
        "empty: there is no *.tool.json in it",
        "tools/a.tool.json:1:61: there is no node core:Uper (did you mean core:Upper?)",
        "tools/d.tool.json:1:8: is not JSON: Expecting value",
        "tools/e.tool.json:1:63: there is no service plugin",
        "absent.tool.json: there is no file absent.tool.json",
        'tools/a.tool.json:1:2: the tool "a" is defined in tools/b.tool.json, too',
        'tools/b.tool.json:1:2: the tool "a" is defined in tools/a.tool.json, too',
    ]
