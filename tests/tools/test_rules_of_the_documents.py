"""Rules that the platform's documents show and that no other test here holds by a fixture of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.toolcalls import ToolErrorType

WRITE = {"type": "service", "service": "projectFiles", "method": "write_file"}
TEXT = {"type": "string"}


async def test_a_service_tool_without_parameters_takes_none(bench: Any) -> None:
    bench.write_tool("write", WRITE)
    bare, given = await bench.call("write"), await bench.call("write", filePath="a.txt", content="x")
    files = list(bench.host.project.folder("files").glob("*"))
    assert [result.error.type for result in (bare, given)] == [ToolErrorType.PARAMETER_VALIDATION] * 2
    assert bare.error.message.startswith("projectFiles.write_file: the argument 'content' is missing")
    assert given.error.message.startswith(
        "the arguments of write are not right: filePath: is no parameter of this tool"
    )
    assert files == []


async def test_the_tool_of_a_workflow_is_named_by_its_file(bench: Any) -> None:
    slots = {"text": {"dataFlowType": "STRING"}}
    bench.write_workflow("short_text", name="Another name", interfaceInputs=slots, interfaceOutputs=slots)
    assert await bench.ids() == ["workflow:short_text"]


@pytest.mark.parametrize("declared", [{"fileAccess": {"allowWrite": ["/**"]}}, {"requiredCapabilities": ["root"]}])
async def test_what_a_tool_asks_for_is_shown_and_gives_it_nothing(bench: Any, declared: dict[str, Any]) -> None:
    parameters = {"type": "object", "properties": {"filePath": TEXT, "content": TEXT}}
    bench.write_tool("write", WRITE, parameters=parameters, securityContext=declared)
    tool = await bench.tools.get("write")
    result = await bench.call("write", filePath="../outside.txt", content="x")
    assert not (bench.root / "outside.txt").exists()
    assert tool.security_context == declared
    assert result.error.type == ToolErrorType.PARAMETER_VALIDATION


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"format": "date"}, "2026-02-28", "2026-02-30"),
        ({"format": "date-time"}, "2026-02-28T12:00:00Z", "noon"),
        ({"format": "email"}, "ada@example.com", "ada"),
        ({"format": "uri"}, "https://example.com/a", "a b"),
        ({"pattern": "^BV[0-9]+$"}, "BV1", "AV1"),
        ({"minLength": 2, "maxLength": 3}, "abc", "a"),
    ],
    ids=lambda value: str(value),
)
async def test_formats_are_checked(bench: Any, schema: dict[str, Any], right: str, wrong: str) -> None:
    bench.write_workflow(
        "same",
        nodes=[{"id": "in", "type": "core:GroupInput"}, {"id": "out", "type": "core:GroupOutput"}],
        edges=[{"id": "e", "source": "in", "sourceHandle": "v", "target": "out", "targetHandle": "v"}],
        interfaceInputs={"v": {"dataFlowType": "STRING"}},
        interfaceOutputs={"v": {"dataFlowType": "STRING"}},
    )
    parameters = {"type": "object", "properties": {"v": {"type": "string", **schema}}, "required": ["v"]}
    bench.write_tool("same", {"type": "workflow", "workflowId": "same"}, parameters=parameters)
    good, bad = await bench.call("same", v=right), await bench.call("same", v=wrong)
    assert (good.status, good.structured) == ("done", right)
    assert bad.error.type == ToolErrorType.PARAMETER_VALIDATION
    assert bad.error.message.startswith("the arguments of same are not right: v: ")


@pytest.mark.parametrize(("path", "overwrite"), [("filePath", "overwrite"), ("file_path", "overwrite")])
async def test_a_method_takes_its_parameters_in_either_spelling(bench: Any, path: str, overwrite: str) -> None:
    parameters = {"type": "object", "properties": {path: TEXT, "content": TEXT, overwrite: {"type": "boolean"}}}
    bench.write_tool("write", WRITE, parameters=parameters)
    result = await bench.call("write", **{path: "a.txt", "content": "x", overwrite: False})
    written = (bench.host.project.folder("files") / "a.txt").read_text("utf-8")
    assert (result.status, written) == ("done", "x")


TAM = "<|[REQUEST_TOOL]|>\ncommand:「始」{tool}「末」\n{name}:「始」{value}「末」\n<|[END_TOOL]|>"
ACTION = '<ACTION><tool_id>{tool}</tool_id><inputs><input name="{name}">{value}</input></inputs></ACTION>'
TOOL_CALL = '<tool_call name="{tool}"><param name="{name}">{value}</param></tool_call>'


@pytest.mark.parametrize("written", [TAM, ACTION, TOOL_CALL])
async def test_a_call_in_text_is_written_alike_for_every_kind_of_tool(bench: Any, written: str) -> None:
    bench.write_workflow(
        "same",
        nodes=[{"id": "in", "type": "core:GroupInput"}, {"id": "out", "type": "core:GroupOutput"}],
        edges=[{"id": "e", "source": "in", "sourceHandle": "v", "target": "out", "targetHandle": "v"}],
        interfaceInputs={"v": {"dataFlowType": "STRING"}},
        interfaceOutputs={"v": {"dataFlowType": "STRING"}},
    )
    (bench.host.project.folder("files")).mkdir(exist_ok=True)
    (bench.host.project.folder("files") / "a.txt").write_text("x", "utf-8")
    calls = [
        ("workflow:same", "v", "hi"),
        ("node:core:UpperCase", "text", "hi"),
        ("FileOperator.ReadFile", "filePath", "a.txt"),
    ]
    text = "\n".join(written.format(tool=tool, name=name, value=value) for tool, name, value in calls)
    results = (await bench.tools.call_text(text)).results
    assert [result.tool_id for result in results] == [tool for tool, _, _ in calls]
    assert [result.structured for result in results[:2]] == ["hi", "HI"]
    assert results[2].structured["content"] == "x"


async def test_json_within_text_is_checked_by_the_schema_of_its_parameter(bench: Any) -> None:
    data = {"type": "object", "properties": {"threshold": {"type": "number"}}, "required": ["threshold"]}
    bench.write_info("info", parameters={"type": "object", "properties": {"data": data}, "required": ["data"]})
    text = ACTION.format(tool="info", name="data", value='{"threshold": "high"}')
    [result] = (await bench.tools.call_text(text)).results
    assert result.error.type == ToolErrorType.PARAMETER_VALIDATION
    assert result.error.message == (
        'the arguments of info are not right: data.threshold: "high" is not of type "number"'
    )


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
    file = bench.root / "tools" / "info.tool.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(COMMENTED.replace(', "tags": 7', ""), "utf-8")
    tool = await bench.tools.get("info")
    called = await bench.call("info", timezone="Asia/Shanghai")
    file.write_text(COMMENTED, "utf-8")
    checked = await bench.run("tools check")

    assert (tool.display_name, tool.description) == ("Info // of plugins", "https://example.com/*not a comment*/")
    assert called.structured["utcOffset"] == "+08:00"
    column = COMMENTED.splitlines()[6].index('"tags"') + 1
    assert any(line.startswith(f"{file}:7:{column}") for line in checked.lines), checked.lines


async def test_a_mapped_stream_is_searched_for_calls(bench: Any) -> None:
    text = "Well. <|[REQUEST_TOOL]|>\ncommand:「始」system:get_current_time「末」\n<|[END_TOOL]|>"
    node = {"id": "says", "fullType": "core:TextToStream", "inputs": {"text": text}, "configValues": {"unit": "words"}}
    mapped = {"said": {"sourceNodeId": "says", "sourceSlotKey": "stream"}}
    body = {"nodes": [node], "edges": [], "outputInterfaceMappings": mapped, "actions": True}
    prompt = (await bench.ask("POST", "/api/prompt", body)).data["promptId"]
    async with asyncio.timeout(60):
        while (run := await bench.host.services.get(EXECUTION_ENGINE).get(prompt)).status != "complete":
            await asyncio.sleep(0.02)
    assert run.outputs["said"] == "Well. "
    assert [done["toolId"] for done in run.outputs["__actions__"]] == ["system:get_current_time"]
