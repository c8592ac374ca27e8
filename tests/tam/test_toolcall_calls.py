"""Calls written as tool_call elements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tag_reading import read_tool_call


def test_the_element_names_tool_and_parameters() -> None:
    reading = read_tool_call("Well. <tool_call name=\"kb:Query\"><param name='q'>a < b</param></tool_call>\nDone.")
    assert reading.called == [("kb:Query", {"q": "a < b"})]
    assert reading.text == "Well. \nDone."
    assert (reading.calls[0].protocol, reading.calls[0].block) == ("tool_call", 0)


def test_an_empty_element_is_a_call_without_parameters() -> None:
    assert read_tool_call('<tool_call name="a"/><Tool-Call NAME="b"></TOOL_CALL>').called == [("a", {}), ("b", {})]


def test_inputs_are_as_good_as_params() -> None:
    inputs = "<inputs><input name='a'>1</input></inputs><parameter name='b'>2</parameter>"
    assert read_tool_call(f"<tool_call name='t'>{inputs}</tool_call>").called == [("t", {"a": "1", "b": "2"})]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>[1]</tool_call>",
        "The <tool_call> element.",
        "<tool_call id='a'></tool_call>",
        "<tool_calls name='t'/>",
    ],
)
def test_an_element_without_a_name_is_text(text: str) -> None:
    reading = read_tool_call(text)
    assert (reading.text, reading.calls, reading.warnings) == (text, [], [])


@pytest.mark.parametrize(
    ("text", "arguments", "left"),
    [
        ('{"name": "t", "arguments": {"a": 1}}</tool_call>', {"a": 1}, ""),
        ('\n{"arguments": "{\\"a\\": [1]}", "name": "t"}\n</Tool-Call >, ok', {"a": [1]}, ", ok"),
        (
            '{"name": "t", "arguments": {"a": "</tool_call> \\" <tool_call>"}}</tool_call>',
            {"a": '</tool_call> " <tool_call>'},
            "",
        ),
        ('{"name": "t"}', {}, ""),
        ('{"name": "t"}<b>', {}, "<b>"),
    ],
)
def test_json_in_the_element_is_a_call(text: str, arguments: dict[str, object], left: str) -> None:
    reading = read_tool_call(f"<tool_call>{text}")
    assert (reading.called, reading.text) == ([("t", arguments)], left)
    missing = [] if "</" in text[-20:].lower() else ["it has no closing tag </tool_call>; it ends behind its JSON"]
    assert reading.warnings == missing


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"name": "t", "arguments": {"a": "\\', "not JSON: Unterminated string"),
        ('{"name": "t"} ok <b>', "not JSON: Expecting value"),
        ('{"name": "t", "arguments": {"a": "b\nc</tool_call>"}}</tool_call>', "not JSON: Invalid control character"),
        ('{"arguments": {}}</tool_call>', "call 1 names no function"),
        ('{"name": "t", "arguments": [1]}</tool_call>', "expected an object"),
        ('{"name": "t", "arguments": {"n": NaN}}</tool_call>', "NaN is no JSON"),
        ('{"name": "t"} {"name": "t"}</tool_call>', "one element holds one call, not 2"),
    ],
)
def test_json_that_is_no_call_is_refused(text: str, problem: str) -> None:
    reading = read_tool_call(f"<tool_call>{text}")
    assert (reading.called, reading.text) == ([], f"<tool_call>{text}")
    assert problem in reading.warnings[0]
    assert reading.warnings[0].endswith("nothing is called")


def test_an_element_with_an_empty_name_is_refused() -> None:
    reading = read_tool_call("<tool_call name=' '></tool_call>")
    assert (reading.text, reading.calls) == ("<tool_call name=' '></tool_call>", [])
    assert reading.warnings == ["it names no tool; nothing is called"]


def test_prose_behind_the_opening_tag_means_that_it_is_none() -> None:
    text = 'Begin with <tool_call name="t"> and go on.'
    assert read_tool_call(text).text == text


def test_an_element_that_breaks_off_is_not_called() -> None:
    text = '<tool_call name="t"><param name="a">1</param><param name="b">2'
    reading = read_tool_call(text)
    assert (reading.text, reading.calls) == (text, [])


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.text(st.sampled_from("<>&]/paramCDATA[! "), max_size=40),
)
def test_whatever_is_written_in_cdata_comes_back(one: str, two: str) -> None:
    def section(text: str) -> str:
        return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"

    text = (
        f'<tool_call name="t"><param name="a">{section(one)}</param><param name="b">{section(two)}</param></tool_call>'
    )
    assert read_tool_call(text).called == [("t", {"a": one, "b": two})]
