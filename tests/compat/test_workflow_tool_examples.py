"""The platform's workflow that is a tool: its schema, its call, and agents that may call
it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from example_bench import OpenBench
from platform_documents import block, data_file, plain_json, section

from tavern_tools.api.toolcalls import ToolCallRequest, ToolErrorType, ToolScope

COPIES = ["000 §4.4.3", "002 §2.3.1", "the data file"]
TEXT = "一段需要摘要的文本。"


def interface_of(spec_dir: Path, copy: str) -> dict[str, Any]:
    """Return the interface of `summarize_text` as it stands in one of the places."""
    if copy == "the data file":
        text = data_file(spec_dir, "workflow", "workflow-as-tool-design.md__L62.json")
    else:
        name, _, number = copy.partition(" §")
        text = block(spec_dir, name, number, 1)
    interface: dict[str, Any] = json.loads(text)
    return interface


def schema_of(spec_dir: Path, copy: str) -> dict[str, Any]:
    """Return the schema that a document shows for it."""
    name, number = ("000", "4.4.3") if copy.startswith("000") else ("002", "2.3.1")
    schema: dict[str, Any] = json.loads(block(spec_dir, name, number, 2))
    return schema


def edge(source: str, output: str, target: str, key: str) -> dict[str, str]:
    return {"id": key, "source": source, "sourceHandle": output, "target": target, "targetHandle": key}


def summarizing(interface: dict[str, Any]) -> dict[str, Any]:
    """Return a workflow with this interface that says of what length which text's summary would be."""
    return {
        **interface,
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "join", "type": "core:TextMerge", "inputValues": {"separator": " | "}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("in", "summary_length", "join", "text_inputs__0"),
            edge("in", "text_to_summarize", "join", "text_inputs__1"),
            edge("join", "merged_text", "out", "summary_result"),
        ],
    }


async def test_the_schema_of_summarize_text_is_exactly_the_one_shown(open_bench: OpenBench, spec_dir: Path) -> None:
    async with open_bench() as bench:
        for copy in COPIES:
            shown = schema_of(spec_dir, copy)
            bench.write_workflow("summarize_text", {"nodes": [], "edges": [], **interface_of(spec_dir, copy)})
            [schema] = await bench.tools.schemas(["workflow:summarize_text"])
            [native] = await bench.tools.native_schemas(["workflow:summarize_text"])
            assert schema == shown, copy
            assert json.dumps(schema) == json.dumps(shown)  # in this order, too
            assert native["function"] == {**shown, "name": "workflow_summarize_text"}


async def test_summarize_text_runs_as_its_interface_says(open_bench: OpenBench, spec_dir: Path) -> None:
    assert "结构化的错误信息" in section(spec_dir, "002", "4")
    sound = summarizing(interface_of(spec_dir, "002 §2.3.1"))
    tool = "workflow:summarize_text"
    async with open_bench() as bench:
        bench.write_workflow("summarize_text", sound)
        full = await bench.call(tool, text_to_summarize=TEXT, summary_length="详细")
        short = await bench.call(tool, text_to_summarize=TEXT)
        missing = await bench.call(tool)
        wrong = await bench.call(tool, text_to_summarize=TEXT, summary_length="极长")
        nodes = [*sound["nodes"][:1], {"id": "join", "type": "core:ParseJson", "inputValues": {"text": "{"}}]
        edges = [{**sound["edges"][2], "sourceHandle": "value"}]
        failing = {**sound, "nodes": [*nodes, sound["nodes"][2]], "edges": edges}
        bench.write_workflow("summarize_text", failing)
        failed = await bench.call(tool, text_to_summarize=TEXT)
    assert (full.status, full.structured) == ("done", f"详细 | {TEXT}"), "its one output is given bare"
    assert short.structured == f"中等 | {TEXT}"  # the interface's default, which its schema does not tell
    for result, message in (
        (missing, "text_to_summarize: is required and missing"),
        (wrong, 'summary_length: "极长" is not one of "简短", "中等" or "详细"'),
    ):
        assert result.error.type == ToolErrorType.PARAMETER_VALIDATION
        assert message in result.error.message
    assert (failed.error.type, failed.error.tool_id) == (ToolErrorType.EXECUTION, tool)
    assert str(failed.error.details["runId"]).startswith("run_")


