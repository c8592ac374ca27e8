"""ACTION elements that are half written: what is repaired, with a warning, and what is not called."""

from __future__ import annotations

import random
from typing import Any

import pytest
from helpers.repetition import Failures, repetitions
from tag_reading import action, read_tags, tag_events, value
from tam_reading import calls_made

from tavern_tam.action import ActionParser
from tavern_tam.tag_parser import TagParser
from tavern_tam.tool_call import ToolCallParser

CALL = "<ACTION><tool_id>t</tool_id><inputs>"


OPEN = f"{CALL}<input name='v'>"
REPAIRED: Any = [
    # what is written, the arguments of its calls, the text around them, the warnings
    (
        *(f"{CALL}{value('1')}</inputs>\nso", [{"v": "1"}], "\nso"),
        "it has no closing tag </action>; it ends behind its last value",
    ),
    (
        *(f"{CALL}{value('1')}</inputs> {action(value('2'))}", [{"v": "1"}, {"v": "2"}], " "),
        "it has no closing tag </action>; it ends behind its last value",
    ),
    (f"{CALL}{value('1')}</ACTION>", [{"v": "1"}], "", "the list of parameters is not closed"),
    (
        *(f"{OPEN}one <b>two</b>\n</inputs></ACTION> Bye.", [{"v": "one <b>two</b>"}], " Bye."),
        "the value of 'v' is not closed; it ends before '</inputs>'",
    ),
    (
        *(f"{OPEN}1</inputs></ACTION> then {action(value('2', 'w'))}", [{"v": "1"}, {"w": "2"}], " then "),
        "the value of 'v' is not closed; it ends before '</inputs>'",
    ),
    (
        *(f"{OPEN}one</param></inputs></ACTION>", [{"v": "one"}], ""),
        "the value of 'v' is not closed; it ends before '</param>'",
        "not understood and ignored: '</param>'",
    ),
    (action(value("Write </ACTION> at the end.")), [{"v": "Write </ACTION> at the end."}], ""),
    (
        *(f"{OPEN}<![CDATA[a &lt; <b></input></inputs></ACTION> Bye.", [{"v": "a &lt; <b>"}], " Bye."),
        "<![CDATA[ without ]]>; it ends with the value",
    ),
    (
        *(f"<ACTION><tool_id>t\n<inputs>{value('1')}</inputs></ACTION>", [{"v": "1"}], ""),
        "the tool's id is not closed; it ends before '<inputs>'",
    ),
    (action(value("1"), value("2")), [{"v": "2"}], "", "'v' is given twice; the last value counts"),
    (
        *("<ACTION><tool_id>t</tool_id><why>I <b>must</b></why><param name='v'>1</param></ACTION>", [{"v": "1"}], ""),
        "not understood and ignored: '<why>I <b>must</b></why>'",
    ),
]


def test_what_is_not_closed_is_repaired() -> None:
    with Failures() as failures:
        for written, arguments, text, *warnings in REPAIRED:
            with failures.row(written):
                reading = read_tags(written)
                assert reading.called == [("t", given) for given in arguments]
                assert (reading.text, reading.warnings) == (text, warnings)


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
