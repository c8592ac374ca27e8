"""Well-formed blocks: single calls, chains, spellings of keys, delimiters, TAM's own words."""

from __future__ import annotations

import pytest
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


def test_steps_run_by_their_numbers_and_keep_them() -> None:
    reading = read(
        block(
            "command3:「始」c「末」",
            "x3:「始」3「末」",
            "command_1:「始」a「末」",
            "x_1:「始」1「末」",
            "x 3 :「始」three「末」",
        )
    )
    assert reading.steps == [(1, "a", {"x": "1"}), (3, "c", {"x": "three"})]
    assert reading.warnings == ["'x 3' is given twice; the last value counts"]


def test_calls_of_one_block_share_its_request_id() -> None:
    reading = read(block("request_id:「始」r1「末」", "command1:「始」a「末」", "command2:「始」b「末」"))
    assert [call.request_id for call in reading.calls] == ["r1", "r1"]


def test_two_blocks_are_two_requests() -> None:
    reading = read(block("command:「始」a「末」") + " and " + block("command:「始」b「末」"))
    assert reading.steps == [(1, "a", {}), (1, "b", {})]
    assert reading.text == " and "


@pytest.mark.parametrize("written", ["filePath", "file_path", "FILE-PATH", "File Path", "  file__path  ", "- filePath"])
def test_an_argument_is_named_as_its_tool_names_it(written: str) -> None:
    reading = read(block("command:「始」t「末」", f"{written}:「始」x「末」"), t=["filePath"])
    assert reading.arguments == {"filePath": "x"}


def test_an_exact_spelling_wins_where_a_tool_has_both() -> None:
    text = block("command:「始」t「末」", "ab:「始」1「末」", "a_b:「始」2「末」")
    assert read(text, t=["a_b", "ab"]).arguments == {"ab": "1", "a_b": "2"}


def test_an_argument_of_an_unknown_tool_is_named_as_written_without_the_number() -> None:
    text = block("command_1:「始」t「末」", "File-Path 1:「始」x「末」", "Content_1:「始」y「末」")
    assert read(text).arguments == {"File-Path": "x", "Content": "y"}


def test_a_key_may_be_in_any_script() -> None:
    assert read(block("command:「始」t「末」", "标题：「始」今天「末」")).arguments == {"标题": "今天"}


@pytest.mark.parametrize("word", ["command", "Command", "COMMAND", "com_mand"])
def test_the_command_key_has_many_spellings(word: str) -> None:
    assert read(block(f"{word}:「始」t「末」")).steps == [(1, "t", {})]


@pytest.mark.parametrize("number", ["1", "_1", "-1", " 1", "01"])
def test_a_step_number_has_many_spellings(number: str) -> None:
    assert read(block(f"command{number}:「始」t「末」", f"x{number}:「始」v「末」")).steps == [(1, "t", {"x": "v"})]


def test_digits_belong_to_the_key_where_the_command_has_no_number() -> None:
    text = block("command:「始」t「末」", "line1:「始」a「末」", "line2:「始」b「末」")
    assert read(text).arguments == {"line1": "a", "line2": "b"}


def test_digits_are_a_step_only_if_its_command_exists() -> None:
    reading = read(block("command1:「始」t「末」", "base64:「始」x「末」", "utf81:「始」y「末」"))
    assert reading.steps == [(1, "t", {"base64": "x", "utf8": "y"})]
    assert reading.warnings == ["'base64' names no step and is taken for step 1"]


def test_a_parameter_that_matches_the_whole_key_wins() -> None:
    text = block("command1:「始」a「末」", "command2:「始」b「末」", "line2:「始」x「末」")
    assert read(text).steps == [(1, "a", {}), (2, "b", {"line": "x"})]
    assert read(text, b=["line2"]).steps == [(1, "a", {}), (2, "b", {"line2": "x"})]
    assert read(text, b=["line", "line2"]).steps == [(1, "a", {}), (2, "b", {"line2": "x"})]


