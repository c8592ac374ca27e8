"""ACTION elements that are half written: what is repaired, with a warning, and what is not called."""

from __future__ import annotations

import random

import pytest
from helpers.repetition import Failures, repetitions
from tag_reading import action, read_tags, tag_events, value
from tam_reading import calls_made

from tavern_tam.action import ActionParser
from tavern_tam.tag_parser import TagParser
from tavern_tam.tool_call import ToolCallParser

CALL = "<ACTION><tool_id>t</tool_id><inputs>"


def test_a_call_without_its_closing_tag_ends_behind_its_last_value() -> None:
    reading = read_tags(f"{CALL}{value('1')}</inputs>\nand so on")
    assert reading.called == [("t", {"v": "1"})]
    assert reading.text == "\nand so on"
    assert reading.warnings == ["it has no closing tag </action>; it ends behind its last value"]


def test_a_call_without_its_closing_tag_ends_before_the_next() -> None:
    reading = read_tags(f"{CALL}{value('1')}</inputs> {action(value('2'))}")
    assert [call.arguments for call in reading.calls] == [{"v": "1"}, {"v": "2"}]
    assert reading.text == " "


def test_a_list_that_is_not_closed_ends_with_the_call() -> None:
    reading = read_tags(f"{CALL}{value('1')}</ACTION>")
    assert reading.called == [("t", {"v": "1"})]
    assert reading.warnings == ["the list of parameters is not closed"]


def test_a_value_that_is_not_closed_ends_before_the_next_tag_of_its_call() -> None:
    reading = read_tags(f"{CALL}<input name='v'>one <b>two</b>\n</inputs></ACTION> Bye.")
    assert reading.called == [("t", {"v": "one <b>two</b>"})]
    assert reading.text == " Bye."
    assert reading.warnings == ["the value of 'v' is not closed; it ends before '</inputs>'"]


def test_a_value_that_is_not_closed_does_not_swallow_the_next_call() -> None:
    reading = read_tags(f"{CALL}<input name='v'>one</inputs></ACTION> then {action(value('2', 'w'))}")
    assert [call.arguments for call in reading.calls] == [{"v": "one"}, {"w": "2"}]


def test_a_value_closed_by_another_tag_ends_there() -> None:
    reading = read_tags(f"{CALL}<input name='v'>one</param></inputs></ACTION>")
    assert reading.called == [("t", {"v": "one"})]
    assert reading.warnings[0] == "the value of 'v' is not closed; it ends before '</param>'"


def test_the_end_of_a_call_within_a_value_is_content_if_the_value_is_closed() -> None:
    text = "Write </ACTION> at the end."
    assert read_tags(action(value(text))).arguments == {"v": text}


def test_cdata_that_is_not_closed_ends_with_its_value() -> None:
    reading = read_tags(f"{CALL}<input name='v'><![CDATA[a &lt; <b></input></inputs></ACTION> Bye.")
    assert reading.called == [("t", {"v": "a &lt; <b>"})]
    assert reading.text == " Bye."
    assert reading.warnings == ["<![CDATA[ without ]]>; it ends with the value"]


def test_the_id_of_a_tool_that_is_not_closed_ends_before_the_next_tag() -> None:
    reading = read_tags(f"<ACTION><tool_id>t\n<inputs>{value('1')}</inputs></ACTION>")
    assert reading.called == [("t", {"v": "1"})]
    assert reading.warnings == ["the tool's id is not closed; it ends before '<inputs>'"]


def test_what_is_given_twice_counts_as_given_last() -> None:
    reading = read_tags(action(value("1"), value("2")))
    assert reading.called == [("t", {"v": "2"})]
    assert reading.warnings == ["'v' is given twice; the last value counts"]


