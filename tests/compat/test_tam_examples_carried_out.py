"""The platform's TAM examples, carried out: from the text to what the tools did, and what the model is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

from example_bench import OpenBench
from platform_documents import block, data_file, section

from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.executions import RunActions, RunRequest
from tavern_host.contracts.toolcalls import ToolErrorType
from tavern_host.contracts.workflows import Workflow


async def test_the_call_of_5_2_1_reaches_its_tool_with_both_parameters(open_bench: OpenBench, spec_dir: Path) -> None:
    async with open_bench() as bench:
        bench.write_echo("ToolID", "parameter_A", "parameter_B")
        done = await bench.tools.call_text(block(spec_dir, "000", "5.2.1"))
    [result] = done.results
    assert result.status == "done"
    assert result.structured == {
        "parameter_A": "参数值 A",
        "parameter_B": "参数值 B，\n可以是多行。\n",
        "and_more": None,
    }
    assert done.parsed.text.strip() == "[可选的、调用者生成的自然语言文本，解释其决策或意图。]"


async def test_the_same_call_with_the_other_delimiters_reaches_its_tool(open_bench: OpenBench, spec_dir: Path) -> None:
    async with open_bench() as bench:
        bench.write_echo("ToolID", "parameter_A", "parameter_B")
        done = await bench.tools.call_text(
            data_file(spec_dir, "tam", "unified-plugin-and-tool-architecture.md__L170.txt")
        )
    [result] = done.results
    assert (result.status, result.structured) == (
        "done",
        {"parameter_A": "参数值 A", "parameter_B": "参数值 B，\n可以是多行。", "and_more": None},
    )


async def test_the_chain_of_5_2_2_writes_the_file_and_adds_to_it(open_bench: OpenBench, spec_dir: Path) -> None:
    async with open_bench() as bench:
        done = await bench.tools.call_text(block(spec_dir, "000", "5.2.2"))
        written = (bench.files / "logs" / "today.log").read_text("utf-8")
    assert [(r.index, r.tool_id, r.status) for r in done.results] == [
        (1, "FileOperator.WriteFile", "done"),
        (2, "FileOperator.AppendFile", "done"),
    ]
    assert written == "任务开始...\\n添加新记录。"


async def test_the_same_chain_with_the_other_delimiters_does_the_same(open_bench: OpenBench, spec_dir: Path) -> None:
    async with open_bench() as bench:
        text = data_file(spec_dir, "tam", "unified-plugin-and-tool-architecture.md__L184.txt")
        done = await bench.tools.call_text(text)
        written = (bench.files / "logs" / "today.log").read_text("utf-8")
    assert [r.status for r in done.results] == ["done", "done"]
    assert written == "任务开始...\\n添加新记录。"


async def test_the_answer_of_11_2_edits_the_file(open_bench: OpenBench, spec_dir: Path) -> None:
    async with open_bench() as bench:
        path = bench.files / "path" / "to" / "your" / "project" / "main.js"
        path.parent.mkdir(parents=True)
        path.write_text('start();\nconsole.log("old message");\n', "utf-8")
        done = await bench.tools.call_text(block(spec_dir, "000", "11.2"))
        edited = path.read_text("utf-8")
    [result] = done.results
    assert result.status == "done"
    assert edited == 'start();\nconsole.log("new message");\n'


async def test_the_edit_with_the_other_delimiters_is_made_by_a_tool_of_that_name(
    open_bench: OpenBench, spec_dir: Path
) -> None:
    async with open_bench() as bench:
        texts = {key: {"type": "string"} for key in ("filePath", "searchString", "replaceString")}
        bench.write_tool(
            "edit",
            {
                "id": "File.ApplyEdit",
                "implementation": {"type": "service", "service": "projectFiles", "method": "apply_edit"},
                "parameters": {"type": "object", "properties": texts, "required": list(texts)},
            },
        )
        path = bench.files / "path" / "to" / "main.js"
        path.parent.mkdir(parents=True)
        path.write_text('console.log("old");', "utf-8")
        done = await bench.tools.call_text(data_file(spec_dir, "tam", "TAM_tools.md__L93.txt"))
        edited = path.read_text("utf-8")
    assert [r.status for r in done.results] == ["done"]
    assert edited == 'console.log("new");'


async def test_the_loose_spelling_of_l147_writes_its_file(open_bench: OpenBench, spec_dir: Path) -> None:
    async with open_bench() as bench:
        texts = {key: {"type": "string"} for key in ("filePath", "content")}
        bench.write_tool(
            "write",
            {
                "id": "File.Write",
                "implementation": {"type": "service", "service": "projectFiles", "method": "write_file"},
                "parameters": {"type": "object", "properties": texts, "required": list(texts)},
            },
        )
        done = await bench.tools.call_text(data_file(spec_dir, "tam", "TAM_tools.md__L147.txt"))
        written = (bench.files / "logs" / "today.log").read_text("utf-8")
    assert [r.status for r in done.results] == ["done"]
    assert written == "start…\n  another line"


async def test_the_report_of_l110_goes_on_without_its_cover_and_fills_in_its_variables(
    open_bench: OpenBench, spec_dir: Path
) -> None:
    async with open_bench() as bench:
        bench.write_echo("File.Append", "file_path", "content")
        bench.write_echo("Report.Build", "payload")
        done = await bench.tools.call_text(data_file(spec_dir, "tam", "TAM_tools.md__L110.txt"))
    cover, log, report = done.results
    folder = "fam://project-x/reports/today"
    assert {r.request_id for r in done.results} == {"req-20250805-report"}
    assert cover.error.type == ToolErrorType.TOOL_NOT_FOUND
    assert (log.status, report.status) == ("done", "done")
    assert isinstance(log.structured, dict)
    assert log.structured["file_path"] == f"{folder}/run.log"
    content = str(log.structured["content"])
    assert re.fullmatch(r"-- Report generation started at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 --", content)
    assert isinstance(report.structured, dict)
    assert report.structured["payload"] == {
        "title": "每日运营报告",
        "coverImageUri": f"{folder}/cover.png",
        "logFileUri": f"{folder}/run.log",
        "author": "咕咕",
    }


async def test_texts_about_the_protocol_ask_for_nothing(open_bench: OpenBench, spec_dir: Path) -> None:
    async with open_bench() as bench:
        for end in ("TAM_tools.md__L23.txt", "agent_direct_service_tool_invocation.md__L552.txt"):
            text = data_file(spec_dir, "tam", end)
            done = await bench.tools.call_text(text)
            assert (done.results, done.parsed.calls, done.parsed.text) == ([], [], text)


async def test_what_a_run_gives_is_looked_through_for_calls_as_7_3_says(open_bench: OpenBench, spec_dir: Path) -> None:
    markers = re.findall(r"`(<\|\[[A-Z_]+\]\|>)\.\.\.(<\|\[[A-Z_]+\]\|>)`", section(spec_dir, "000", "7.3"))
    [(opening, closing)] = markers
    values = {"command": "FileOperator.WriteFile", "filePath": "a.txt", "content": "x"}
    text = "\n".join([opening, *(f"{key}:「始」{value}「末」" for key, value in values.items()), closing])
    workflow = Workflow.model_validate(
        {
            "nodes": [
                {"id": "text", "type": "core:Text", "inputValues": {"text": text}},
                {"id": "out", "type": "core:GroupOutput"},
            ],
            "edges": [{"id": "e", "source": "text", "sourceHandle": "text", "target": "out", "targetHandle": "reply"}],
            "interfaceOutputs": {"reply": {"dataFlowType": "STRING"}},
        }
    )
    async with open_bench() as bench:
        engine = bench.host.services.get(EXECUTION_ENGINE)
        run = await engine.run(RunRequest(workflow=workflow, actions=RunActions()))
        written = (bench.files / "a.txt").read_text("utf-8")
    assert written == "x"
    assert run.outputs["reply"] == ""
    assert [result["status"] for result in json.loads(json.dumps(run.outputs["__actions__"]))] == ["done"]
