"""Well-formed blocks: single calls, chains, spellings of keys, delimiters, TAM's own words."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.repetition import Failures
from tam_reading import END, REQUEST, block, events_of, read


def test_a_single_call_has_its_arguments_as_text() -> None:
    reading = read(block("command:「始」notes.add「末」", "title:「始」Today「末」", "count:「始」3「末」"))
    assert reading.steps == [(1, "notes.add", {"title": "Today", "count": "3"})]
    assert reading.warnings == []
    assert reading.text == ""
    assert reading.calls[0].protocol == "tam"
    assert reading.calls[0].on_error == "stop"
    assert reading.calls[0].request_id is None


def test_a_value_is_taken_as_it_stands() -> None:
    value = '  {"a": [1]}\n\n<b>&amp;</b> \\n # no comment\r\n\tkey: "x" 「quoted」 »»» >>> <|[x]|> '
    assert read(block("command:「始」t「末」", f"text:「始」{value}「末」")).arguments == {"text": value}


def test_the_command_and_options_are_trimmed() -> None:
    reading = read(block("request_id:「始」 r1\n「末」", "command:「始」\n notes.add 「末」"))
    assert reading.calls[0].tool_id == "notes.add"
    assert reading.calls[0].request_id == "r1"


WHOSE: Any = [
    # what is written, the parameters that are known, the steps, the warnings
    ("command3=c|x3=3|command_1=a|x_1=1", {}, [(1, "a", {"x": "1"}), (3, "c", {"x": "3"})]),
    ("command3=c|x3=3|x 3 =three", {}, [(3, "c", {"x": "three"})], "'x 3' is given twice; the last value counts"),
    ("command=t|ab=1|a_b=2", {"t": ["a_b", "ab"]}, [(1, "t", {"ab": "1", "a_b": "2"})]),
    ("command_1=t|File-Path 1=x|Content_1=y", {}, [(1, "t", {"File-Path": "x", "Content": "y"})]),
    ("command=t|标题=今天", {}, [(1, "t", {"标题": "今天"})]),
    *((f"{word}=t", {}, [(1, "t", {})]) for word in ("command", "Command", "COMMAND", "com_mand")),
    *((f"command{n}=t|x{n}=v", {}, [(1, "t", {"x": "v"})]) for n in ("1", "_1", "-1", " 1", "01", "000000001")),
    # a number of ten digits is none
    ("command1234567890=t", {}, [], "a block without a command; nothing in the block is called"),
    ("command=t|command1234567890=a", {}, [(1, "t", {"command1234567890": "a"})]),
    *(
        (f"command=t|{written}=x", {"t": ["filePath"]}, [(1, "t", {"filePath": "x"})])
        for written in ("filePath", "file_path", "FILE-PATH", "File Path", "  file__path  ", "- filePath")
    ),
    # digits belong to the key where the command has no number, and are a step only if its command exists
    ("command=t|line1=a|line2=b", {}, [(1, "t", {"line1": "a", "line2": "b"})]),
    (
        *("command1=t|base64=x|utf81=y", {}, [(1, "t", {"base64": "x", "utf8": "y"})]),
        "'base64' names no step and is taken for step 1",
    ),
    # a parameter that is the whole key comes first, first that of the step being written
    ("command1=a|command2=b|line2=x", {}, [(1, "a", {}), (2, "b", {"line": "x"})]),
    ("command1=a|command2=b|line2=x", {"b": ["line2"]}, [(1, "a", {}), (2, "b", {"line2": "x"})]),
    ("command1=a|command2=b|line2=x", {"b": ["line", "line2"]}, [(1, "a", {}), (2, "b", {"line2": "x"})]),
    (
        *("command1=a|line2=x|command2=b|line2=y", {"a": ["line2"], "b": ["line"]}),
        [(1, "a", {"line2": "x"}), (2, "b", {"line": "y"})],
    ),
    # the number that leaves a known parameter is the step
    ("command2=a|command12=b|line12=x", {}, [(2, "a", {}), (12, "b", {"line": "x"})]),
    (
        *("command2=a|command12=b|line12=x", {"a": ["line1"], "b": ["text"]}),
        [(2, "a", {"line1": "x"}), (12, "b", {})],
    ),
    (
        *("command1=a|command2=b|x=1", {}, [(1, "a", {}), (2, "b", {"x": "1"})]),
        "'x' names no step and is taken for step 2",
    ),
    (
        *("command=a|command2=b", {}, [(1, "a", {"command2": "b"})]),
        "'command2' beside an unnumbered command is an argument of it",
    ),
    # a known parameter comes before a word of the protocol; the comment of a chain is no argument
    (
        *("command=t|comment=c|retry=3|request_id=r", {"t": ["comment", "retry", "requestId"]}),
        [(1, "t", {"comment": "c", "retry": "3", "requestId": "r"})],
    ),
    *(("comment=all|command1=t|comment_1=one", p, [(1, "t", {"comment": "one"})]) for p in ({}, {"t": ["comment"]})),
    # common parameters are defaults for the tools that have them
    (
        *("common_out_dir=/tmp|command1=a|command2=b|out-dir 2=/var", {}),
        [(1, "a", {"out_dir": "/tmp"}), (2, "b", {"out-dir": "/var"})],
    ),
    (
        *("common_out_dir=/tmp|command1=a|command2=b", {"a": ["outDir"], "b": ["x"]}),
        [(1, "a", {"outDir": "/tmp"}), (2, "b", {})],
    ),
    ("command1=a|file_1=@{common_dir}/x", {"a": ["file"]}, [(1, "a", {"file": "@{common_dir}/x"})]),
    ("command=t|type_hint_y=json", {}, [(1, "t", {})], "'type_hint_y': the step has no text argument 'y'"),
]


def test_each_key_belongs_to_its_step_and_parameter() -> None:
    with Failures() as failures:
        for written, parameters, steps, *warnings in WHOSE:
            with failures.row(f"{written} {parameters}"):
                pairs = [pair.partition("=") for pair in written.split("|")]
                reading = read(block(*(f"{key}:「始」{value}「末」" for key, _, value in pairs)), **parameters)
                assert (reading.steps, reading.warnings) == (steps, warnings)


def test_calls_of_one_block_share_its_request_id() -> None:
    reading = read(block("request_id:「始」r1「末」", "command1:「始」a「末」", "command2:「始」b「末」"))
    assert [call.request_id for call in reading.calls] == ["r1", "r1"]


def test_two_blocks_are_two_requests() -> None:
    reading = read(block("command:「始」a「末」") + " and " + block("command:「始」b「末」"))
    assert reading.steps == [(1, "a", {}), (1, "b", {})]
    assert reading.text == " and "


def test_a_tool_may_have_a_parameter_called_command() -> None:
    text = block("command:「始」shell「末」", "command:「始」ls「末」")
    assert read(text, shell=["command"]).steps == [(1, "shell", {"command": "ls"})]
    assert read(text).steps == []
    assert read(text).text == text


def test_comments_are_no_part_of_a_call() -> None:
    text = block(
        "# write 「始」 it",
        "command:「始」t「末」 # inline",
        "  # x:「始」1「末」",
        "comment:「始」why「末」",
        "y:「始」2「末」",
    )
    reading = read(text)
    assert reading.steps == [(1, "t", {"y": "2"})]
    assert reading.warnings == []


def test_a_step_says_whether_the_chain_goes_on_after_its_failure() -> None:
    text = block("command1:「始」a「末」", "on_error_1:「始」 Continue 「末」", "command2:「始」b「末」")
    assert [call.on_error for call in read(text).calls] == ["continue", "stop"]
    text = block(
        "onError:「始」continue「末」", "command1:「始」a「末」", "command2:「始」b「末」", "on_error2:「始」stop「末」"
    )
    assert [call.on_error for call in read(text).calls] == ["continue", "stop"]


def test_an_option_that_is_not_understood_is_warned_of() -> None:
    text = block(
        "command1:「始」a「末」", "on_error_1:「始」panic「末」", "on_error_7:「始」stop「末」", "retry_7:「始」3「末」"
    )
    reading = read(text)
    assert reading.steps == [(1, "a", {})]
    assert reading.calls[0].on_error == "stop"
    assert reading.warnings == [
        "'on_error_1' is stop or continue, not 'panic'; the chain stops on an error",
        "'on_error_7' names no step",
        "'retry_7' names no step",
    ]


def test_a_step_says_how_often_it_is_tried_again() -> None:
    text = block("retry:「始」1「末」", "command1:「始」a「末」", "retry_1:「始」 10 「末」", "command2:「始」b「末」")
    assert [call.retry for call in read(text).calls] == [10, 1]
    assert read(block("command:「始」a「末」", "retry_1:「始」2「末」")).calls[0].retry == 2


@pytest.mark.parametrize("value", ["11", "-1", "two", "1.0", "", "9" * 5000, "٣"])
def test_a_retry_that_is_no_number_to_ten_is_warned_of(value: str) -> None:
    reading = read(block("command:「始」a「末」", f"retry:「始」{value}「末」"))
    assert reading.calls[0].retry == 0
    assert reading.warnings == [f"'retry' is a number from 0 to 10, not {value[:40]!r}; the step is not tried again"]


def test_common_parameters_are_variables_of_every_call() -> None:
    text = block(
        "Common-Out Dir:「始」/tmp「末」", "command1:「始」a「末」", "command2:「始」b「末」", "out_dir2:「始」/x「末」"
    )
    for parameters in ({}, {"a": ["x"], "b": ["outDir"]}):
        calls = read(text, **parameters).calls
        assert [call.variables for call in calls] == [{"Out Dir": "/tmp", "common_Out Dir": "/tmp"}] * 2
    calls[0].variables["x"] = 1
    assert "x" not in calls[1].variables


def test_a_common_parameter_that_is_given_twice_keeps_its_last_value() -> None:
    reading = read(block("common_a:「始」1「末」", "Common A:「始」2「末」", "command:「始」t「末」"))
    assert reading.calls[0].variables == {"A": "2", "common_A": "2"}
    assert reading.arguments == {"A": "2"}
    assert reading.warnings == ["'Common A' is given twice; the last value counts"]


def test_a_block_has_at_most_32_common_parameters() -> None:
    reading = read(block(*(f"common_a{n}x:「始」{n}「末」" for n in range(33)), "command:「始」t「末」"))
    assert len(reading.arguments) == 32
    assert reading.warnings == ["'common_a32x' is ignored: a block has at most 32 common parameters"]


def test_a_call_says_where_its_block_begins() -> None:
    text = (
        "今 "
        + block("command1:「始」a「末」", "command2:「始」b「末」")
        + "\n"
        + block("command:「始」c「末」", "retry:「始」1「末」")
    )
    events = events_of([text])
    assert [event.offset for event in events] == [0, 2, 2, text.index("\n" + REQUEST), text.rindex(REQUEST)]


def test_a_json_hint_makes_a_value_of_the_text() -> None:
    text = block(
        "command1:「始」t「末」", "type_hint_pay_load_1:「始」JSON「末」", 'payLoad1:「始」{"a": [1, null]}「末」'
    )
    assert read(text).arguments == {"payLoad": {"a": [1, None]}}
    assert read(text, t=["pay-load"]).arguments == {"pay-load": {"a": [1, None]}}


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        ("integer", " -12\n", -12),
        ("int", "9223372036854775807", 2**63 - 1),
        ("Integer", "+07", 7),
        ("number", "3", 3),
        ("number", "-.5e1", -5.0),
        ("float", "3", 3.0),
        ("boolean", "TRUE", True),
        ("bool", " false ", False),
        ("json", ' [1, {"a": null}] ', [1, {"a": None}]),
        ("text", " 3 ", " 3 "),
        ("string", "true", "true"),
    ],
)
def test_a_hint_says_what_a_text_is(hint: str, value: str, expected: object) -> None:
    reading = read(block("command:「始」t「末」", f"x:「始」{value}「末」", f"type_hint_x:「始」 {hint} 「末」"))
    assert reading.arguments == {"x": expected}
    assert type(reading.arguments["x"]) is type(expected)
    assert reading.warnings == []


@pytest.mark.parametrize(
    ("hint", "value", "complaint"),
    [
        ("integer", "3.0", "'3.0' is not an integer"),
        ("integer", "٣", "'٣' is not an integer"),
        ("integer", "1_000", "'1_000' is not an integer"),
        ("integer", "9223372036854775808", "'9223372036854775808' has more than 64 bits"),
        ("integer", "9" * 5000, f"'{'9' * 40}…' is not an integer"),
        ("number", "1e999", "'1e999' is not a number"),
        ("number", "nan", "'nan' is not a number"),
        ("float", "", "'' is not a number"),
        ("bool", "yes", "'yes' is neither true nor false"),
        ("base64", "aGk=", "the hint 'base64' is not known (json, text, integer, number, boolean)"),
    ],
)
def test_a_hint_that_does_not_fit_leaves_the_text_with_a_warning(hint: str, value: str, complaint: str) -> None:
    reading = read(block("command:「始」t「末」", f"x:「始」{value}「末」", f"type_hint_x:「始」{hint}「末」"))
    assert reading.arguments == {"x": value}
    assert reading.warnings == [f"'type_hint_x': {complaint}; 'x' stays text"]


@pytest.mark.parametrize("value", ["{a: 1}", "NaN", "1e999", "[" * 10_000, "", "[18446744073709551616]", "9" * 5000])
def test_a_json_hint_on_anything_else_leaves_the_text_with_a_warning(value: str) -> None:
    reading = read(block("command:「始」t「末」", f"x:「始」{value}「末」", "type_hint_x:「始」json「末」"))
    assert reading.arguments == {"x": value}
    assert len(reading.warnings) == 1
    assert "is not JSON (" in reading.warnings[0]


def test_the_other_delimiters_are_read_and_their_values_trimmed() -> None:
    reading = read(block("command:»»»t«««", "x:»»» a\nb «««", "y: >>> c <<<", "z:「始」 d 「末」"))
    assert reading.arguments == {"x": "a\nb", "y": "c", "z": " d "}
    assert reading.warnings == ["'y': the delimiters >>> <<< are taken for »»» «««"]


def test_an_escaped_value_may_hold_the_markers() -> None:
    inner = block("command:「始」x「末」") + "\n" + block("command:「始」y「末」")
    for nonce in ("", ":n1"):
        text = block("command:「始」t「末」", f"x:「始ESCAPE{nonce}」{inner}「末escape{nonce}」", "y:「始」z「末」")
        reading = read(text)
        assert reading.arguments == {"x": inner, "y": "z"}
        assert reading.warnings == []


def test_only_the_delimiter_with_the_same_nonce_closes_an_escaped_value() -> None:
    value = "「始ESCAPE」a「末ESCAPE」 「始ESCAPE:2」b「末ESCAPE:2」\nk:「始ESCAPE:1」"
    text = block("command:「始」t「末」", f"x:「始ESCAPE:1」{value}「末ESCAPE:1」")
    assert read(text).arguments == {"x": value}


def test_several_pairs_may_share_a_line() -> None:
    text = f"{REQUEST} command:「始」t「末」, x:「始」1「末」，y:「始」2「末」 {END}"
    assert read(text).steps == [(1, "t", {"x": "1", "y": "2"})]


@pytest.mark.parametrize(
    ("request_marker", "end_marker"),
    [
        ("<|[request_tool]|>", "<|[End_Tool]|>"),
        ("< | [ REQUEST_TOOL ] | >", "<|\n[END_TOOL]\t|>"),
        ("<|[REQUEST _ TOOL]|>", "<|[ END_TOOL]|>"),
    ],
)
def test_markers_compare_without_case_and_inner_whitespace(request_marker: str, end_marker: str) -> None:
    assert read(f"a{request_marker}\ncommand:「始」t「末」\n{end_marker}b").steps == [(1, "t", {})]


def test_an_end_marker_in_a_closed_value_is_content() -> None:
    text = block("command:「始」t「末」", f"x:「始」write {END} last「末」", f"y:「始」write {REQUEST} first「末」")
    reading = read(text)
    assert reading.arguments == {"x": f"write {END} last", "y": f"write {REQUEST} first"}
    assert reading.warnings == []