def test_a_whole_key_of_the_step_being_written_wins_over_another_steps_number() -> None:
    text = block("command1:「始」a「末」", "line2:「始」x「末」", "command2:「始」b「末」", "line2:「始」y「末」")
    assert read(text, a=["line2"], b=["line"]).steps == [(1, "a", {"line2": "x"}), (2, "b", {"line": "y"})]


def test_the_number_that_leaves_a_known_parameter_is_the_step() -> None:
    text = block("command2:「始」a「末」", "command12:「始」b「末」", "line12:「始」x「末」")
    assert read(text).steps == [(2, "a", {}), (12, "b", {"line": "x"})]
    assert read(text, a=["line1"], b=["text"]).steps == [(2, "a", {"line1": "x"}), (12, "b", {})]


def test_a_key_without_a_number_belongs_to_the_command_before_it() -> None:
    reading = read(block("command1:「始」a「末」", "command2:「始」b「末」", "x:「始」1「末」"))
    assert reading.steps == [(1, "a", {}), (2, "b", {"x": "1"})]
    assert reading.warnings == ["'x' names no step and is taken for step 2"]


def test_a_numbered_command_beside_an_unnumbered_one_is_an_argument() -> None:
    reading = read(block("command:「始」a「末」", "command2:「始」b「末」"))
    assert reading.steps == [(1, "a", {"command2": "b"})]
    assert reading.warnings == ["'command2' beside an unnumbered command is an argument of it"]


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


def test_a_known_parameter_wins_over_a_word_of_the_protocol() -> None:
    text = block("command:「始」t「末」", "comment:「始」c「末」", "retry:「始」3「末」", "request_id:「始」r「末」")
    reading = read(text, t=["comment", "retry", "requestId"])
    assert reading.arguments == {"comment": "c", "retry": "3", "requestId": "r"}
    assert reading.warnings == []


def test_the_comment_of_a_chain_is_no_argument_but_that_of_a_step_is() -> None:
    text = block("comment:「始」all「末」", "command1:「始」t「末」", "comment_1:「始」one「末」")
    assert read(text, t=["comment"]).arguments == {"comment": "one"}
    assert read(text).arguments == {"comment": "one"}


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


def test_a_common_parameter_is_a_default_for_every_step() -> None:
    text = block(
        "common_out_dir:「始」/tmp「末」",
        "command1:「始」a「末」",
        "command2:「始」b「末」",
        "out-dir 2:「始」/var「末」",
    )
    assert read(text).steps == [(1, "a", {"out_dir": "/tmp"}), (2, "b", {"out-dir": "/var"})]


def test_a_common_parameter_goes_only_to_tools_that_have_it() -> None:
    text = block("common_out_dir:「始」/tmp「末」", "command1:「始」a「末」", "command2:「始」b「末」")
    assert read(text, a=["outDir"], b=["x"]).steps == [(1, "a", {"outDir": "/tmp"}), (2, "b", {})]


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


def test_references_are_left_as_they_are() -> None:
    text = block("common_dir:「始」/tmp「末」", "command1:「始」a「末」", "file_1:「始」@{common_dir}/x「末」")
    assert read(text, a=["file"]).arguments == {"file": "@{common_dir}/x"}


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


@pytest.mark.parametrize(
    "value", ["{a: 1}", "NaN", "1e999", '"\\ud800"', "[" * 10_000, "", "[18446744073709551616]", "9" * 5000]
)
def test_a_json_hint_on_anything_else_leaves_the_text_with_a_warning(value: str) -> None:
    reading = read(block("command:「始」t「末」", f"x:「始」{value}「末」", "type_hint_x:「始」json「末」"))
    assert reading.arguments == {"x": value}
    assert len(reading.warnings) == 1
    assert "is not JSON (" in reading.warnings[0]


def test_a_hint_without_its_argument_is_warned_of() -> None:
    reading = read(block("command:「始」t「末」", "type_hint_y:「始」json「末」"))
    assert reading.warnings == ["'type_hint_y': the step has no text argument 'y'"]


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
