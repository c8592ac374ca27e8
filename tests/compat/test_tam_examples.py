"""The platform's own TAM examples are read as its documents say."""

from __future__ import annotations

from pathlib import Path

import pytest
from platform_documents import block, document

from tavern_host.contracts.protocols import ParseEvent, ParserOptions
from tavern_tam.parser import TamParser


def events_of(text: str) -> list[ParseEvent]:
    """Read a text without knowledge of any tool; it must not matter how it is cut."""
    whole, cut = TamParser(ParserOptions()), TamParser(ParserOptions())
    events = [*whole.feed(text), *whole.finish()]
    piecemeal = [event for character in text for event in cut.feed(character)] + cut.finish()
    assert [e for e in piecemeal if e.kind != "text"] == [e for e in events if e.kind != "text"]
    assert "".join(e.text for e in piecemeal if e.kind == "text") == text_of(events)
    return events


def text_of(events: list[ParseEvent]) -> str:
    return "".join(event.text for event in events if event.kind == "text")


def steps_of(events: list[ParseEvent]) -> list[tuple[int, str, dict[str, object]]]:
    return [(e.call.index, e.call.tool_id, dict(e.call.arguments)) for e in events if e.call is not None]


def warnings_of(events: list[ParseEvent]) -> list[str]:
    return [event.text for event in events if event.kind == "warning"]


def test_the_single_call_of_5_2_1(spec_dir: Path) -> None:
    text = block(spec_dir, "000", "5.2.1")
    events = events_of(text)
    assert steps_of(events) == [(1, "ToolID", {"parameter_A": "参数值 A", "parameter_B": "参数值 B，\n可以是多行。\n"})]
    assert text_of(events) == text.partition("<|[REQUEST_TOOL]|>")[0] + "\n"
    assert warnings_of(events) == []


def test_the_chain_of_5_2_2(spec_dir: Path) -> None:
    events = events_of(block(spec_dir, "000", "5.2.2"))
    assert steps_of(events) == [
        (1, "FileOperator.WriteFile", {"filePath": "/logs/today.log", "content": "任务开始..."}),
        (2, "FileOperator.AppendFile", {"filePath": "/logs/today.log", "content": "\\n添加新记录。"}),
    ]
    assert warnings_of(events) == []


def test_the_models_answer_of_11_2(spec_dir: Path) -> None:
    text = block(spec_dir, "000", "11.2")
    events = events_of(text)
    assert steps_of(events) == [
        (
            1,
            "FileOperator.ApplyEdit",
            {
                "filePath": "/path/to/your/project/main.js",
                "search_string": 'console.log("old message");',
                "replace_string": 'console.log("new message");',
            },
        )
    ]
    assert text_of(events) == text.partition("<|[REQUEST_TOOL]|>")[0] + "\n"
    assert warnings_of(events) == []


def test_the_whole_document_holds_these_examples_and_no_other_call(spec_dir: Path) -> None:
    events = events_of(document(spec_dir, "000"))
    assert [tool for _, tool, _ in steps_of(events)] == [
        "ToolID",
        "FileOperator.WriteFile",
        "FileOperator.AppendFile",
        "FileOperator.ApplyEdit",
    ]


EDIT = {"search_string": 'console.log("old");', "replace_string": 'console.log("new");'}
PAYLOAD = {
    "title": "每日运营报告",
    "coverImageUri": "@{common_output_dir}/cover.png",
    "logFileUri": "@{common_output_dir}/run.log",
    "author": "咕咕",
}
COMMON = {"output_dir": "fam://project-x/reports/today"}
LOG = "/logs/today.log"
PUBLISHED = {
    "tam__DesignDocs_architecture_TAM_tools.md__L93.txt": [
        (1, "File.ApplyEdit", {"file_path": "/path/to/main.js", **EDIT}),
    ],
    "tam__DesignDocs_architecture_TAM_tools.md__L110.txt": [
        (
            1,
            "ImageTool.Generate",
            {
                "prompt": "一只戴着宇航头盔的猫头鹰，赛博朋克风格",
                "output_uri": "@{common_output_dir}/cover.png",
                **COMMON,
            },
        ),
        (
            2,
            "File.Append",
            {
                "file_path": "@{common_output_dir}/run.log",
                "content": "-- Report generation started at @{timestamp} --",
                **COMMON,
            },
        ),
        (3, "Report.Build", {"payload": PAYLOAD, **COMMON}),
    ],
    "tam__DesignDocs_architecture_TAM_tools.md__L147.txt": [
        (1, "File.Write", {"File-Path": LOG, "CONTENT": "start…\n  another line"}),
    ],
    "tam__DesignDocs_architecture_unified-plugin-and-tool-architecture.md__L170.txt": [
        (1, "ToolID", {"parameter_A": "参数值 A", "parameter_B": "参数值 B，\n可以是多行。"}),
    ],
    "tam__DesignDocs_architecture_unified-plugin-and-tool-architecture.md__L184.txt": [
        (1, "FileOperator.WriteFile", {"file_path": LOG, "content": "任务开始..."}),
        (2, "FileOperator.AppendFile", {"file_path": LOG, "content": "\\n添加新记录。"}),
    ],
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_complete_example_with_the_other_delimiters(spec_dir: Path, name: str) -> None:
    events = events_of((spec_dir / "data" / "comfytavern" / name).read_text(encoding="utf-8"))
    assert steps_of(events) == PUBLISHED[name]
    expected = ["'Command_1': the delimiters >>> <<< are taken for »»» «««"] if name.endswith("L147.txt") else []
    assert warnings_of(events) == expected


def test_the_options_of_the_report_example(spec_dir: Path) -> None:
    name = "tam__DesignDocs_architecture_TAM_tools.md__L110.txt"
    events = events_of((spec_dir / "data" / "comfytavern" / name).read_text(encoding="utf-8"))
    calls = [event.call for event in events if event.call is not None]
    assert [call.on_error for call in calls] == ["continue", "stop", "stop"]
    assert {call.request_id for call in calls} == {"req-20250805-report"}
    output = COMMON["output_dir"]
    assert all(call.variables == {"output_dir": output, "common_output_dir": output} for call in calls)


@pytest.mark.parametrize(
    "name",
    [
        "tam__DesignDocs_architecture_TAM_tools.md__L23.txt",
        "tam__DesignDocs_architecture_agent_direct_service_tool_invocation.md__L552.txt",
    ],
)
def test_a_text_about_the_protocol_calls_nothing_and_is_returned_whole(spec_dir: Path, name: str) -> None:
    text = (spec_dir / "data" / "comfytavern" / name).read_text(encoding="utf-8")
    events = events_of(text)
    assert steps_of(events) == []
    assert text_of(events) == text