def test_what_nobody_knows_is_ignored_outside_the_list() -> None:
    reading = read_tags("<ACTION><tool_id>t</tool_id><reason>I <b>must</b></reason><param name='v'>1</param></ACTION>")
    assert reading.called == [("t", {"v": "1"})]
    assert reading.warnings == ["not understood and ignored: '<reason>I <b>must</b></reason>'"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<ACTION><inputs></inputs></ACTION>", "it names no tool"),
        ("<ACTION><tool_id> </tool_id></ACTION>", "it names no tool"),
        ("<ACTION></ACTION>", "it names no tool"),
        ("<ACTION><tool_id>a</tool_id><tool_id>b</tool_id></ACTION>", "it names two tools"),
        (action("<input>1</input>"), "a parameter without a name: '<input>'"),
        (action("<path>a</path>"), "'<path>' is no parameter; those are written <input name=…>"),
        (
            action("<input name='a'>1 <input name='b'>2</input>"),
            "the value of 'a' holds the tag of a parameter; such a value is <![CDATA[…",
        ),
        (f"{CALL}<input name='a'>and then the text", "the text ends inside the value of 'a'"),
        (f"{CALL}<input name='a'><![CDATA[and then", "the text ends inside the value of 'a'"),
        (f"{CALL}<input name='a'>like {action()}", "the text ends inside the value of 'a'"),
        (f"{CALL}{value('1')}", "it breaks off before it is complete"),
        ("<ACTION><tool_id>t</tool_id>", "it breaks off before it is complete"),
        ("<ACTION><tool_id>t", "the text ends inside the tool's id"),
        ("<ACTION><tool_id>t</tool_id><!-- and", "the text ends inside a comment"),
    ],
)
def test_where_the_meaning_is_not_certain_nothing_is_called_and_all_is_text(text: str, problem: str) -> None:
    reading = read_tags(f"Now: {text}")
    assert reading.calls == []
    assert reading.text == f"Now: {text}"
    assert reading.warnings == [f"{problem}; nothing is called"]


def test_a_refused_call_does_not_keep_the_next_from_being_made() -> None:
    reading = read_tags(f"<ACTION></ACTION>{action(tool='next')}")
    assert reading.called == [("next", {})]
    assert reading.text == "<ACTION></ACTION>"


def test_much_text_within_a_call_means_that_it_is_none() -> None:
    prose = "and " * 200
    reading = read_tags(f"<ACTION><tool_id>t</tool_id>{prose}</ACTION>")
    assert reading.calls == []
    assert reading.text == f"<ACTION><tool_id>t</tool_id>{prose}</ACTION>"


PARTS = [
    *("<ACTION>", "</ACTION>", "<action ", "<tool_id>", "</tool_id>", "x</tool_id>", "<ToolId>y</ToolId>", "<inputs>"),
    *("</inputs>", "<input name='a'>", "</input>", '<param name="b">', "</param>", "<input/>", "<tool_call name='t'>"),
    *("<tool_call>", "</tool_call>", "<![CDATA[", "]]>", "]]", "<!--", "-->", "<think>", "</think>", "```\n", "\n```"),
    *(
        "\n",
        " ",
        "<",
        ">",
        "&lt;",
        "&#",
        "中文",
        "\x00",
        "\ud800",
        "word",
        "a < b",
        "<b>",
        "/>",
        "'",
        '"',
        "<|[REQUEST_TOOL]|>",
    ),
    *("<ACTION><tool_id>q</tool_id>", "x" * 600, " " * 80),
]


@pytest.mark.parametrize("parser", [ActionParser, ToolCallParser])
def test_result_does_not_depend_on_the_cuts(parser: type[TagParser]) -> None:
    source = random.Random(1)
    for _ in range(repetitions(100, 500)):
        text = "".join(source.choice(PARTS) for _ in range(source.randint(1, 20)))
        whole = tag_events([text], parser)
        assert tag_events(text, parser) == whole
        cuts = sorted(source.randint(0, len(text)) for _ in range(4))
        assert tag_events([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)], parser) == whole
        end = 0
        for event in whole:  # text is that of its place, and places do not go back
            if event.kind == "text":
                assert event.offset is not None
                assert event.offset >= end
                end = event.offset + len(event.text)
                assert text[event.offset : end].replace("\ud800", "\ufffd") == event.text
        if not any(event.kind == "call" for event in whole):
            assert "".join(event.text for event in whole if event.kind == "text") == text.replace("\ud800", "\ufffd")


UNFINISHED = [
    "<ACTION><tool_id>x</tool_id><inputs><input name='a'>",
    "<ACTION><tool_id>x</tool_id><input name='a'><![CDATA[",
    "<ACTION><tool_id>x</tool_id><!--",
    "<ACTION><tool_id>x</tool_id><input name='a'></ACTION>",
    "<ACTION>",
    "<ACTION ",
    "<",
    "```\n",
]


def test_unfinished_calls_take_linear_work() -> None:
    count = repetitions(200, 2_000)
    with Failures() as failures:
        json = ((ToolCallParser, unit) for unit in ('<tool_call>{"', "<tool_call>{", '<tool_call>{"</tool_call>"'))
        for parser, unit in [*((ActionParser, unit) for unit in UNFINISHED), *json]:
            with failures.row(unit):
                work, base = (
                    calls_made(tag_events, [unit * times, "]]>", "</ACTION>"], parser) for times in (4 * count, count)
                )
                assert work < 6 * base + 500
