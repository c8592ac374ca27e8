"""The platform's own TAM examples are read as its documents say; what calls of them do is in the tests beside this."""

from __future__ import annotations

from pathlib import Path

from platform_documents import block, data_file, document

from tavern_tam.parser import TamParser
from tavern_tools.api.protocols import ParseEvent, ParserOptions

REPORT = "TAM_tools.md__L110.txt"
EXAMPLES = [
    "TAM_tools.md__L93.txt",
    REPORT,
    "TAM_tools.md__L147.txt",
    "unified-plugin-and-tool-architecture.md__L170.txt",
    "unified-plugin-and-tool-architecture.md__L184.txt",
]
TALK = ["TAM_tools.md__L23.txt", "agent_direct_service_tool_invocation.md__L552.txt"]


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


def warnings_of(events: list[ParseEvent]) -> list[str]:
    return [event.text for event in events if event.kind == "warning"]


def test_the_examples_of_000_are_read_without_warnings(spec_dir: Path) -> None:
    for section in ("5.2.1", "5.2.2", "11.2"):
        text = block(spec_dir, "000", section)
        events = events_of(text)
        assert warnings_of(events) == []
        assert text_of(events).startswith(text.partition("<|[REQUEST_TOOL]|>")[0])


def test_the_whole_document_holds_no_other_call(spec_dir: Path) -> None:
    parser = TamParser(ParserOptions())
    calls = [e.call.tool_id for e in [*parser.feed(document(spec_dir, "000")), *parser.finish()] if e.call is not None]
    assert calls == ["ToolID", "FileOperator.WriteFile", "FileOperator.AppendFile", "FileOperator.ApplyEdit"]


def test_examples_with_other_delimiters_are_read(spec_dir: Path) -> None:
    for name in EXAMPLES:
        warnings = warnings_of(events_of(data_file(spec_dir, "tam", name)))
        loose = ["'Command_1': the delimiters >>> <<< are taken for »»» «««"]
        assert warnings == (loose if name.endswith("L147.txt") else [])


def test_the_options_of_the_report_example(spec_dir: Path) -> None:
    calls = [event.call for event in events_of(data_file(spec_dir, "tam", REPORT)) if event.call is not None]
    assert [call.tool_id for call in calls] == ["ImageTool.Generate", "File.Append", "Report.Build"]
    assert calls[0].arguments["prompt"] == "一只戴着宇航头盔的猫头鹰，赛博朋克风格"
    assert [call.on_error for call in calls] == ["continue", "stop", "stop"]
    assert {call.request_id for call in calls} == {"req-20250805-report"}
    output = "fam://project-x/reports/today"
    assert all(call.variables == {"output_dir": output, "common_output_dir": output} for call in calls)


def test_texts_about_the_protocol_are_returned_whole(spec_dir: Path) -> None:
    for name in TALK:
        text = data_file(spec_dir, "tam", name)
        events = events_of(text)
        assert [event for event in events if event.call is not None] == []
        assert text_of(events) == text
