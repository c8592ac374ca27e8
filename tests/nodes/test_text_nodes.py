"""Text nodes: what they make of text, and that a small input cannot make a huge or endless one."""

from __future__ import annotations

import pytest
from node_bench import Nodes, Row, check_outputs, check_refusals

from tavern_nodes.values import MAX_TEXT

VALUES = {"name": "Ann", "user": {"age": 36}, "list": ["a", "b"], "nothing": None}
TEMPLATES = [
    ("Hello {name}!", "Hello Ann!"), ("{user.age} and {list.1}", "36 and b"), ("{user}", '{"age": 36}'),
    ("{nothing}|", "|"), ("{{name}} stays, {name} does not", "{name} stays, Ann does not"),
    ('{"a": {"b": 1}}', '{"a": {"b": 1}}'), ("{{{system:available_tools}}}", "{{{system:available_tools}}}"),
    ("{} { name } {na", "{} { name } {na"), ("{name}{name}", "AnnAnn"),
]  # fmt: skip
LONG = "x" * 100_000
PROMPT = {"template": "{a} {user.age} {x} {x}", "a": "a", "x": None, "user": {}}
DEAR = {"template": "Dear {name} ({user.age}), {{name}}: {list}", "values": {"name": "Bo", "list": [1]}}
CASES: list[Row] = [
    ("Text", {"text": "hello"}, {}, {"text": "hello"}),
    ("Text", {}, {}, {"text": ""}),
    ("UpperCase", {"text": "Straße"}, {}, {"text": "STRASSE"}),
    ("LowerCase", {"text": "ÀB"}, {}, {"text": "àb"}),
    ("Trim", {"text": " \n a b \t"}, {}, {"text": "a b"}),
    ("Trim", {"text": " a "}, {"side": "start"}, {"text": "a "}),
    ("Trim", {"text": " a "}, {"side": "end"}, {"text": " a"}),
    ("ReplaceText", {"text": "a.b.c", "search": ".", "replacement": "-"}, {}, {"text": "a-b-c"}),
    ("ReplaceText", {"text": "aaa", "search": "a"}, {}, {"text": ""}),
    ("SplitText", {"text": "a\nb"}, {}, {"parts": ["a", "b"]}),
    ("SplitText", {"text": "a,,b", "separator": ","}, {}, {"parts": ["a", "", "b"]}),
    ("SplitText", {"text": "a, ,b", "separator": ",", "skip_empty": True}, {}, {"parts": ["a", "b"]}),
    ("SplitText", {"text": r"a\b", "separator": r"\\"}, {}, {"parts": ["a", "b"]}),
    ("JoinText", {"parts": ["a", 1, True, None, 3.0, {"k": "é"}]}, {}, {"text": 'a\n1\ntrue\n\n3\n{"k": "é"}'}),
    ("JoinText", {"parts": [], "separator": ", "}, {}, {"text": ""}),
    ("TextLength", {"text": "汉字"}, {}, {"length": 2}),
    ("Substring", {"text": "汉字text", "start": 1, "end": 3}, {}, {"text": "字t"}),
    ("Substring", {"text": "abc", "start": -2}, {}, {"text": "bc"}),
    ("Substring", {"text": "abc", "start": 9, "end": 99}, {}, {"text": ""}),
    ("TruncateText", {"text": "abcdef", "length": 4}, {}, {"text": "abc…"}),
    ("TruncateText", {"text": "abcd", "length": 4}, {}, {"text": "abcd"}),
    ("TruncateText", {"text": "abcd", "length": 2, "ellipsis": "..."}, {}, {"text": ".."}),
    ("TruncateText", {"text": "abcd", "length": 0}, {}, {"text": ""}),
    ("TextContains", {"text": "banana", "search": "an"}, {}, {"found": True, "position": 1, "count": 2}),
    ("TextContains", {"text": "banana", "search": "x"}, {}, {"found": False, "position": -1, "count": 0}),
    ("TextContains", {"text": "ab", "search": "b"}, {"where": "start"}, {"found": False, "position": -1, "count": 0}),
    ("TextContains", {"text": "ab", "search": "b"}, {"where": "end"}, {"found": True, "position": 1, "count": 1}),
    ("TextContains", {"text": "ab", "search": "ab"}, {"where": "whole"}, {"found": True, "position": 0, "count": 1}),
    ("TextContains", {"text": "ÄB", "search": "äb"}, {"ignore_case": True}, {"found": True, "position": 0, "count": 1}),
    ("PadText", {"text": "7", "length": 3, "filler": "0"}, {"side": "start"}, {"text": "007"}),
    ("PadText", {"text": "a", "length": 4, "filler": "-="}, {}, {"text": "a-=-"}),
    ("PadText", {"text": "a", "length": 4}, {"side": "both"}, {"text": " a  "}),
    ("PadText", {"text": "abc", "length": 2}, {}, {"text": "abc"}),
    ("RepeatText", {"text": "ab", "times": 3, "separator": r"\t"}, {}, {"text": "ab\tab\tab"}),
    ("RepeatText", {"text": "ab", "times": 0, "separator": ","}, {}, {"text": ""}),
    ("RepeatText", {"text": "", "times": 2**62}, {}, {"text": ""}),
    ("TextMerge", {"text_inputs": ["a", "b"]}, {}, {"merged_text": "a\nb"}),
    ("TextMerge", {"text_inputs": ["a", "b"], "separator": r"\t"}, {}, {"merged_text": "a\tb"}),
    ("TextMerge", {"text_inputs": ["a", "b"], "separator": r"\\n"}, {}, {"merged_text": r"a\nb"}),
    ("TextMerge", {"text_inputs": ["a", "b"], "separator": r"\d"}, {}, {"merged_text": r"a\db"}),
    ("TextMerge", {"text_inputs": ["a", "b"], "separator": ""}, {}, {"merged_text": "ab"}),
    ("TextMerge", {"text_inputs": "alone", "separator": ","}, {}, {"merged_text": "alone"}),
    ("TextMerge", {"text_inputs": [], "separator": ","}, {}, {"merged_text": ""}),
    ("TextMerge", {"text_inputs": [1, False, None], "separator": ","}, {}, {"merged_text": "1,false,"}),
    *(("FormatText", {"template": template, "values": VALUES}, {}, {"text": text}) for template, text in TEMPLATES),
    ("FormatText", {"template": "{a}", "values": {"a": "{b}", "b": "no"}}, {}, {"text": "{b}"}),
    ("FormatPrompt", {**DEAR, "name": "Ann", "user": {"age": 36}}, {},
        {"text": "Dear Ann (36), {name}: [1]", "missing": []}),
    ("FormatPrompt", {"template": "你好，{姓名}", "姓名": "安"}, {}, {"text": "你好，安", "missing": []}),
    ("FormatPrompt", PROMPT, {"missing": "keep"}, {"text": "a {user.age} {x} {x}", "missing": ["user.age", "x"]}),
    ("FormatPrompt", PROMPT, {"missing": "empty"}, {"text": "a   ", "missing": ["user.age", "x"]}),
]  # fmt: skip
MANY = "the result would have 10,000,000 characters; at most 4,000,000 are possible"
REFUSED: list[Row] = [
    ("ReplaceText", {"text": "a", "search": ""}, {}, "search must not be empty"),
    ("SplitText", {"text": "a", "separator": ""}, {}, "separator must not be empty"),
    ("Trim", {"text": "a"}, {"side": "left"}, "side must be one of both, start, end, not 'left'"),
    ("TextMerge", {"text_inputs": ["a"], "separator": 1}, {}, "separator must be text, not a number"),
    ("TextMerge", {"text_inputs": ["a", b"b"]}, {},
        "text_inputs[1] cannot be written as JSON: Object of type bytes is not JSON serializable"),
    ("FormatText", {"template": "{nmae}", "values": {"name": 1}}, {},
        "path 'nmae': the data has no 'nmae'; it has 'name'"),
    ("ReplaceText", {"text": LONG, "search": "x", "replacement": "y" * 100}, {}, MANY),
    ("JoinText", {"parts": [""] * 101, "separator": LONG}, {}, MANY),
    ("FormatText", {"template": "{x}" * 1000, "values": {"x": LONG}}, {}, "the result would have 4,100,000 char…"),
    ("SplitText", {"text": "," * 2_000_000, "separator": ","}, {},
        "the result would have 2,000,001 parts; at most 1,000,000 are possible"),
    ("FormatPrompt", {"template": "{b}", "a": 1}, {}, "there is no value for {b}: the data has no 'b'; it has 'a'"),
    ("FormatPrompt", {"template": "{a.b}", "a": 1}, {},
        "there is no value for {a.b}: a is a number, which has no key 'b'"),
    ("FormatPrompt", {"template": 1}, {}, "template must be text, not a number"),
    ("FormatPrompt", {"template": "", "values": []}, {}, "values must be an object, not a list"),
    ("FormatPrompt", {"template": ""}, {"missing": "x"}, "missing must be one of error, keep, empty, not 'x'"),
    ("PadText", {"text": "", "length": MAX_TEXT + 1}, {}, "the result would have…"),
    ("RepeatText", {"text": "ab", "times": MAX_TEXT}, {}, "the result would have…"),
    ("RepeatText", {"text": "", "times": 2**62, "separator": ","}, {}, "the result would have…"),
    ("FormatPrompt", {"template": "{a}" * 100, "a": LONG}, {}, "the result would have…"),
    ("TextContains", {"text": "a", "search": ""}, {}, "search must not be empty"),
    ("TextContains", {"text": "a", "search": "a"}, {"where": "x"}, "where must be one of anywhere, start, end, …"),
    ("PadText", {"text": "a", "length": 3, "filler": ""}, {}, "filler must not be empty"),
    ("PadText", {"text": "a", "length": 3}, {"side": "x"}, "side must be one of start, end, both, not 'x'"),
    ("RepeatText", {"text": "a", "times": -1}, {}, "times must not be negative, it is -1"),
    ("TruncateText", {"text": "a", "length": -1}, {}, "length must not be negative, it is -1"),
]  # fmt: skip


async def test_text_nodes_give_their_texts(nodes: Nodes) -> None:
    await check_outputs(nodes, CASES)


async def test_refusals_of_text_nodes_say_why(nodes: Nodes) -> None:
    await check_refusals(nodes, REFUSED)


async def test_a_long_text_may_be_replaced_in(nodes: Nodes) -> None:
    result = await nodes.run("ReplaceText", {"text": "a" * (MAX_TEXT + 1), "search": "a", "replacement": "b"})
    assert result == {"text": "b" * (MAX_TEXT + 1)}


@pytest.mark.timeout(100)
async def test_templates_that_never_close_are_quick(nodes: Nodes) -> None:
    for template in ("{" * 300_000, "{a" * 300_000, "{{" + "a." * 300_000, "{" + "a" * 600_000):
        assert await nodes.run("FormatText", {"template": template, "values": {}}) == {"text": template}
