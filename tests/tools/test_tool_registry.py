"""Which tools there are, and when that changes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.tools import ToolDefinition, ToolFilter, ToolImplementation, ToolKind
from tavern_host.contracts.workflows import WORKFLOW_MANAGER, Workflow
from tavern_tools.catalog.catalog import Catalog, NodeTools, Tool
from tavern_tools.catalog.failures import ToolFailure
from tavern_tools.catalog.names import fits
from tavern_tools.catalog.registry import Registry

OpenHost = Callable[..., Any]


SCRIPT = {"type": "script", "command": "python fetch.py"}
TEXT_IN = {"interfaceInputs": {"text": {"dataFlowType": "STRING", "description": "Any text.", "required": True}}}


async def test_files_of_tools_and_workflows_are_followed(bench: Any) -> None:
    assert await bench.ids() == []
    path = bench.write_tool("my:tool", SCRIPT)
    assert await bench.ids() == ["my:tool"]
    bench.write_tool("my:tool", SCRIPT, description="Now with a description.")
    assert (await bench.tools.get("my:tool")).description == "Now with a description."
    path.unlink()
    assert await bench.ids() == []
    bench.write_workflow("shout", description="Shouts.", **TEXT_IN)
    assert (await bench.tools.get("workflow:shout")).description == "Shouts."
    bench.write_workflow("shout", description="Whispers now.", **TEXT_IN)
    assert (await bench.tools.get("workflow:shout")).description == "Whispers now."
    bench.write_tool("my:shout", {"type": "workflow", "workflowId": "shout"})
    assert (await bench.tools.get("my:shout")).parameters["required"] == ["text"]


async def test_a_workflow_with_an_interface_is_a_tool(bench: Any) -> None:
    bench.write_workflow("shout", name="Shout", description="Shouts.", version="1.2", **TEXT_IN)
    bench.write_workflow("silent", name="No interface")
    [tool] = await bench.listed()
    assert (tool.id, tool.display_name, tool.description, tool.version) == (
        "workflow:shout",
        "Shout",
        "Shouts.",
        "1.2",
    )
    assert tool.parameters["properties"] == {"text": {"type": "string", "description": "Any text."}}
    assert (tool.plugin, tool.source) == (None, "workflow:shout")


async def test_workflows_of_a_manager_that_keeps_no_files_are_tools_too(open_host: OpenHost) -> None:
    async with open_host("acme_store") as bench:
        workflows = bench.host.services.get(WORKFLOW_MANAGER)
        assert await bench.ids() == []
        await workflows.save("kept", Workflow.model_validate({"description": "First.", **TEXT_IN}))
        assert (await bench.tools.get("workflow:kept")).description == "First."
        await workflows.save("kept", Workflow.model_validate({"description": "Second.", **TEXT_IN}))
        assert (await bench.tools.get("workflow:kept")).description == "Second."


async def test_nothing_is_read_again_while_nothing_changes(bench: Any) -> None:
    path = bench.write_tool("my:tool", SCRIPT, description="Says a")
    status = path.stat()
    assert (await bench.tools.get("my:tool")).description == "Says a"
    path.write_text(path.read_text().replace("Says a", "Says b"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as if nobody had touched it
    assert (await bench.tools.get("my:tool")).description == "Says a"


async def test_a_tool_whose_workflow_node_or_service_is_absent_says_so(bench: Any) -> None:
    bench.write_tool("a", {"type": "workflow", "workflowId": "absent"})
    bench.write_tool("b", {"type": "node", "nodeType": "core:Absent"})
    bench.write_tool("c", {"type": "service", "service": "absent", "method": "x"})
    bench.write_tool("d", {"type": "service", "service": "workflowManager", "method": "saved"})
    assert {tool.id: tool.unavailable for tool in await bench.listed()} == {
        "a": "needs workflow absent",
        "b": "needs node core:Absent",
        "c": "needs service absent",
        "d": "there is no method of workflowManager 'saved'; did you mean save?",
    }


async def test_plugins_bring_tools_by_file_and_by_hook(stocked: Any) -> None:
    tools = {tool.id: tool for tool in await stocked.listed()}
    assert list(tools) == ["acme:measure", "acme:repeat", "acme:save"]
    assert {tool.plugin for tool in tools.values()} == {"acme-tools"}
    assert tools["acme:measure"].source.endswith("tools/measure.tool.json")
    assert tools["acme:repeat"].source == "plugin acme-tools"


async def test_a_node_tool_takes_its_parameters_from_the_slots(stocked: Any) -> None:
    assert (await stocked.tools.get("acme:repeat")).parameters == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "The text to repeat."},
            "times": {"type": "integer", "description": "How often.", "minimum": 1, "maximum": 9},
        },
        "required": ["text"],
    }


async def test_the_tools_of_a_revoked_plugin_are_gone_on_the_next_call(open_host: OpenHost) -> None:
    async with open_host("acme_tools", trusted=False) as bench:
        assert await bench.ids() == []
        await bench.host.grant("acme-tools")
        assert "acme:repeat" in await bench.ids()
        await bench.host.revoke("acme-tools")
        assert await bench.ids() == []


async def test_all_bad_files_are_told_in_one_report(open_host: OpenHost, caplog: pytest.LogCaptureFixture) -> None:
    async with open_host() as bench:
        good = bench.write_tool("good", SCRIPT)
        (good.parent / "syntax.tool.json").write_text('{\n  "id"\n}')
        bench.write_tool("shape", {"type": "script", "timeout": "soon"}, tags="no")
        with caplog.at_level(logging.WARNING):
            assert await bench.ids() == ["good"]
            assert await bench.ids() == ["good"]
    [record] = [r for r in caplog.records if "tools" in r.getMessage()]
    report = record.getMessage()
    assert "(problems: 3)" in report
    assert f"{good.parent / 'syntax.tool.json'}:3:1: is not JSON: Expecting ':' delimiter" in report
    assert "$.implementation.timeout: expected milliseconds" in report
    assert '$.tags: expected an array, got text: "no"' in report


async def test_a_plugin_may_hide_and_change_tools_but_not_rename_or_ruin_them(guarded: Any) -> None:
    for tool_id in ("hidden", "renamed", "ruined", "plain"):
        guarded.write_info(tool_id)
    tools = {tool.id: tool for tool in await guarded.listed()}
    assert list(tools) == ["plain", "renamed"]
    assert tools["renamed"].description == "Described by the guard."


async def test_describe_names_unknown_tools_and_schemas_leaves_them_out(bench: Any) -> None:
    bench.write_tool("a", SCRIPT, description="Does A.")
    assert await bench.tools.describe(["b", "a"]) == (
        "- Tool ID: b\n"
        "  - Cannot be called: no tool has this id\n"
        "- Tool ID: a\n"
        "  - Description: Does A.\n"
        "  - Cannot be called now: needs service scriptExecution\n"
        "  - Parameters: none"
    )
    assert [schema["name"] for schema in await bench.tools.schemas(["b", "a"])] == ["a"]


def script(bench: Any, tool_id: str, **more: Any) -> Any:
    return bench.write_tool(tool_id, SCRIPT, **more)


async def test_a_range_picks_a_version_of_a_tool(bench: Any) -> None:
    for number in ("1.2.0", "2.0.0-rc.1", "1.10.0", "0.9"):
        path = bench.write_info("wiki:Query", version=number)
        path.rename(path.with_name(f"query-{number}.tool.json"))
    for name, version in (("", "1.10.0"), ("@^1.2", "1.10.0"), ("@<1", "0.9"), ("@2.0.0-rc.1", "2.0.0-rc.1")):
        assert (await bench.tools.get(f"wiki:Query{name}")).version == version
    assert [tool.version for tool in await bench.listed()] == ["1.10.0"]
    assert (await bench.call("wiki:Query@^1.2", name="tavern-tools")).status == "done"
    rows: Any = [
        (
            "wiki:Query@^3",
            r'the tool "wiki:Query" has no version that fits \^3 \(it has 1\.10\.0, 1\.2\.0, 0\.9, 2\.0\.0-rc\.1\)',
        ),
        ("wiki:Query@newest", r'"newest" is no range of versions of the tool "wiki:Query" \(such are'),
        ("wiki:Qery@^1", r'no tool has the id "wiki:Qery@\^1" \(did you mean wiki:Query\?\)'),
        ("wiki:query", r'no tool has the id "wiki:query" \(did you mean wiki:Query\?\)'),
        ("node:core:Uppercase", r"did you mean node:core:UpperCase"),
    ]
    with Failures() as failures:
        for name, message in rows:
            with failures.row(name), pytest.raises(NotFound, match=message):
                await bench.tools.get(name)


async def test_nobody_takes_over_a_tool_of_another_with_a_higher_version(
    open_host: OpenHost, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_host("acme_tools") as bench:
        path = script(bench, "acme:measure", version="99.0.0")
        with caplog.at_level(logging.WARNING):
            assert (await bench.tools.get("acme:measure")).plugin == "acme-tools"
            with pytest.raises(NotFound):
                await bench.tools.get("acme:measure@99.0.0")
        told = [problem.message for problem in bench.host.plugin("acme-tools").problems]
        assert f'the tool "acme:measure" is defined in {path} as well, which is not used' in told
    assert f'{path}: the tool "acme:measure" is defined in ' in caplog.text


async def test_every_node_is_a_tool_that_is_found_by_its_type_and_listed_where_the_operator_says(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_host("acme_tools") as bench:
        tool = await bench.tools.get("node:acme-tools:Repeat")
        assert (tool.kind, tool.listed, tool.unavailable) == ("node", False, None)
        assert (tool.implementation.node_type, tool.source) == ("acme-tools:Repeat", "node:acme-tools:Repeat")
        assert list(tool.parameters["properties"]) == ["text", "times"]
        assert [t.id for t in await bench.tools.list_tools() if t.id.startswith("node:")] == []

    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps({"extensions.tavern-tools.nodeTools": ["acme-*"]}))
    async with open_host("acme_tools") as bench:
        listed = [t for t in await bench.tools.list_tools() if t.id.startswith("node:")]
        assert "node:acme-tools:Repeat" in [t.id for t in listed]
        assert {t.implementation.node_type.split(":")[0] for t in listed} == {"acme-tools"}
        assert all(t.listed for t in listed)


async def test_a_project_does_not_list_node_types_by_itself(open_host: OpenHost) -> None:
    async with open_host() as bench:
        settings = {"settings": {"extensions.tavern-tools.nodeTools": ["*"]}}
        (bench.root / "tavern.yaml").write_text(json.dumps(settings))
    async with open_host() as bench:
        assert [t.id for t in await bench.tools.list_tools() if t.id.startswith("node:")] == []


async def test_a_tool_that_depends_on_what_is_not_there_says_so(bench: Any) -> None:
    bench.write_workflow("shout", **TEXT_IN)
    needs = {
        "a": ["b"],
        "b": ["c@^2"],
        "ok": ["service:toolManager", "workflow:shout", "node:core:UpperCase", "tool:node:core:UpperCase", "loop"],
        "loop": ["ok", "loop"],
        "service": ["service:ExternalScriptExecutionService"],
        "node": ["node:core:Nothing"],
    }
    bench.write_info("c", version="1.0.0")
    for tool_id, dependencies in needs.items():
        bench.write_info(tool_id, dependencies=dependencies)
    assert {tool.id: tool.unavailable for tool in await bench.listed() if tool.id in needs} == {
        "a": "needs tool b, which cannot be called: needs tool c@^2",
        "b": "needs tool c@^2",
        "loop": None,
        "node": "needs node core:Nothing",
        "ok": None,
        "service": "needs service ExternalScriptExecutionService",
    }


def catalog(*definitions: ToolDefinition) -> Catalog:
    """Return a catalog of these tools, of which those with one id stand newest first, and of two nodes."""
    versions: dict[str, tuple[Tool, ...]] = {}
    for definition in definitions:
        versions[definition.id] = (*versions.get(definition.id, ()), Tool(definition))
    nodes = [NodeDefinition(type=name, namespace="core") for name in ("UpperCase", "LowerCase")]
    return Catalog(versions, nodes=NodeTools({node.full_type: node for node in nodes}))


def definition(tool_id: str, kind: ToolKind = "script", **values: Any) -> ToolDefinition:
    return ToolDefinition(id=tool_id, implementation=ToolImplementation(kind=kind), **values)


def test_tools_are_listed_by_filters_of_which_all_must_hold() -> None:
    rows: Any = [
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
    with Failures() as failures:
        for filter, ids in rows:
            with failures.row(filter):
                tools = catalog(
                    definition("kb.Add", "service", tags=["write"]),
                    definition("kb:Query", version="2.0.0", tags=["search"], description="Finds Anything."),
                    definition("kb:Query", version="1.0.0", tags=["old"]),
                    definition("plain", tags=["search"], plugin="acme"),
                )
                asked = None if filter is None else ToolFilter(**filter)
                assert [tool.id for tool in tools.listed(asked)] == ids


def test_a_list_by_ids_may_name_versions() -> None:
    tools = catalog(definition("kb:Query", version="2.0.0"), definition("kb:Query", version="1.0.0"))
    assert [tool.version for tool in tools.listed(ToolFilter(ids=["kb:Query@^1", "kb:Query@^3"]))] == ["1.0.0"]


def test_a_pattern_names_ids_with_stars_and_question_marks() -> None:
    rows: Any = [
        ("*", "", True),
        ("a*c", "abc", True),
        ("a*c", "abcd", False),
        ("a*b*c", "aXbYbZc", True),
        ("*.[ab]", "x.[ab]", True),
        ("*.[ab]", "x.a", False),
        ("a?", "a", False),
        ("a?", "a\n", True),
        ("*a*a*b", "aab", True),
        ("*ab*abc", "ababc", True),
        ("*" * 50 + "b", "a" * 100_000, False),
        ("*a" * 50 + "b", "a" * 20_000, False),
    ]
    with Failures() as failures:
        for pattern, name, expected in rows:
            with failures.row(pattern):
                assert fits(pattern, name) is expected


async def test_a_call_sees_the_tools_of_the_last_second_without_a_look_at_the_files(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 1000.0
    registries: list[Registry] = []

    class Watched(Registry):
        def __init__(self, context: PluginContext) -> None:
            super().__init__(context)
            registries.append(self)

    monkeypatch.setattr("tavern_tools.catalog.registry.Registry", Watched)
    monkeypatch.setattr("tavern_tools.catalog.registry.time", SimpleNamespace(monotonic=lambda: clock))
    async with open_host() as bench:
        await bench.tools.protocols()  # makes the tool manager, where nobody has asked it anything so far
        [registry] = registries
        with pytest.raises(ToolFailure, match="no tool has the id"):
            await registry.find("new")
        path = bench.write_info("new")
        assert (await registry.find("new")).unmet is None  # what is not known is looked for
        path.unlink()
        assert (await registry.find("new")).unmet is None
        clock += 1.1
        with pytest.raises(ToolFailure, match="no tool has the id"):
            await registry.find("new")
        bench.write_info("info")
        assert (await registry.find("info")).unmet is None
        await bench.host.disable("tavern-studio")
        (bench.root / "tools" / "info.tool.json").unlink()
        with pytest.raises(ToolFailure, match="no tool has the id"):
            await registry.find("info")
        bench.write_info("late")
        clock += 2
        assert "late" not in (await registry.recent()).versions  # text is not kept waiting for a look
        async with asyncio.timeout(60):
            while "late" not in (await registry.recent()).versions:
                await asyncio.sleep(0.01)
        bench.write_info("later")
        clock += 6
        assert "later" in (await registry.recent()).versions
