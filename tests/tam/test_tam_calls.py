"""Well-formed blocks: single calls, chains, spellings of keys, delimiters, TAM's own words."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from tam_reading import END, REQUEST, block, events_of, read, tam, told


def test_a_single_call_has_its_arguments_as_text() -> None:
    value = '  {"a": [1]}\n\n<b>&amp;</b> \\ # no comment\r\n\tkey: "x" 「quoted」 »»» >>> <<|[x]|> '
    reading = read(block("command:「始」\n notes.add 「末」", "count:「始」3「末」", f"text:「始」{value}「末」"))
    assert reading.steps == [(1, "notes.add", {"count": "3", "text": value})]
    assert (reading.text, reading.warnings, reading.calls[0].protocol) == ("", [], "tam")


WHOSE: Any = [
    # what is written, the parameters that are known, the steps, the warnings
    ("command3=c|x3=3|command_1=a|x_1=1", {}, [(1, "a", {"x": "1"}), (3, "c", {"x": "3"})]),
    ("command=t|ab=1|a_b=2", {"t": ["a_b", "ab"]}, [(1, "t", {"ab": "1", "a_b": "2"})]),
    ("command_1=t|File-Path 1=x|Content_1=y", {}, [(1, "t", {"File-Path": "x", "Content": "y"})]),
    ("command=t|标题=今天", {}, [(1, "t", {"标题": "今天"})]),
    *((f"{word}=t", {}, [(1, "t", {})]) for word in ("command", "Command", "COMMAND", "com_mand")),
    *((f"command{n}=t|x{n}=v", {}, [(1, "t", {"x": "v"})]) for n in ("1", "_1", "-1", " 1", "01", "000000001")),
    # a number of ten digits is none
    ("command1234567890=t", {}, [], "a block without a command; nothing in the block is called"),
    ("command=t|command1234567890=a", {}, [(1, "t", {"command1234567890": "a"})]),
    # what is given twice leaves open what is meant, in whatever spelling, and be it a word of the protocol
    *(
        (f"command{n}=t|{twice}", {}, [], f"'{which}' is given twice, with different values; nothing in the block")
        for n, twice, which in (
            ("3", "x3=3|x 3 =three", "x 3"),
            ("", "x=1|X=2", "X"),
            ("", "common_a=1|Common A=2", "Common A"),
            ("1", "retry_1=1|retry1=2", "retry1"),
            ("1", "retry=1|retry=2", "retry"),
            ("1", "on_error_1=stop|onError1=continue", "onError1"),
            ("", "request_id=a|requestId=b", "requestId"),
            ("", "x=1|type_hint_x=json|type_hint_x=text", "type_hint_x"),
        )
    ),
    *(
        (f"command=t|{written}=x", {"t": ["filePath"]}, [(1, "t", {"filePath": "x"})])
        for written in ("filePath", "file_path", "FILE-PATH", "File Path", "  file__path  ", "- filePath")
    ),
    # digits belong to the key where the command has no number, and are a step only if its command exists
    ("command=t|line1=a|line2=b", {}, [(1, "t", {"line1": "a", "line2": "b"})]),
    ("command1=t|base64=x|utf81=y", {}, [(1, "t", {"base64": "x", "utf8": "y"})], "'base64' names no step and is "),
    # a parameter that is the whole key comes first, first that of the step being written
    ("command1=a|command2=b|line2=x", {}, [(1, "a", {}), (2, "b", {"line": "x"})]),
    ("command1=a|command2=b|line2=x", {"b": ["line2"]}, [(1, "a", {}), (2, "b", {"line2": "x"})]),
    ("command1=a|command2=b|line2=x", {"b": ["line", "line2"]}, [(1, "a", {}), (2, "b", {"line2": "x"})]),
    ("command1=a|k2=x|command2=b|k2=y", {"a": ["k2"], "b": ["k"]}, [(1, "a", {"k2": "x"}), (2, "b", {"k": "y"})]),
    # the number that leaves a known parameter is the step
    ("command2=a|command12=b|line12=x", {}, [(2, "a", {}), (12, "b", {"line": "x"})]),
    ("command2=a|command12=b|line12=x", {"a": ["line1"], "b": ["text"]}, [(2, "a", {"line1": "x"}), (12, "b", {})]),
    (
        "command1=a|command2=b|x=1",
        {},
        [(1, "a", {}), (2, "b", {"x": "1"})],
        "'x' names no step and is taken for step 2",
    ),
    ("command=a|command2=b", {"a": ["command2"]}, [(1, "a", {"command2": "b"})]),
    ("command=a|command2=b", {}, [], "'command2' stands beside a command without a number; number all; nothing "),
    # a known parameter comes before a word of the protocol; the comment of a chain is no argument
    ("command=shell|command=ls", {"shell": ["command"]}, [(1, "shell", {"command": "ls"})]),
    ("command=shell|argument_command=ls", {}, [(1, "shell", {"command": "ls"})]),
    ("command=t|comment=c|retry=3", {"t": ["comment", "retry"]}, [(1, "t", {"comment": "c", "retry": "3"})]),
    ("command=t|request_id=r", {"t": ["requestId"]}, [(1, "t", {"requestId": "r"})]),
    ("comment=why|command=t", {}, [(1, "t", {})]),
    *(("comment=all|command1=t|comment_1=one", p, [(1, "t", {"comment": "one"})]) for p in ({}, {"t": ["comment"]})),
    # common parameters are defaults for the tools that have them
    ("common_a_b=1|command1=a|command2=b|a-b 2=2", {}, [(1, "a", {"a_b": "1"}), (2, "b", {"a-b": "2"})]),
    ("common_a_b=1|command1=a|command2=b", {"a": ["aB"], "b": ["x"]}, [(1, "a", {"aB": "1"}), (2, "b", {})]),
    ("command1=a|file_1=@{common_dir}/x", {"a": ["file"]}, [(1, "a", {"file": "@{common_dir}/x"})]),
    # hints are for the argument that they name, in any spelling
    ("command=t|type_hint_y=json", {}, [(1, "t", {})], "'type_hint_y': the step has no text argument 'y'"),
    ('command1=t|type_hint_pay_load_1=JSON|payLoad1={"a": [1]}', {}, [(1, "t", {"payLoad": {"a": [1]}})]),
    ("command1=t|type_hint_pay_load_1=JSON|payLoad1=[1]", {"t": ["pay-load"]}, [(1, "t", {"pay-load": [1]})]),
]


def test_each_key_belongs_to_its_step_and_parameter() -> None:
    with Failures() as failures:
        for written, parameters, steps, *warnings in WHOSE:
            with failures.row(f"{written} {parameters}"):
                reading = read(tam(written), **parameters)
                assert (reading.steps, told(reading, *warnings)) == (steps, True), reading.warnings


PLAIN = (None, "stop", 0)
OPTIONS: Any = [
    # what is written; request id, what an error does and the retries of each call; the warnings
    ("request_id= r1\n|command1=a|command2=b", [("r1", "stop", 0)] * 2),
    ("command1=a|on_error_1= Continue |command2=b", [(None, "continue", 0), PLAIN]),
    ("onError=continue|command1=a|command2=b|on_error2=stop", [(None, "continue", 0), PLAIN]),
    ("retry=1|command1=a|retry_1= 10 |command2=b", [(None, "stop", 10), (None, "stop", 1)]),
    ("command=t|retry_1=2", [(None, "stop", 2)]),
    (
        "command1=a|on_error_1=panic",
        [PLAIN],
        "'on_error_1' is stop or continue, not 'panic'; the chain stops on an error",
    ),
    ("command1=a|on_error_7=stop|retry_7=3", [PLAIN], "'on_error_7' names no step", "'retry_7' names no step"),
    *(
        (f"command=t|retry={n}", [PLAIN], f"'retry' is a number from 0 to 10, not {n[:40]!r}; the step is not")
        for n in ("11", "-1", "two", "1.0", "", "9" * 5000, "٣")
    ),
]


def test_options_say_how_each_step_is_made() -> None:
    with Failures() as failures:
        for written, options, *warnings in OPTIONS:
            with failures.row(written):
                reading = read(tam(written))
                assert [(call.request_id, call.on_error, call.retry) for call in reading.calls] == options
                assert told(reading, *warnings), reading.warnings


def test_common_parameters_are_variables_of_every_call() -> None:
    text = tam("Common-Out Dir=/tmp|command1=a|command2=b|out_dir2=/x")
    for parameters in ({}, {"a": ["x"], "b": ["outDir"]}):
        calls = read(text, **parameters).calls
        assert [call.variables for call in calls] == [{"Out Dir": "/tmp", "common_Out Dir": "/tmp"}] * 2
    calls[0].variables["x"] = 1
    assert "x" not in calls[1].variables
    many = read(tam("|".join(f"common_a{n}x={n}" for n in range(32)) + "|command=t"))
    assert len(many.arguments) == 32
    many = read(tam("|".join(f"common_a{n}x={n}" for n in range(33)) + "|command=t"))
    assert (many.calls, told(many, "'common_a32x' is one too many: a block has 32 common parameters;")) == ([], True)


def test_each_block_is_a_request_at_its_place() -> None:
    text = f"今 {tam('command1=a|command2=b')}\n{tam('command=c|retry=1')}"
    assert [event.offset for event in events_of([text])] == [0, 2, 2, text.index("\n" + REQUEST), text.rindex(REQUEST)]
    reading = read(text)
    assert (reading.steps, reading.text) == ([(1, "a", {}), (2, "b", {}), (1, "c", {})], "今 \n")


HINTS: Any = [
    # the hint, the text, what it becomes; or what is wrong, where it stays text
    *(("integer", " -12\n", -12, ""), ("int", "9223372036854775807", 2**63 - 1, ""), ("Integer", "+07", 7, "")),
    *(("number", "3", 3, ""), ("number", "-.5e1", -5.0, ""), ("float", "3", 3.0, ""), ("boolean", "TRUE", True, "")),
    *(("bool", " false ", False, ""), ("text", " 3 ", " 3 ", ""), ("string", "true", "true", "")),
    ("json", ' [1, {"a": null}] ', [1, {"a": None}], ""),
    *(("integer", text, None, f"'{text}' is not an integer") for text in ("3.0", "٣", "1_000")),
    ("integer", "9223372036854775808", None, "'9223372036854775808' has more than 64 bits"),
    ("integer", "9" * 5000, None, f"'{'9' * 40}…' is not an integer"),
    *(("number", text, None, f"'{text}' is not a number") for text in ("1e999", "nan")),
    *(("float", "", None, "'' is not a number"), ("bool", "yes", None, "'yes' is neither true nor false")),
    ("base64", "aGk=", None, "the hint 'base64' is not known (json, text, integer, number, boolean)"),
    *(("json", text, None, " is not JSON (") for text in ("{a: 1}", "NaN", "1e999", "[" * 10_000, "", "9" * 5000)),
    ("json", "[18446744073709551616]", None, " is not JSON ("),
]


def test_a_hint_says_what_a_text_is() -> None:
    with Failures() as failures:
        for hint, text, value, complaint in HINTS:
            with failures.row(f"{hint} {text[:40]}"):
                reading = read(tam(f"command=t|x={text}|type_hint_x= {hint} "))
                expected = text if complaint else value
                assert (reading.arguments, type(reading.arguments["x"])) == ({"x": expected}, type(expected))
                assert len(reading.warnings) == (1 if complaint else 0)
                for warning in reading.warnings:
                    assert warning.startswith("'type_hint_x': ") and warning.endswith("; 'x' stays text")
                    assert complaint in warning


COMMAND = "command:「始」t「末」"
INNER = f"{tam('command=x')}\n{tam('command=y')}"
OPENED = "「始ESCAPE」a「末ESCAPE」 「始ESCAPE:2」b「末ESCAPE:2」\nk:「始ESCAPE:1」"
WRITTEN: Any = [
    # what is written, the arguments, the warnings
    (
        *(
            block("command:»»»t«««", "x:»»» a\nb «««", "y: >>> c <<<", "z:「始」 d 「末」"),
            {"x": "a\nb", "y": "c", "z": " d "},
        ),
        "'y': the delimiters >>> <<< are taken for »»» «««",
    ),
    (block("# write 「始」 it", f"{COMMAND} # inline", "  # x:「始」1「末」", "y:「始」2「末」"), {"y": "2"}),
    *(
        (block(COMMAND, f"x:「始ESCAPE{n}」{INNER}「末escape{n}」", "y:「始」z「末」"), {"x": INNER, "y": "z"})
        for n in ("", ":n1")
    ),
    (block(COMMAND, f"x:「始ESCAPE:1」{OPENED}「末ESCAPE:1」"), {"x": OPENED}),
    (f"{REQUEST} {COMMAND}, x:「始」1「末」，y:「始」2「末」 {END}", {"x": "1", "y": "2"}),
    (
        block(COMMAND, f"x:「始」write {END} last「末」", f"y:「始」{REQUEST}「末」"),
        {"x": f"write {END} last", "y": REQUEST},
    ),
    *(
        (f"{request}\n{COMMAND}\n{end}", {})
        for request, end in (
            ("<|[request_tool]|>", "<|[End_Tool]|>"),
            ("< | [ REQUEST_TOOL ] | >", "<|\n[END_TOOL]\t|>"),
            ("<|[REQUEST _ TOOL]|>", "<|[ END_TOOL]|>"),
        )
    ),
]


def test_delimiters_comments_and_markers_are_read() -> None:
    with Failures() as failures:
        for written, arguments, *warnings in WRITTEN:
            with failures.row(written):
                reading = read(written)
                assert (reading.steps, reading.text, reading.warnings) == ([(1, "t", arguments)], "", warnings)
