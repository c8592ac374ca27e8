"""Text nodes: what they make of text, and that a small input cannot make a huge or endless one."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host import InvalidInput
from tavern_nodes.values import MAX_TEXT

CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
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
]


@pytest.mark.parametrize(("type", "inputs", "config", "expected"), CASES)
async def test_result(
    nodes: Any, type: str, inputs: dict[str, Any], config: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert await nodes.run(type, inputs, config) == expected


TEMPLATES = [
    ("Hello {name}!", "Hello Ann!"),
    ("{user.age} and {list.1}", "36 and b"),
    ("{user}", '{"age": 36}'),
    ("{nothing}|", "|"),
    ("{{name}} stays, {name} does not", "{name} stays, Ann does not"),
    ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
    ("{{{system:available_tools}}}", "{{{system:available_tools}}}"),
    ("{} { name } {na", "{} { name } {na"),
    ("{name}{name}", "AnnAnn"),
]


@pytest.mark.parametrize(("template", "expected"), TEMPLATES)
async def test_format_text_fills_placeholders_and_leaves_other_braces(nodes: Any, template: str, expected: str) -> None:
    values = {"name": "Ann", "user": {"age": 36}, "list": ["a", "b"], "nothing": None}
    assert await nodes.run("FormatText", {"template": template, "values": values}) == {"text": expected}


async def test_format_text_does_not_fill_what_it_filled_in(nodes: Any) -> None:
    result = await nodes.run("FormatText", {"template": "{a}", "values": {"a": "{b}", "b": "no"}})
    assert result == {"text": "{b}"}


LONG = "x" * 100_000

REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("ReplaceText", {"text": "a", "search": ""}, {}, "ReplaceText: search must not be empty"),
    ("SplitText", {"text": "a", "separator": ""}, {}, "SplitText: separator must not be empty"),
    ("Trim", {"text": "a"}, {"side": "left"}, "Trim: side must be one of both, start, end, not 'left'"),
    ("TextMerge", {"text_inputs": ["a"], "separator": 1}, {}, "TextMerge: separator must be text, not a number"),
    (
        "TextMerge",
        {"text_inputs": ["a", b"b"]},
        {},
        "TextMerge: text_inputs[1] cannot be written as JSON: Object of type bytes is not JSON serializable",
    ),
    (
        "FormatText",
        {"template": "{nmae}", "values": {"name": 1}},
        {},
        "FormatText: path 'nmae': the data has no 'nmae'; it has 'name'",
    ),
    (
        "ReplaceText",
        {"text": LONG, "search": "x", "replacement": "y" * 100},
        {},
        "ReplaceText: the result would have 10,000,000 characters; at most 4,000,000 are possible",
    ),
    (
        "JoinText",
        {"parts": [""] * 101, "separator": LONG},
        {},
        "JoinText: the result would have 10,000,000 characters; at most 4,000,000 are possible",
    ),
    (
        "FormatText",
        {"template": "{x}" * 1000, "values": {"x": LONG}},
        {},
        "FormatText: the result would have 4,100,000 characters; at most 4,000,000 are possible",
    ),
    (
        "SplitText",
        {"text": "," * 2_000_000, "separator": ","},
        {},
        "SplitText: the result would have 2,000,001 parts; at most 1,000,000 are possible",
    ),
]


@pytest.mark.parametrize(("type", "inputs", "config", "message"), REFUSED, ids=lambda v: None)
async def test_refusal_says_what_is_wrong(
    nodes: Any, type: str, inputs: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run(type, inputs, config)
    assert refused.value.message == message


async def test_replacing_in_a_text_over_the_limit_is_possible_if_it_does_not_grow(nodes: Any) -> None:
    result = await nodes.run("ReplaceText", {"text": "a" * (MAX_TEXT + 1), "search": "a", "replacement": "b"})
    assert result == {"text": "b" * (MAX_TEXT + 1)}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("template", ["{" * 300_000, "{a" * 300_000, "{{" + "a." * 300_000, "{" + "a" * 600_000])
async def test_format_text_is_quick_on_templates_that_never_close(nodes: Any, template: str) -> None:
    assert await nodes.run("FormatText", {"template": template, "values": {}}) == {"text": template}


async def test_a_prompt_is_filled_in_from_its_inputs_before_the_object(nodes: Any) -> None:
    template = "Dear {name} ({user.age}), {{name}}: {list}"
    inputs = {"template": template, "values": {"name": "Bo", "list": [1]}, "name": "Ann", "user": {"age": 36}}
    assert await nodes.run("FormatPrompt", inputs) == {"text": "Dear Ann (36), {name}: [1]", "missing": []}


async def test_a_prompt_takes_any_name_of_any_script(nodes: Any) -> None:
    assert (await nodes.run("FormatPrompt", {"template": "你好，{姓名}", "姓名": "安"}))["text"] == "你好，安"


@pytest.mark.parametrize(
    ("handling", "text"), [("keep", "a {user.age} {x} {x}"), ("empty", "a   ")], ids=["kept", "left out"]
)
async def test_placeholders_without_a_value_are_handled_as_the_node_says(nodes: Any, handling: str, text: str) -> None:
    inputs = {"template": "{a} {user.age} {x} {x}", "a": "a", "x": None, "user": {}}
    assert await nodes.run("FormatPrompt", inputs, {"missing": handling}) == {
        "text": text,
        "missing": ["user.age", "x"],
    }


@pytest.mark.parametrize(
    ("inputs", "config", "message"),
    [
        ({"template": "{b}", "a": 1}, {}, "there is no value for {b}: the data has no 'b'; it has 'a'"),
        ({"template": "{a.b}", "a": 1}, {}, "there is no value for {a.b}: a is a number, which has no key 'b'"),
        ({"template": 1}, {}, "template must be text, not a number"),
        ({"template": "", "values": []}, {}, "values must be an object, not a list"),
        ({"template": ""}, {"missing": "x"}, "missing must be one of error, keep, empty, not 'x'"),
    ],
)
async def test_a_prompt_that_cannot_be_made_is_told(
    nodes: Any, inputs: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run("FormatPrompt", inputs, config)
    assert refused.value.message == f"FormatPrompt: {message}"


@pytest.mark.parametrize(
    ("type", "inputs"),
    [
        ("PadText", {"text": "", "length": MAX_TEXT + 1}),
        ("RepeatText", {"text": "ab", "times": MAX_TEXT}),
        ("RepeatText", {"text": "", "times": 2**62, "separator": ","}),
        ("FormatPrompt", {"template": "{a}" * 100, "a": "x" * 100_000}),
    ],
)
async def test_what_would_become_too_long_is_refused(nodes: Any, type: str, inputs: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=rf"^{type}: the result would have [0-9,]+ characters; at most 4,000,000"):
        await nodes.run(type, inputs)


@pytest.mark.parametrize(
    ("type", "inputs", "config", "message"),
    [
        ("TextContains", {"text": "a", "search": ""}, {}, "search must not be empty"),
        ("TextContains", {"text": "a", "search": "a"}, {"where": "x"}, "where must be one of anywhere, start, end, "),
        ("PadText", {"text": "a", "length": 3, "filler": ""}, {}, "filler must not be empty"),
        ("PadText", {"text": "a", "length": 3}, {"side": "x"}, "side must be one of start, end, both, not 'x'"),
        ("RepeatText", {"text": "a", "times": -1}, {}, "times must not be negative, it is -1"),
        ("TruncateText", {"text": "a", "length": -1}, {}, "length must not be negative, it is -1"),
    ],
)
async def test_what_cannot_be_is_told(
    nodes: Any, type: str, inputs: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run(type, inputs, config)
    assert refused.value.message.startswith(f"{type}: {message}")
