"""Calls written as tool_call elements."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from tam_reading import Reading, read, told

from tavern_tam.tool_call import ToolCallParser


def read_tool_call(text: str) -> Reading:
    return read(text, ToolCallParser)


def test_the_element_names_tool_and_parameters() -> None:
    reading = read_tool_call("Well. <tool_call name=\"kb:Query\"><param name='q'>a < b</param></tool_call>\nDone.")
    assert (reading.called, reading.text) == ([("kb:Query", {"q": "a < b"})], "Well. \nDone.")
    assert (reading.calls[0].protocol, reading.calls[0].block) == ("tool_call", 0)
    assert read_tool_call('<tool_call name="a"/><Tool-Call NAME="b"></TOOL_CALL>').called == [("a", {}), ("b", {})]
    inputs = "<inputs><input name='a'>1</input></inputs><parameter name='b'>2</parameter>"
    assert read_tool_call(f"<tool_call name='t'>{inputs}</tool_call>").called == [("t", {"a": "1", "b": "2"})]


BREAKS_OFF = '<tool_call name="t"><param name="a">1</param><param name="b">2'
NO_CALLS: Any = [
    # texts that call nothing, and what the only warning begins with, if there is one
    *(("<tool_call>",), ("<tool_call>[1]</tool_call>",), ("The <tool_call> element.",), ("<tool_calls name='t'/>",)),
    *(("<tool_call id='a'></tool_call>",), ('Begin with <tool_call name="t"> and go on.',)),
    ("<tool_call name=' '></tool_call>", "it names no tool; nothing is called"),
    (BREAKS_OFF, "the text ends inside the value of 'b'"),
    ('<tool_call>{"name": "t", "arguments": {"a": "\\', "not JSON: Unterminated string"),
    ('<tool_call>{"name": "t"} ok <b>', "not JSON: Expecting value"),
    ('<tool_call>{"name": "t", "arguments": {"a": "b\nc</tool_call>"}}</tool_call>', "not JSON: Invalid control char"),
    ('<tool_call>{"arguments": {}}</tool_call>', "call 1 names no function"),
    ('<tool_call>{"name": "t", "arguments": [1]}</tool_call>', "the arguments of call 1 ('t') are not usable: "),
    ('<tool_call>{"name": "t", "arguments": {"n": NaN}}</tool_call>', "not JSON: NaN is no JSON"),
    ('<tool_call>{"name": "t"} {"name": "t"}</tool_call>', "one element holds one call, not 2"),
]


def test_what_is_no_call_is_text() -> None:
    with Failures() as failures:
        for text, *beginnings in NO_CALLS:
            with failures.row(text):
                reading = read_tool_call(text)
                assert (reading.text, reading.calls) == (text, [])
                assert told(reading, *beginnings), reading.warnings
                assert all(warning.endswith("; nothing is called") for warning in reading.warnings)


AS_JSON: Any = [
    # what stands behind the opening tag, the arguments, the text that is left
    ('{"name": "t", "arguments": {"a": 1}}</tool_call>', {"a": 1}, ""),
    ('\n{"arguments": "{\\"a\\": [1]}", "name": "t"}\n</Tool-Call >, ok', {"a": [1]}, ", ok"),
    (
        '{"name": "t", "arguments": {"a": "</tool_call> \\" <tool_call>"}}</tool_call>',
        {"a": '</tool_call> " <tool_call>'},
        "",
    ),
    ('{"name": "t"}', {}, ""),
    ('{"name": "t"}<b>', {}, "<b>"),
]


def test_json_in_the_element_is_a_call() -> None:
    with Failures() as failures:
        for text, arguments, left in AS_JSON:
            with failures.row(text):
                reading = read_tool_call(f"<tool_call>{text}")
                assert (reading.called, reading.text) == ([("t", arguments)], left)
                missing = ["it has no closing tag </tool_call>; it ends behind its JSON"]
                assert reading.warnings == ([] if "</" in text[-20:].lower() else missing)
