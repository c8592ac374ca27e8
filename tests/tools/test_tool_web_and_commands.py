"""The routes under `/api/tools` and the commands `tavern tools …`, called as the host calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.errors import InvalidInput, NotFound

INFO = {"type": "service", "service": "plugins", "method": "get"}


async def test_each_name_of_the_id_makes_a_call(bench: Any) -> None:
    bench.write_info("info")
    for key in ("toolId", "tool_id", "id"):
        response = await bench.ask("POST", "/api/tools/execute", {key: "info", "arguments": {"name": "tavern-tools"}})
        [result] = response.data["results"]
        assert (result["status"], result["structured"]["name"]) == ("done", "tavern-tools")


async def test_a_malformed_body_is_refused(bench: Any) -> None:
    rows: Any = [
        (b"{", "the body is not JSON"),
        ([], 'expected an object with "text" or "toolId", got an array'),
        ({}, 'expected either "text" or "toolId"'),
        ({"text": "a", "toolId": "b"}, 'expected either "text" or "toolId"'),
        ({"toolId": 3}, '"toolId" must be text, got an integer'),
        ({"toolId": "a", "arguments": []}, '"arguments" must be an object, got an array'),
        ({"text": "a", "arguments": {}}, '"arguments" goes with "toolId"'),
        ({"toolid": "a"}, 'unknown key "toolid" (did you mean toolId or tool_id?)'),
    ]
    with Failures() as failures:
        for body, message in rows:
            with failures.row(body), pytest.raises(InvalidInput, match=re.escape(message)):
                await bench.ask("POST", "/api/tools/execute", body)


async def test_tools_are_listed_and_shown_with_their_source(bench: Any) -> None:
    path = bench.write_info("info", description="Tells about a plugin.")
    bench.write_tool("fetch", {"type": "script", "command": "x"}, displayName="Fetch")
    (bench.root / "tools" / "bad.tool.json").write_text("{")
    listed = await bench.run("tools list")
    assert ["fetch", "script", "project", "needs service scriptExecution", "Fetch"] in listed.rows
    assert any("bad.tool.json:1:2: is not JSON" in line for line in listed.lines)
    assert {"fetch", "info"} <= {tool["id"] for tool in listed.data}
    shown = await bench.run("tools show", id="info")
    assert "- Tool ID: info\n  - Description: Tells about a plugin." in shown.text
    assert f"From: the project ({path})" in shown.text
    with pytest.raises(NotFound):
        await bench.run("tools show", id="absent")


async def test_an_exit_code_says_whose_fault_it_was(bench: Any) -> None:
    bench.write_info("info")
    rows: Any = [
        ("absent", [], 2),
        ("info", ["nam=x"], 2),
        ("info", ["name=absent"], 1),
        ("info", ["name=tavern-llm"], 0),
    ]
    for tool_id, given, exit_code in rows:
        assert (await bench.run("tools call", id=tool_id, arg=given)).exit_code == exit_code, given
    entries = await bench.host.services.get(AUDIT).tail(5)
    assert {entry.actor for entry in entries if entry.subject == "info"} == {"user:operator"}


async def test_conversions_and_warnings_are_told(stocked: Any, tmp_path: Path) -> None:
    called = await stocked.run("tools call", id="acme:repeat", arg=["text=a=b", "times=3"])
    assert (called.text, called.data["status"]) == ("a=ba=ba=b", "done")
    assert [line for line in called.lines if line.startswith("times: ")]
    (tmp_path / "said.txt").write_text("Hello.\n!nope\n")
    parsed = await stocked.run("parse", file=str(tmp_path / "said.txt"))
    assert "warning: lines: nope is not known" in parsed.text


# --- `tavern tools check` -----------------------------------------------------------------------------


async def test_a_warning_alone_is_no_failure(bench: Any) -> None:
    nothing = await bench.run("tools check")
    assert (nothing.lines, nothing.exit_code) == (["The project has no tool files."], 0)
    examples = [{"description": "One.", "arguments": {"name": "a"}}, {"input": {}}]
    path = bench.write_tool("info", INFO, discription="x", examples=examples)
    said = await bench.run("tools check")
    [key, example, verdict] = said.lines
    assert key.startswith(f"warning: {path}:1:")
    assert key.endswith("$.discription: is not a key of a tool and is left unread (did you mean description?)")
    assert example.endswith('$.examples[0].arguments: is not read: the arguments of an example stand in "input"')
    assert (verdict, said.exit_code) == ("Nothing is wrong.", 0)


async def test_what_tools_need_and_is_absent_is_told(bench: Any) -> None:
    bench.write_tool("a", {"type": "node", "nodeType": "core:UperCase"})
    bench.write_tool("b", {"type": "workflow", "workflowId": "absent"})
    bench.write_tool("c", {"type": "node", "nodeType": "core:UpperCase"})
    bench.write_tool("d", {"type": "service", "service": "plugin", "method": "get"})
    bench.write_tool("e", {"type": "service", "service": "plugins", "method": "gte"})
    bench.write_tool("f", INFO)
    said = await bench.run("tools check")
    [node, workflow, service, method, verdict] = said.lines
    assert "there is no node core:UperCase (did you mean core:UpperCase" in node
    assert workflow.endswith("there is no workflow absent")
    assert "there is no service 'plugin'" in service
    assert method.endswith("there is no method of plugins 'gte'; did you mean get?")
    assert (verdict, said.exit_code) == ("4 problems found", 1)


async def test_calling_a_wrong_file_says_what_is_wrong(bench: Any) -> None:
    path = bench.write_tool("info", {"type": "servce"})
    said = await bench.run("tools call", id="info")
    [problem, verdict] = said.lines
    assert problem.startswith(f"{path}:1:")
    assert '"servce" (did you mean service?)' in problem
    assert (verdict, said.exit_code) == ('ToolNotFound: no tool has the id "info"', 2)


async def test_what_no_call_could_get_right_is_told(bench: Any) -> None:
    parameters = {"properties": {"url": {}, "count": {"type": "integer", "default": "3"}}, "required": ["ulr"]}
    bench.write_tool("a", INFO, parameters=parameters)
    bench.write_tool("b", INFO, dependencies=["tool:system:task_status", "tool:absent", "service:plugin"])
    (bench.root / "tools" / "c.json").write_text("{}")
    said = await bench.run("tools check")
    lines = [line.rpartition("/tools/")[2] for line in said.lines]
    assert lines == [
        "c.json: is not read: the name of a tool file ends with .tool.json",
        "a.tool.json:1:161: $.parameters.properties.count.default: is not what the schema allows: "
        '"3" is not of type "integer"',
        'a.tool.json:1:192: $.parameters.required[0]: "ulr" is no property, so no call is right (did you mean url?)',
        "b.tool.json: there is no tool absent",
        "b.tool.json: there is no service plugin",
        "3 problems found",
    ], said.lines


async def test_a_folder_of_tools_that_no_manifest_names_is_told(tmp_path: Path) -> None:
    plugin = tmp_path / "acme"
    (plugin / "tools").mkdir(parents=True)
    (plugin / "plugin.yaml").write_text("name: acme\ndisplayName: Acme\nversion: 1.0.0\n")
    (plugin / "tools" / "a.tool.json").write_text("{}")
    tool = {"id": "a", "implementation": {"type": "script", "command": "python absent.py"}}
    (tmp_path / "p" / "tools").mkdir(parents=True)
    (tmp_path / "p" / "tools" / "a.tool.json").write_text(json.dumps(tool))
    async with Host(tmp_path / "p", plugins=[plugin], trust=["acme"]) as host:
        said = [output.text async for output in host.registrations.commands["tools check"].call({})]
    [script, folder, verdict] = filter(None, said)
    assert script.endswith("a.tool.json: there is no script 'absent.py' in the folder scripts of the project")
    assert folder == f"{plugin}/tools: is not read: the manifest of acme does not name it (tools: {{entry: ./tools}})"
    assert verdict == "2 problems found"