async def test_the_flow_of_2_4_ends_in_an_answer_to_who_called(open_bench: OpenBench, spec_dir: Path) -> None:
    flow = block(spec_dir, "002", "2.4.1")
    assert "workflow:summarize_text(arguments)" in flow
    assert "(summary_result)" in flow
    async with open_bench() as bench:
        bench.write_workflow("summarize_text", summarizing(interface_of(spec_dir, "002 §2.3.1")))
        [schema] = await bench.tools.native_schemas(["workflow:summarize_text"])
        function: Any = schema["function"]
        arguments = json.dumps({"text_to_summarize": TEXT, "summary_length": "简短"})
        asked = {"id": "call_1", "type": "function", "function": {"name": function["name"], "arguments": arguments}}
        parsed = await bench.tools.native_calls([asked], tool_ids=["workflow:summarize_text"])
        results = await bench.tools.call_all(parsed.calls)
        [told] = await bench.tools.feedback(parsed.calls, results)
    assert parsed.calls[0].tool_id == "workflow:summarize_text"
    assert told.text == f"Tool workflow:summarize_text executed successfully. Output: 简短 | {TEXT}"


# --- what an agent may call ---------------------------------------------------------------------------


def inventory_of(spec_dir: Path, name: str, number: str) -> list[str]:
    profile = json.loads(plain_json(block(spec_dir, name, number)))
    assert list(profile) == ["tool_ids_inventory"]
    tool_ids: list[str] = profile["tool_ids_inventory"]
    return tool_ids


async def test_the_inventory_of_the_profile_is_what_its_agent_is_told_of_and_may_call(
    open_bench: OpenBench, spec_dir: Path
) -> None:
    inventory = inventory_of(spec_dir, "002", "2.2")
    assert inventory == inventory_of(spec_dir, "000", "4.4.2")
    prefixes = [tool_id.partition(":")[0] for tool_id in inventory]
    assert prefixes == ["system", "kb", "workflow", "workflow"]
    async with open_bench() as bench:
        bench.write_workflow("summarize_text", summarizing(interface_of(spec_dir, "002 §2.3.1")))
        slots = {"prompt": {"dataFlowType": "STRING", "required": True}}
        image = {"nodes": [], "edges": [], "description": "Draws.", "interfaceInputs": slots, "interfaceOutputs": {}}
        bench.write_workflow("generate_image_from_prompt", image)
        told = await bench.tools.expand("{{{system:available_tools}}}", tool_ids=inventory)
        kinds = {tool.id: tool.kind for tool in await bench.tools.list_tools() if tool.id in inventory}
        scope = ToolScope(allowed=inventory)
        may = await bench.tools.call(ToolCallRequest(tool_id="system:get_current_time"), scope=scope)
        query = ToolCallRequest(tool_id="kb:Query", arguments={"query": "a tavern"})
        queried = await bench.tools.call(query, scope=scope)
        write = ToolCallRequest(tool_id="FileOperator.WriteFile", arguments={"filePath": "a", "content": "b"})
        may_not = await bench.tools.call(write, scope=scope)
    assert [line for line in str(told.value).splitlines() if line.startswith("- Tool ID:")] == [
        f"- Tool ID: {tool_id}" for tool_id in inventory
    ]
    assert kinds == {
        "system:get_current_time": "service",
        "kb:Query": "service",
        "workflow:summarize_text": "workflow",
        "workflow:generate_image_from_prompt": "workflow",
    }
    assert may.status == "done"
    assert (queried.status, queried.structured) == ("done", [])
    assert may_not.error.type == ToolErrorType.PERMISSION_DENIED
