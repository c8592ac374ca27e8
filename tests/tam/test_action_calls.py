"""Calls written as ACTION elements: both shapes, values, and what is text."""

from __future__ import annotations

import pytest
from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st
from tag_reading import action, read_tags, tag_events, value

from tavern_tam.action import ActionParser


def test_the_first_shape_has_a_list_of_inputs() -> None:
    reading = read_tags(
        """I will run it.
        <ACTION>
          <tool_id>core:run-script</tool_id>
          <inputs>
            <input name="path"><![CDATA[scripts/a.py]]></input>
            <input name="data"><![CDATA[{"url": "http://x/y?a=1&b=2", "limit": 0.75}]]></input>
            <input name="timeoutMs"><![CDATA[30000]]></input>
          </inputs>
        </ACTION> Wait."""
    )
    assert reading.called == [
        (
            "core:run-script",
            {
                "path": "scripts/a.py",
                "data": '{"url": "http://x/y?a=1&b=2", "limit": 0.75}',
                "timeoutMs": "30000",
            },
        )
    ]
    assert reading.text.split() == ["I", "will", "run", "it.", "Wait."]
    assert reading.warnings == []


def test_the_second_shape_has_params_beside_the_tool() -> None:
    reading = read_tags(
        "<ACTION><ToolId>kb:Query</ToolId><param name='q'>tea</param><param name='n'>3</param></ACTION>"
    )
    assert reading.called == [("kb:Query", {"q": "tea", "n": "3"})]


def test_a_call_needs_no_parameters() -> None:
    assert read_tags("<ACTION><tool_id>t</tool_id></ACTION>").called == [("t", {})]
    assert read_tags("<ACTION><tool_id>t</tool_id><inputs/></ACTION>").called == [("t", {})]


def test_tags_are_read_without_regard_to_case_underscores_and_blanks() -> None:
    reading = read_tags("< action >\n<TOOL-ID > t\n</tool_id><Inputs><INPUT  NAME = 'a' >1</Input ></INPUTS></Action>")
    assert reading.called == [("t", {"a": "1"})]


@pytest.mark.parametrize("attribute", ['name="a b"', "name='a b'", 'x="1" name="a b" y=2', 'name = "a&#32;b"'])
def test_attributes_stand_in_either_quote(attribute: str) -> None:
    assert read_tags(action(f"<input {attribute}>1</input>")).arguments == {"a b": "1"}


def test_an_attribute_may_stand_without_quotes() -> None:
    assert read_tags(action("<input name=a/b>1</input>")).arguments == {"a/b": "1"}


@pytest.mark.parametrize(
    "text",
    [
        "a < b && c > d",
        "<b>bold</b> & <br/>",
        "<input>",
        "</b></inputs>",
        "1 <2",
        "  blanks  ",
        "trailing\n",
        "<",
        "]]>",
        "<ACTION><tool_id>x</tool_id></ACTION>",
        "<|[REQUEST_TOOL]|>「始」「末」<|[END_TOOL]|>",
        "<think>no</think>",
        "&unknown; & &#xD800; &#0;",
    ],
)
def test_a_value_keeps_what_stands_in_it(text: str) -> None:
    assert read_tags(action(value(text), value("1", "n"))).arguments == {"v": text, "n": "1"}


def test_entities_are_decoded_outside_cdata_only() -> None:
    written = "&lt;a&gt; &amp;amp; &quot;&apos; &#20013;&#x6587;"
    assert read_tags(action(value(written), value(f"<![CDATA[{written}]]>", "w"))).arguments == {
        "v": "<a> &amp; \"' 中文",
        "w": written,
    }


def test_blanks_around_cdata_do_not_count_and_sections_are_joined() -> None:
    text = "\n  <![CDATA[ a ]]]]>\n<![CDATA[> b</input>]]>\n"
    assert read_tags(action(value(text))).arguments == {"v": " a ]]> b</input>"}


def test_text_beside_cdata_counts() -> None:
    assert read_tags(action(value("x &lt; <![CDATA[<]]> y"))).arguments == {"v": "x < < y"}


def test_the_line_breaks_of_a_value_on_lines_of_its_own_are_not_part_of_it() -> None:
    assert read_tags(action(value("\n    one\n  two\n\n  "))).arguments == {"v": "    one\n  two\n"}
    assert read_tags(action(value("\r\none\r\n"))).arguments == {"v": "one"}


