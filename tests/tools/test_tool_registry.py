"""Which tools there are, and when that changes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import pytest

from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.workflows import WORKFLOW_MANAGER, Workflow

OpenHost = Callable[..., Any]


SCRIPT = {"type": "script", "command": "python fetch.py"}
TEXT_IN = {"interfaceInputs": {"text": {"dataFlowType": "STRING", "description": "Any text.", "required": True}}}


async def test_a_tool_file_of_the_project_appears_changes_and_goes_without_a_restart(open_host: OpenHost) -> None:
    async with open_host() as bench:
        assert await bench.ids() == []
        path = bench.write_tool("my:tool", SCRIPT)
        assert await bench.ids() == ["my:tool"]
        bench.write_tool("my:tool", SCRIPT, description="Now with a description.")
        assert (await bench.tools.get("my:tool")).description == "Now with a description."
        path.unlink()
        assert await bench.ids() == []


async def test_a_script_tool_says_which_service_it_needs(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_tool("my:tool", SCRIPT)
        assert (await bench.tools.get("my:tool")).unavailable == "needs service scriptExecution"


async def test_a_workflow_with_an_interface_is_a_tool(open_host: OpenHost) -> None:
    async with open_host() as bench:
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


async def test_a_saved_workflow_changes_its_tool(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_workflow("shout", description="Shouts.", **TEXT_IN)
        assert (await bench.tools.get("workflow:shout")).description == "Shouts."
        bench.write_workflow("shout", description="Whispers now.", **TEXT_IN)
        assert (await bench.tools.get("workflow:shout")).description == "Whispers now."


async def test_workflows_of_a_manager_that_keeps_no_files_are_tools_too(open_host: OpenHost) -> None:
    async with open_host("acme_store") as bench:
        workflows = bench.host.services.get(WORKFLOW_MANAGER)
        assert await bench.ids() == []
        await workflows.save("kept", Workflow.model_validate({"description": "First.", **TEXT_IN}))
        assert (await bench.tools.get("workflow:kept")).description == "First."
        await workflows.save("kept", Workflow.model_validate({"description": "Second.", **TEXT_IN}))
        assert (await bench.tools.get("workflow:kept")).description == "Second."


async def test_nothing_is_read_again_while_nothing_changes(open_host: OpenHost) -> None:
    async with open_host() as bench:
        path = bench.write_tool("my:tool", SCRIPT, description="Says a")
        status = path.stat()
        assert (await bench.tools.get("my:tool")).description == "Says a"
        path.write_text(path.read_text().replace("Says a", "Says b"))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as if nobody had touched it
        assert (await bench.tools.get("my:tool")).description == "Says a"


async def test_a_tool_of_the_workflow_kind_takes_its_parameters_from_the_interface(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_workflow("shout", **TEXT_IN)
        bench.write_tool("my:shout", {"type": "workflow", "workflowId": "shout"})
        assert (await bench.tools.get("my:shout")).parameters["required"] == ["text"]


async def test_a_tool_whose_workflow_node_or_service_is_absent_says_so(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_tool("a", {"type": "workflow", "workflowId": "absent"})
        bench.write_tool("b", {"type": "node", "nodeType": "core:Absent"})
        bench.write_tool("c", {"type": "service", "service": "absent", "method": "x"})
        bench.write_tool("d", {"type": "service", "service": "workflowManager", "method": "saved"})
        assert {tool.id: tool.unavailable for tool in await bench.listed()} == {
            "a": "needs workflow absent",
            "b": "needs node core:Absent",
            "c": "needs service absent",
            "d": "needs a method saved of service workflowManager (did you mean save?)",
        }


async def test_plugins_bring_tools_by_file_and_by_hook(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        tools = {tool.id: tool for tool in await bench.listed()}
        assert list(tools) == ["acme:measure", "acme:repeat", "acme:save"]
        assert {tool.plugin for tool in tools.values()} == {"acme-tools"}
        assert tools["acme:measure"].source.endswith("tools/measure.tool.json")
        assert tools["acme:repeat"].source == "plugin acme-tools"


async def test_a_node_tool_takes_its_parameters_from_the_slots(open_host: OpenHost) -> None:
    async with open_host("acme_tools") as bench:
        assert (await bench.tools.get("acme:repeat")).parameters == {
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


async def test_the_first_of_two_tools_with_one_id_is_used_and_both_places_are_named(
    open_host: OpenHost, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_host("acme_tools") as bench:
        path = bench.write_tool("acme:measure", SCRIPT)
        with caplog.at_level(logging.WARNING):
            assert (await bench.tools.get("acme:measure")).plugin == "acme-tools"
    assert f'{path}: the tool "acme:measure" is defined in ' in caplog.text
    assert "measure.tool.json already, which is used" in caplog.text


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
    assert f"{good.parent / 'syntax.tool.json'}: is not JSON: line 3, column 1" in report
    assert "$.implementation.timeout: expected milliseconds" in report
    assert '$.tags: expected an array, got text: "no"' in report


async def test_a_bad_definition_from_code_is_left_out_and_names_its_plugin(
    open_host: OpenHost, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_host("acme_tools") as bench:
        with caplog.at_level(logging.WARNING):
            assert "acme:bad" not in await bench.ids()
    assert "plugin acme-tools, tool 'acme:bad': $.parameters.properties.a.type" in caplog.text


async def test_a_plugin_may_hide_and_change_tools_but_not_rename_or_ruin_them(open_host: OpenHost) -> None:
    async with open_host("acme_guard") as bench:
        for tool_id in ("hidden", "renamed", "ruined", "plain"):
            bench.write_info(tool_id)
        tools = {tool.id: tool for tool in await bench.listed()}
        assert list(tools) == ["plain", "renamed"]
        assert tools["renamed"].description == "Described by the guard."


async def test_an_unknown_tool_is_not_found_with_near_names(open_host: OpenHost) -> None:
    async with open_host() as bench:
        bench.write_tool("FileOperator.WriteFile", SCRIPT)
        with pytest.raises(NotFound, match=r'no tool has the id "fileoperator.write_file" \(did you mean FileOperator'):
            await bench.tools.get("fileoperator.write_file")


async def test_describe_names_unknown_tools_and_schemas_leaves_them_out(open_host: OpenHost) -> None:
    async with open_host() as bench:
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
