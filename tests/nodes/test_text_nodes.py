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
