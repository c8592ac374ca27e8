"""Which tools and versions there are, and when that changes."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from typing import Any

import pytest
from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation, ToolKind
from tavern_host.contracts.workflows import Workflow
from tavern_tools.api.patterns import fits
from tavern_tools.api.tools import ToolFilter
from tavern_tools.catalog.catalog import Catalog, NodeTools, Tool
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.catalog.registry import Registry
from tavern_tools.catalog.versions import newest_first, read_range, read_version
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

OpenHost = Callable[..., Any]
SCRIPT = {"type": "script", "command": "python fetch.py"}
TEXT_IN = {"interfaceInputs": {"text": {"dataFlowType": "STRING", "description": "Any text.", "required": True}}}

# --- what there is --------------------------------------------------------------------------------


async def test_files_of_tools_and_workflows_are_followed(bench: Any) -> None:
    assert await bench.ids() == []
    path = bench.write_tool("my:tool", SCRIPT, description="Says a")
    status = path.stat()
    assert (await bench.tools.get("my:tool")).description == "Says a"
    path.write_text(path.read_text().replace("Says a", "Says b"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # within a moment, so that its time is the same
    assert (await bench.tools.get("my:tool")).description == "Says b"
    bench.write_tool("my:tool", SCRIPT, description="Now with another description.")
    assert (await bench.tools.get("my:tool")).description == "Now with another description."
    path.unlink()
    assert await bench.ids() == []
    bench.write_workflow("silent", name="No interface")
    for description in ("Shouts.", "Whispers now."):
        bench.write_workflow("shout", name="Shout", description=description, version="1.2", **TEXT_IN)
        [tool] = await bench.listed()
        assert (tool.id, tool.display_name, tool.version) == ("workflow:shout", "Shout", "1.2")
        assert (tool.description, tool.plugin, tool.source) == (description, None, "workflow:shout")
        assert tool.parameters["properties"] == {"text": {"type": "string", "description": "Any text."}}
    bench.write_tool("my:shout", {"type": "workflow", "workflowId": "shout"})
    assert (await bench.tools.get("my:shout")).parameters["required"] == ["text"]


COMMENTED = """
{
  // what people read: "//" within a text is text
  "id": "info", "displayName": "Info // of plugins", /* and
  below */ "description": "https://example.com/*not a comment*/",
  "implementation": {"type": "service", "serviceName": "systemTools", "methodName": "getCurrentTime"}, // camel case
  "parameters": {"type": "object", "properties": {"timezone": {"type": "string", "wrong": 5}}} /* 注释 */, "tags": 7
}
"""


async def test_tool_files_may_have_comments(bench: Any) -> None:
    file = bench.write_tool("info", {})
    file.write_text(COMMENTED.replace(', "tags": 7', ""), "utf-8")
    tool = await bench.tools.get("info")
    assert (tool.display_name, tool.description) == ("Info // of plugins", "https://example.com/*not a comment*/")
    assert (await bench.call("info", timezone="Asia/Shanghai")).structured["utcOffset"] == "+08:00"
    file.write_text(COMMENTED, "utf-8")
    checked = await bench.run("tools check")
    column = COMMENTED.splitlines()[6].index('"tags"') + 1
    assert any(line.startswith(f"{file}:7:{column}") for line in checked.lines), checked.lines


async def test_workflows_that_are_no_files_are_tools_too(open_host: OpenHost) -> None:
    async with open_host("acme_store") as bench:
        workflows = bench.host.services.get(WORKFLOW_MANAGER)
        assert await bench.ids() == []
        for description in ("First.", "Second."):
            await workflows.save("kept", Workflow.model_validate({"description": description, **TEXT_IN}))
            assert (await bench.tools.get("workflow:kept")).description == description


async def test_a_tool_says_what_it_needs_and_lacks(bench: Any) -> None:
    bench.write_workflow("shout", **TEXT_IN)
    implementations = {
        "a": {"type": "workflow", "workflowId": "absent"},
        "b": {"type": "node", "nodeType": "core:Absent"},
        "c": {"type": "service", "service": "absent", "method": "x"},
        "d": {"type": "service", "service": "workflowManager", "method": "saved"},
    }
    for tool_id, implementation in implementations.items():
        bench.write_tool(tool_id, implementation)
    bench.write_info("old", version="1.0.0")
    needs = {
        "e": ["f"],
        "f": ["old@^2"],
        "ok": ["service:toolManager", "workflow:shout", "node:core:UpperCase", "tool:node:core:UpperCase", "loop"],
        "loop": ["ok", "loop"],
        "service": ["service:ExternalScriptExecutionService"],
        "node": ["node:core:Nothing"],
    }
    for tool_id, dependencies in needs.items():
        bench.write_info(tool_id, dependencies=dependencies)
    assert {tool.id: tool.unavailable for tool in await bench.listed() if tool.unavailable} == {
        **{"a": "needs workflow absent", "b": "needs node core:Absent", "c": "needs service absent"},
        "d": "there is no method of workflowManager 'saved'; did you mean save?",
        **{"e": "needs tool f, which cannot be called: needs tool old@^2", "f": "needs tool old@^2"},
        **{"node": "needs node core:Nothing", "service": "needs service ExternalScriptExecutionService"},
    }
    assert await bench.tools.describe(["absent", "a"]) == (
        "- Tool ID: absent\n  - Cannot be called: no tool has this id\n"
        "- Tool ID: a\n  - Cannot be called now: needs workflow absent\n  - Parameters: none"
    )
    assert [schema["name"] for schema in await bench.tools.schemas(["absent", "a"])] == ["a"]


async def test_plugins_bring_tools_while_they_are_trusted(
    open_host: OpenHost, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_host("acme_tools", trusted=False) as bench:
        assert await bench.ids() == []
        await bench.host.grant("acme-tools")
        tools = {tool.id: tool for tool in await bench.listed()}
        assert (list(tools), {tool.plugin for tool in tools.values()}) == (
            ["acme:measure", "acme:repeat", "acme:save"],
            {"acme-tools"},
        )
        assert tools["acme:measure"].source.endswith("tools/measure.tool.json")
        assert tools["acme:repeat"].source == "plugin acme-tools"
        assert tools["acme:repeat"].parameters == {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "The text to repeat."},
                "times": {"type": "integer", "description": "How often.", "minimum": 1, "maximum": 9},
            },
            "required": ["text"],
        }
        node = await bench.tools.get("node:acme-tools:Repeat")
        assert (node.kind, node.listed, node.unavailable, node.source) == (
            "node",
            False,
            None,
            "node:acme-tools:Repeat",
        )
        assert (node.implementation.node_type, [*node.parameters["properties"]]) == (
            "acme-tools:Repeat",
            ["text", "times"],
        )
        # nobody takes over a tool of another with a higher version
        path = bench.write_tool("acme:measure", SCRIPT, version="99.0.0")
        with caplog.at_level(logging.WARNING):
            assert (await bench.tools.get("acme:measure")).plugin == "acme-tools"
            with pytest.raises(NotFound):
                await bench.tools.get("acme:measure@99.0.0")
        told = [problem.message for problem in bench.host.plugin("acme-tools").problems]
        assert not [message for message in told if "acme:measure" in message]
        assert f'{path}: the tool "acme:measure" is defined in ' in caplog.text
        path.unlink()
        await bench.host.revoke("acme-tools")
        assert await bench.ids() == []


async def test_nodes_are_listed_where_the_operator_says(open_host: OpenHost, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed() -> list[ToolDefinition]:
        async with open_host("acme_tools") as bench:
            settings = {"settings": {"extensions.tavern-tools.nodeTools": ["*"]}}  # which a project does not say
            (bench.root / "tavern.yaml").write_text(json.dumps(settings))
            return [tool for tool in await bench.tools.list_tools() if tool.id.startswith("node:")]

    assert await listed() == await listed() == []
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps({"extensions.tavern-tools.nodeTools": ["acme-*"]}))
    nodes = await listed()
    assert "node:acme-tools:Repeat" in [tool.id for tool in nodes]
    assert {(tool.implementation.node_type.split(":")[0], tool.listed) for tool in nodes} == {("acme-tools", True)}


async def test_bad_files_are_told_in_one_report(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    good = bench.write_tool("good", SCRIPT)
    (good.parent / "syntax.tool.json").write_text('{\n  "id"\n}')
    bench.write_tool("shape", {"type": "script", "timeout": "soon"}, tags="no")
    with caplog.at_level(logging.WARNING):
        assert await bench.ids() == await bench.ids() == ["good"]
    [report] = [record.getMessage() for record in caplog.records if "tools" in record.getMessage()]
    for said in (
        *("(problems: 3)", f"{good.parent / 'syntax.tool.json'}:3:1: is not JSON: Expecting ':' delimiter"),
        *("$.implementation.timeout: expected milliseconds", '$.tags: expected an array, got text: "no"'),
    ):
        assert said in report


async def test_hooks_may_hide_and_change_tools(guarded: Any) -> None:
    for tool_id in ("hidden", "renamed", "ruined", "plain"):
        guarded.write_info(tool_id)
    tools = {tool.id: tool for tool in await guarded.listed()}
    assert (list(tools), tools["renamed"].description) == (["plain", "renamed"], "Described by the guard.")


async def test_calls_and_texts_follow_files_at_once(open_host: OpenHost, monkeypatch: pytest.MonkeyPatch) -> None:
    registries: list[Registry] = []

    class Watched(Registry):
        def __init__(self, context: PluginContext) -> None:
            super().__init__(context)
            registries.append(self)

    monkeypatch.setattr("tavern_tools.catalog.registry.Registry", Watched)
    async with open_host() as bench:
        await bench.tools.protocols()  # makes the tool manager, where nobody has asked it anything so far
        [registry] = registries

        async def is_found(name: str) -> bool:
            assert (name in (await registry.recent()).versions) == path.exists()
            try:
                return (await registry.find(name)).unmet is None
            except ToolFailure:
                return False

        path = bench.write_info("new")
        assert await is_found("new")
        path.unlink()
        assert not await is_found("new")
        path = bench.write_info("info")
        assert await is_found("info")
        await bench.host.disable("tavern-studio")
        path.unlink()
        assert not await is_found("info")


# --- filters and names ----------------------------------------------------------------------------


def definition(tool_id: str, kind: ToolKind = "script", **values: Any) -> ToolDefinition:
    return ToolDefinition(id=tool_id, implementation=ToolImplementation(kind=kind), **values)


QUERY = [
    definition("kb:Query", version="2.0.0", tags=["search"], description="Finds Anything."),
    definition("kb:Query", version="1.0.0", tags=["old"]),
]
FILTERS: Any = [
    # a filter of which all must hold, the tools
    (None, ["kb.Add", "kb:Query", "plain"]),
    ({"tag": "search"}, ["kb:Query", "plain"]),
    ({"namespace": "kb"}, ["kb.Add", "kb:Query"]),
    ({"namespace": "kb", "tag": "write"}, ["kb.Add"]),
    ({"namespace": ""}, ["plain"]),
    ({"kind": "service"}, ["kb.Add"]),
    ({"text": "aNYthing"}, ["kb:Query"]),
    ({"plugin": "acme"}, ["plain"]),
    ({"ids": ["kb*", "node:core:?pperCase", "absent"]}, ["kb.Add", "kb:Query", "node:core:UpperCase"]),
    ({"ids": ["*"], "kind": "node"}, ["node:core:LowerCase", "node:core:UpperCase"]),
    ({"ids": ["node:core:LowerCase"]}, ["node:core:LowerCase"]),
    ({"ids": []}, []),
]
PATTERNS: Any = [
    # a pattern, a name that it fits, one that it does not
    *(("*", "", None), ("a*c", "abc", "abcd"), ("a*b*c", "aXbYbZc", None), ("*.[ab]", "x.[ab]", "x.a")),
    *(("a?", "a\n", "a"), ("*a*a*b", "aab", None), ("*ab*abc", "ababc", None)),
    *(("*" * 50 + "b", "b", "a" * 100_000), ("*a" * 50 + "b", "a" * 50 + "b", "a" * 20_000)),
]


def test_tools_are_listed_by_filters() -> None:
    add, plain = definition("kb.Add", "service", tags=["write"]), definition("plain", tags=["search"], plugin="acme")
    nodes = [NodeDefinition(type=name, namespace="core") for name in ("UpperCase", "LowerCase")]
    versions = {"kb.Add": (Tool(add),), "kb:Query": tuple(map(Tool, QUERY)), "plain": (Tool(plain),)}
    catalog = Catalog(versions, nodes=NodeTools({node.full_type: node for node in nodes}))
    with Failures() as failures:
        for asked, ids in FILTERS:
            with failures.row(asked):
                assert [tool.id for tool in catalog.listed(None if asked is None else ToolFilter(**asked))] == ids
        for pattern, fitting, other in PATTERNS:
            with failures.row(pattern):
                assert fits(pattern, fitting) is True
                assert other is None or fits(pattern, other) is False
    found = catalog.listed(ToolFilter(ids=["kb:Query@^1", "kb:Query@^3"]))
    assert [tool.version for tool in found] == ["1.0.0"]


# --- versions -------------------------------------------------------------------------------------

VERSIONS: Any = [
    # a range, versions that it takes, versions that it does not
    *(("^1.2", "1.2.0 1.9.9", "1.1.9 2.0.0"), ("^0.2.3", "0.2.3 0.2.9", "0.2.2 0.3.0"), ("^0.0.3", "0.0.3", "0.0.4")),
    *(
        ("^0", "0.9", "1.0"),
        ("~1.2.3", "1.2.3 1.2.9", "1.2.2 1.3.0"),
        ("~1", "1.9", "2.0"),
        ("1.2.3", "1.2.3", "1.2.4"),
    ),
    *(
        ("=1.2.3", "1.2.3", "1.2.4"),
        ("1.2", "1.2 1.2.9", "1.3"),
        ("1", "1.9", "2"),
        (">=1,<2", "1.0.0 1.99", "0.9 2.0.0"),
    ),
    *(
        (">1", "2.0", "1.9"),
        ("<=1", "1.9", "2.0"),
        ("*", "0.0.1 3", ""),
        ("^1", "", "1.0.0-rc.1 1.1.0-rc.1 2.0.0-rc.1"),
    ),
    *((">=1.0.0-rc.1", "1.0.0-rc.2 1.0.0", "1.0.0-alpha 2.0.0-a"), ("^1.0.0-rc.1", "1.0.0-rc.1 1.5.0", "2.0.0-0")),
    ("v1.2.3+build", "1.2.3 v1.2.3+other", ""),
]
NO_RANGES = ["", "latest", "^", ">=", "1..2", "1.2.3.4", "1 2", "01.2", "1,", "9" * 200, "^1.٣"]


def test_a_range_takes_the_versions_it_names() -> None:
    with Failures() as failures:
        for wanted, taken, left in VERSIONS:
            with failures.row(wanted):
                asked: Any = read_range(wanted)
                assert [asked.fits(read_version(text)) for text in taken.split()] == [True] * len(taken.split())
                assert [asked.fits(read_version(text)) for text in left.split()] == [False] * len(left.split())
        for text in NO_RANGES:
            with failures.row(text):
                assert read_range(text) is None
    versions = ["1.2", "1.10", "abc", "2.0.0-rc.2", "2.0.0-rc.10", "2.0.0-rc.x", "0", "v3"]
    assert [version for version, _ in newest_first((version, None) for version in versions)] == [
        *("v3", "1.10", "1.2", "0", "2.0.0-rc.x", "2.0.0-rc.10", "2.0.0-rc.2", "abc")
    ]


@given(st.text())
def test_no_text_makes_reading_versions_raise(text: str) -> None:
    version, asked = read_version(text), read_range(text)
    if version is not None and asked is not None:
        assert asked.fits(version)


async def test_a_range_picks_a_version_of_a_tool(bench: Any) -> None:
    for number in ("1.2.0", "2.0.0-rc.1", "1.10.0", "0.9"):
        path = bench.write_info("wiki:Query", version=number)
        path.rename(path.with_name(f"query-{number}.tool.json"))
    for name, version in (("", "1.10.0"), ("@^1.2", "1.10.0"), ("@<1", "0.9"), ("@2.0.0-rc.1", "2.0.0-rc.1")):
        assert (await bench.tools.get(f"wiki:Query{name}")).version == version
    assert [tool.version for tool in await bench.listed()] == ["1.10.0"]
    assert (await bench.call("wiki:Query@^1.2", name="tavern-tools")).status == "done"
    known = r'the tool "wiki:Query" has no version that fits \^3 \(it has 1\.10\.0, 1\.2\.0, 0\.9, 2\.0\.0-rc\.1\)'
    rows: Any = [
        ("wiki:Query@^3", known),
        ("wiki:Query@newest", r'"newest" is no range of versions of the tool "wiki:Query" \(such are'),
        ("wiki:Qery@^1", r'no tool has the id "wiki:Qery@\^1" \(did you mean wiki:Query\?\)'),
        ("wiki:query", r'no tool has the id "wiki:query" \(did you mean wiki:Query\?\)'),
        ("node:core:Uppercase", r"did you mean node:core:UpperCase"),
        ("core:UpperCase", r'is the tool "node:core:UpperCase"'),
    ]
    with Failures() as failures:
        for name, message in rows:
            with failures.row(name), pytest.raises(NotFound, match=message):
                await bench.tools.get(name)