def test_an_empty_value_is_empty() -> None:
    assert read_tags(action(value(""), "<input name='w'/>", value("<![CDATA[]]>", "x"))).arguments == {
        "v": "",
        "w": "",
        "x": "",
    }


def test_each_action_is_a_block_of_its_own() -> None:
    reading = read_tags(f"{action(tool='a')} and {action(tool='b')}{action(tool='c')}")
    assert [(c.tool_id, c.block, c.index, c.protocol) for c in reading.calls] == [
        ("a", 0, 1, "action"),
        ("b", 1, 1, "action"),
        ("c", 2, 1, "action"),
    ]
    assert reading.text == " and "


def test_events_say_where_they_begin() -> None:
    events = tag_events([f"中 {action(tool='a')}."], ActionParser)
    assert [(event.kind, event.offset) for event in events] == [
        ("text", 0),
        ("call", 2),
        ("text", 2 + len(action(tool="a"))),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Write <ACTION> to act.",
        "<ACTION>",
        "<ACTIONS><tool_id>t</tool_id></ACTIONS>",
        "< ACTION is a word",
        "</ACTION> <tool_id>t</tool_id>",
        "<ACTION <tool_id>t</tool_id>",
        "a < b > c <",
    ],
)
def test_what_is_no_call_is_text(text: str) -> None:
    reading = read_tags(text)
    assert (reading.text, reading.calls, reading.warnings) == (text, [], [])


def test_comments_are_dropped() -> None:
    assert read_tags(action("<!-- <input name='b'>2</input> -->", value("1"))).called == [("t", {"v": "1"})]


def test_text_is_released_as_soon_as_it_cannot_be_part_of_a_call() -> None:
    from tavern_host.contracts.protocols import ParserOptions

    parser = ActionParser(ParserOptions())
    assert [event.text for event in parser.feed("Hello <")] == ["Hello "]
    assert [event.text for event in parser.feed("act")] == []
    assert [event.text for event in parser.feed("or>.")] == ["<actor>."]


_TEXTS = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("<>&]![CDATA\n`")), max_size=60)
_NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12)


@given(st.lists(st.tuples(_NAMES, st.dictionaries(_NAMES, _TEXTS, max_size=3)), min_size=1, max_size=3))
def test_whatever_is_written_in_cdata_comes_back(calls: list[tuple[str, dict[str, str]]]) -> None:
    def section(text: str) -> str:
        return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"

    text = "".join(action(*(value(section(v), k) for k, v in given.items()), tool=tool) for tool, given in calls)
    reading = read_tags(text)
    assert reading.called == calls
    assert (reading.text, reading.warnings) == ("", [])


@given(_TEXTS)
def test_whatever_is_written_with_entities_comes_back(text: str) -> None:
    written = text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "&#10;").replace("\r", "&#13;")
    assert read_tags(action(value(written))).arguments == {"v": text}


def test_an_action_may_say_how_it_is_made() -> None:
    inner = "<execution_context><request_id> r-7 </request_id><retry>2</retry></execution_context>"
    with Failures() as failures:
        for text, said in (
            (f"<tool_id>t</tool_id>{inner}<inputs><input name='a'>1</input></inputs>", ("r-7", 2, 0)),
            (f"{inner}<tool_id>t</tool_id><input name='a'>1</input>", ("r-7", 2, 0)),
            ("<ToolId>t</ToolId><RequestId>r-7</RequestId><input name='a'>1</input><retry>2</retry>", ("r-7", 2, 0)),
            ("<tool_id>t</tool_id><input name='a'>1</input>", (None, 0, 0)),
            ("<tool_id>t</tool_id><retry>many</retry><input name='a'>1</input>", (None, 0, 1)),
            ("<tool_id>t</tool_id><input name='retry'>9</input><input name='a'>1</input>", (None, 0, 0)),
        ):
            with failures.row(text):
                reading = read_tags(f"<ACTION>{text}</ACTION>")
                [call] = reading.calls
                assert (call.request_id, call.retry, len(reading.warnings)) == said
                assert (call.tool_id, call.arguments["a"]) == ("t", "1")
    assert read_tags("<ACTION><tool_id>t</tool_id><inputs><retry>2</retry></inputs></ACTION>").called == []
