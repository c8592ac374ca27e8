"""The platform's TAM examples, carried out: from the text to what the tools did, and what the model is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

from example_bench import OpenBench
from platform_documents import block, data_file, section

from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.executions import RunActions, RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_tools.api.toolcalls import ToolErrorType


async def test_calls_of_5_2_1_reach_their_tool_with_either_delimiters(open_bench: OpenBench, spec_dir: Path) -> None:
    other = data_file(spec_dir, "tam", "unified-plugin-and-tool-architecture.md__L170.txt")
    async with open_bench() as bench:
        bench.write_echo("ToolID", "parameter_A", "parameter_B")
        done = await bench.tools.call_text(block(spec_dir, "000", "5.2.1"))
        same = await bench.tools.call_text(other)
    arguments = {"parameter_A": "参数值 A", "parameter_B": "参数值 B，\n可以是多行。", "and_more": None}
    assert [(r.status, r.structured) for r in same.results] == [("done", arguments)]
    arguments["parameter_B"] += "\n"
    assert [(r.status, r.structured) for r in done.results] == [("done", arguments)]
    assert done.parsed.text.strip() == "[可选的、调用者生成的自然语言文本，解释其决策或意图。]"


async def test_files_are_written_and_edited_as_the_examples_say(open_bench: OpenBench, spec_dir: Path) -> None:
    log, edited = "logs/today.log", "path/to/your/project/main.js"
    edits, writes = ("filePath", "searchString", "replaceString"), ("filePath", "content")
    rows = [
        (block(spec_dir, "000", "5.2.2"), log, "", "任务开始...\\n添加新记录。", 2),
        (data_file(spec_dir, "tam", "unified-plugin-and-tool-architecture.md__L184.txt"), log, "",
            "任务开始...\\n添加新记录。", 2),
        (block(spec_dir, "000", "11.2"), edited, 'start();\nconsole.log("old message");\n',
            'start();\nconsole.log("new message");\n', 1),
        (data_file(spec_dir, "tam", "TAM_tools.md__L93.txt"), "path/to/main.js", 'console.log("old");',
            'console.log("new");', 1),
        (data_file(spec_dir, "tam", "TAM_tools.md__L147.txt"), log, "", "start…\n  another line", 1),
    ]  # fmt: skip
    async with open_bench() as bench:
        for tool_id, method, keys in (("File.ApplyEdit", "apply_edit", edits), ("File.Write", "write_file", writes)):
            texts = {key: {"type": "string"} for key in keys}
            implementation = {"type": "service", "service": "projectFiles", "method": method}
            parameters = {"type": "object", "properties": texts, "required": list(texts)}
            bench.write_tool(method, {"id": tool_id, "implementation": implementation, "parameters": parameters})
        for text, name, before, after, calls in rows:
            path = bench.files / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(before, "utf-8")
            done = await bench.tools.call_text(text)
            assert [(r.index, r.status) for r in done.results] == [(at, "done") for at in range(1, calls + 1)], text
            assert path.read_text("utf-8") == after
            if text == rows[0][0]:
                assert [r.tool_id for r in done.results] == ["FileOperator.WriteFile", "FileOperator.AppendFile"]


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
