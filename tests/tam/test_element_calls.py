"""Calls written as elements, ACTION and tool_call: their shapes, values, what is text, repaired or refused."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st
from tam_reading import Reading, events_of, read, told

from tavern_tam.action import ActionParser
from tavern_tam.tool_call import ToolCallParser
from tavern_tools.api.protocols import ParserOptions


def read_action(text: str) -> Reading:
    return read(text, ActionParser)


def read_tool_call(text: str) -> Reading:
    return read(text, ToolCallParser)


def action(*inputs: str, tool: str = "t") -> str:
    """Return an ACTION of the first shape."""
    return f"<ACTION><tool_id>{tool}</tool_id><inputs>{''.join(inputs)}</inputs></ACTION>"


def value(text: str, name: str = "v") -> str:
    """Return an input as it is."""
    return f'<input name="{name}">{text}</input>'


def cdata(text: str) -> str:
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


DATA = '{"url": "http://x/y?a=1&b=2", "limit": 0.75}'
FIRST_SHAPE = f"""
<ACTION>
  <tool_id>core:run-script</tool_id>
  <inputs>
    <input name="path"><![CDATA[scripts/a.py]]></input>
    <input name="data"><![CDATA[{DATA}]]></input>
  </inputs>
</ACTION>"""
SHAPES: Any = [
    # an element, its tool, its arguments
    (FIRST_SHAPE, "core:run-script", {"path": "scripts/a.py", "data": DATA}),
    (
        "<ACTION><ToolId>k:Q</ToolId><param name='q'>tea</param><param name='n'>3</param></ACTION>",
        "k:Q",
        {"q": "tea", "n": "3"},
    ),
    ("<ACTION><tool_id>t</tool_id></ACTION>", "t", {}),
    ("<ACTION><tool_id>t</tool_id><inputs/></ACTION>", "t", {}),
    ("< action >\n<TOOL-ID > t\n</tool_id><Inputs><INPUT  NAME = 'a' >1</Input ></INPUTS></Action>", "t", {"a": "1"}),
    *(
        (action(f"<input {attribute}>1</input>"), "t", {"a b": "1"})
        for attribute in ('name="a b"', "name='a b'", 'x="1" name="a b" y=2', 'name = "a&#32;b"')
    ),
    (action("<input name=a/b>1</input>"), "t", {"a/b": "1"}),
    (action("<!-- <input name='b'>2</input> -->", value("1")), "t", {"v": "1"}),
    (action(value(""), "<input name='w'/>", value("<![CDATA[]]>", "x")), "t", {"v": "", "w": "", "x": ""}),
]
ENTITIES = "&lt;a&gt; &amp;amp; &quot;&apos; &#20013;&#x6587;"
VALUES: Any = [
    # what an input holds, its value
    *(
        (same, same)
        for same in ("a < b && c > d", "<b>bold</b> & <br/>", "<input>", "</b></inputs>", "1 <2", "  blanks  ")
    ),
    *((same, same) for same in ("trailing\n", "<", "]]>", action(), "<|[REQUEST_TOOL]|>「始」「末」<|[END_TOOL]|>")),
    *((same, same) for same in ("<think>no</think>", "&unknown; & &#xD800; &#0;")),
    *((ENTITIES, "<a> &amp; \"' 中文"), (f"<![CDATA[{ENTITIES}]]>", ENTITIES)),
    # blanks around CDATA do not count, other text does, and sections are joined
    ("\n  <![CDATA[ a ]]]]>\n<![CDATA[> b</input>]]>\n", " a ]]> b</input>"),
    ("x &lt; <![CDATA[<]]> y", "x < < y"),
    # nor do the line breaks of a value on lines of its own
    *(("\n    one\n  two\n\n  ", "    one\n  two\n"), ("\r\none\r\n", "one")),
]
NO_CALLS = [
    *("Write <ACTION> to act.", "<ACTION>", "<ACTIONS><tool_id>t</tool_id></ACTIONS>", "< ACTION is a word"),
    *("a < b > c <", "</ACTION> <tool_id>t</tool_id>", "<ACTION <tool_id>t</tool_id>"),
]


def test_both_shapes_are_read() -> None:
    with Failures() as failures:
        for text, tool, arguments in SHAPES:
            with failures.row(text):
                reading = read_action(f"I will. {text} Wait.")
                assert (reading.called, reading.warnings) == ([(tool, arguments)], [])
                assert reading.text.split() == ["I", "will.", "Wait."]


def test_a_value_keeps_what_stands_in_it() -> None:
    with Failures() as failures:
        for written, expected in VALUES:
            with failures.row(written):
                assert read_action(action(value(written), value("1", "n"))).arguments == {"v": expected, "n": "1"}


def test_what_is_no_call_is_text() -> None:
    with Failures() as failures:
        for text in NO_CALLS:
            with failures.row(text):
                reading = read_action(text)
                assert (reading.text, reading.calls, reading.warnings[1:]) == (text, [], [])


def test_each_action_is_a_block_at_its_place() -> None:
    text = f"中 {action(tool='a')} and {action(tool='b')}{action(tool='c')}"
    reading = read_action(text)
    assert [(c.tool_id, c.block, c.index, c.protocol) for c in reading.calls] == [
        *(("a", 0, 1, "action"), ("b", 1, 1, "action"), ("c", 2, 1, "action"))
    ]
    length = len(action(tool="a"))
    places = [("text", 0), ("call", 2), ("text", 2 + length), ("call", 7 + length), ("call", 7 + 2 * length)]
    assert [(event.kind, event.offset) for event in events_of([text], ActionParser)] == places


def test_text_is_released_unless_a_call_may_begin() -> None:
    parser = ActionParser(ParserOptions())
    pieces = ("Hello <", "act", "or>.", "<b", "</act")
    texts = [["Hello "], [], ["<actor>."], ["<b"], ["</act"]]
    assert [[event.text for event in parser.feed(piece)] for piece in pieces] == texts


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("<>&]![CDATA/param\n`"), max_size=60)
_NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12)


@given(st.lists(st.tuples(_NAMES, st.dictionaries(_NAMES, _TEXTS, max_size=3)), min_size=1, max_size=3))
def test_whatever_is_written_comes_back(calls: list[tuple[str, dict[str, str]]]) -> None:
    def entities(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "&#10;").replace("\r", "&#13;")

    for write in (cdata, entities):
        text = "".join(
            action(*(value(write(v), k) for k, v in arguments.items()), tool=tool) for tool, arguments in calls
        )
        reading = read_action(text)
        assert (reading.called, reading.text, reading.warnings) == (calls, "", [])
        elements = text.replace("<ACTION><tool_id>", "<tool_call name='").replace("</tool_id>", "'>")
        assert read(elements.replace("</ACTION>", "</tool_call>"), ToolCallParser).called == calls


def test_an_action_may_say_how_it_is_made() -> None:
    context = "<execution_context><request_id> r-7 </request_id><retry>2</retry></execution_context>"
    with Failures() as failures:
        for text, said in (
            (f"<tool_id>t</tool_id>{context}<inputs><input name='a'>1</input></inputs>", ("r-7", 2, 0)),
            (f"{context}<tool_id>t</tool_id><input name='a'>1</input>", ("r-7", 2, 0)),
            ("<ToolId>t</ToolId><RequestId>r-7</RequestId><input name='a'>1</input><retry>2</retry>", ("r-7", 2, 0)),
            ("<tool_id>t</tool_id><input name='a'>1</input>", (None, 0, 0)),
            ("<tool_id>t</tool_id><retry>many</retry><input name='a'>1</input>", (None, 0, 1)),
            ("<tool_id>t</tool_id><input name='retry'>9</input><input name='a'>1</input>", (None, 0, 0)),
        ):
            with failures.row(text):
                reading = read_action(f"<ACTION>{text}</ACTION>")
                [call] = reading.calls
                assert (call.request_id, call.retry, len(reading.warnings)) == said
                assert (call.tool_id, call.arguments["a"]) == ("t", "1")
    assert read_action("<ACTION><tool_id>t</tool_id><inputs><retry>2</retry></inputs></ACTION>").called == []


CALL = "<ACTION><tool_id>t</tool_id><inputs>"
OPEN = f"{CALL}<input name='v'>"
NO_END = "it has no closing tag </action>; it ends behind its last value"
ENDS = "the value of 'v' is not closed; it ends before '{}'"
REPAIRED: Any = [
    # what is written, the arguments of its calls, the text around them, the warnings
    (f"{CALL}{value('1')}</inputs>\nso", [{"v": "1"}], "\nso", NO_END),
    (f"{CALL}{value('1')}</inputs> {action(value('2'))}", [{"v": "1"}, {"v": "2"}], " ", NO_END),
    (f"{CALL}{value('1')}</ACTION>", [{"v": "1"}], "", "the list of parameters is not closed"),
    (f"{OPEN}one <b>two</b>\n</inputs></ACTION> Bye.", [{"v": "one <b>two</b>"}], " Bye.", ENDS.format("</inputs>")),
    (f"{OPEN}one</param></inputs></ACTION>", [{"v": "one"}], "", ENDS.format("</param>")),
    (action(value("Write </ACTION> at the end.")), [{"v": "Write </ACTION> at the end."}], ""),
    (
        *(f"{OPEN}<![CDATA[a &lt; <b></input></inputs></ACTION> Bye.", [{"v": "a &lt; <b>"}], " Bye."),
        "<![CDATA[ without ]]>; it ends with the value",
    ),
    (
        *(f"<ACTION><tool_id>t\n<inputs>{value('1')}</inputs></ACTION>", [{"v": "1"}], ""),
        "the tool's id is not closed; it ends before '<inputs>'",
    ),
    (action(value("1"), value("1")), [{"v": "1"}], ""),
    ("<ACTION></ACTION>" + action(), [{}], "<ACTION></ACTION>", "it names no tool; nothing is called"),
]
NO_TOOL = ["<ACTION><inputs></inputs></ACTION>", "<ACTION></ACTION>", "<ACTION><tool_id> </tool_id></ACTION>"]
REFUSED = [
    # what is written, why nothing is called
    (f"<ACTION>{value('1')}</ACTION>", "it names no tool"),
    (action(value("1"), value("2")), "'v' is given twice, with different values"),
    (
        action(value("1"), "<input name='w' Name='v'>2</input>"),
        "a parameter without a name: \"<input name='w' Name='v'>\"",
    ),
    (action(value("a</input> b")), "'</input>' closes nothing"),
    (f"{CALL}{value('a</input> b')}", "'</input>' closes nothing"),
    ("<ACTION><tool_id>t</tool_id><why>I</why><param name='v'>1</param></ACTION>", "not understood: '<why>I</why>'"),
    (f"<ACTION><tool_id>t</tool_id>{'and ' * 200}</ACTION>", "it breaks off before it is complete"),
    (
        "<ACTION><tool_id>t</tool_id><retry>1</retry><retry>2</retry><input name='a'>1</input></ACTION>",
        "retry is given twice, with different values",
    ),
    (f"{OPEN}1</inputs></ACTION>, {action(value('2', 'w'))}", "the value of 'v' holds the tag of a parameter; such a "),
    (f"{OPEN}1</inputs></ACTION>, {action()}", "the text ends inside the value of 'v'"),
    ("<ACTION><tool_id>a</tool_id><tool_id>b</tool_id></ACTION>", "it names two tools"),
    (action("<input>1</input>"), "a parameter without a name: '<input>'"),
    (action("<path>a</path>"), "'<path>' is no parameter; those are written <input name=…>"),
    (
        action(f"<input name='a'>1 {value('2')}"),
        "the value of 'a' holds the tag of a parameter; such a value is <![CDATA[…",
    ),
    *(
        (f"{OPEN}{end}", "the text ends inside the value of 'v'")
        for end in ("and text", "<![CDATA[and", f"like {action()}")
    ),
    *(
        (text, "it breaks off before it is complete")
        for text in (f"{CALL}{value('1')}", "<ACTION><tool_id>t</tool_id>")
    ),
    ("<ACTION><tool_id>t", "the text ends inside the tool's id"),
    ("<ACTION><tool_id>t</tool_id><!-- and", "the text ends inside a comment"),
]


def test_what_is_not_closed_is_repaired() -> None:
    with Failures() as failures:
        for written, arguments, text, *warnings in REPAIRED:
            with failures.row(written):
                reading = read_action(written)
                assert reading.called == [("t", one) for one in arguments]
                assert (reading.text, reading.warnings) == (text, warnings)
                assert [warning for call in reading.calls for warning in call.repairs] == (
                    warnings if text != NO_TOOL[1] else []
                )


def test_where_the_meaning_is_uncertain_nothing_is_called() -> None:
    with Failures() as failures:
        for text, problem in REFUSED:
            with failures.row(text):
                reading = read_action(f"Now: {text}")
                assert reading.text.startswith("Now: ")
                assert (len(reading.refused), reading.calls) in ((1, []), (0, []))
                assert told(reading, problem), reading.warnings
                for refused in reading.refused:
                    assert refused.arguments == {}
                    assert str(refused.refused).startswith(reading.warnings[0])
                    assert "within <![CDATA[ and ]]>" in str(refused.refused)


def test_an_element_that_asks_for_nothing_is_text() -> None:
    with Failures() as failures:
        for text in NO_TOOL:
            with failures.row(text):
                reading = read_action(f"Now: {text}")
                assert (reading.text, reading.calls, reading.refused) == (f"Now: {text}", [], [])
                assert reading.warnings == ["it names no tool; nothing is called"]


# --- tool_call ------------------------------------------------------------------------------------


def test_the_element_names_tool_and_parameters() -> None:
    reading = read_tool_call("Well. <tool_call name=\"kb:Query\"><param name='q'>a < b</param></tool_call>\nDone.")
    assert (reading.called, reading.text) == ([("kb:Query", {"q": "a < b"})], "Well. \nDone.")
    assert (reading.calls[0].protocol, reading.calls[0].block) == ("tool_call", 0)
    assert read_tool_call('<tool_call name="a"/><Tool-Call NAME="b"></TOOL_CALL>').called == [("a", {}), ("b", {})]
    inputs = "<inputs><input name='a'>1</input></inputs><parameter name='b'>2</parameter>"
    assert read_tool_call(f"<tool_call name='t'>{inputs}</tool_call>").called == [("t", {"a": "1", "b": "2"})]
    for uncertain in (BREAKS_OFF, "<tool_call name='t' name='u'><param name='a'>1</param></tool_call>"):
        reading = read_tool_call(uncertain)
        assert (reading.calls, len(reading.refused)) == ([], 1)


BREAKS_OFF = '<tool_call name="t"><param name="a">1</param><param name="b">2'
NO_TOOL_CALLS: Any = [
    # texts that call nothing, and what the only warning begins with, if there is one
    *(("<tool_call>",), ("<tool_call>[1]</tool_call>",), ("The <tool_call> element.",), ("<tool_calls name='t'/>",)),
    *(("<tool_call id='a'></tool_call>",), ('Begin with <tool_call name="t"> and go on.',)),
    ("<tool_call name=' '></tool_call>", "it names no tool; nothing is called"),
    ('<tool_call>{"arguments": {}}</tool_call>', "call 1 names no function"),
]
UNCERTAIN_JSON = [
    # what stands in the element, what the only warning begins with
    ('{"name": "t", "arguments": {"a": "\\', "not JSON: Unterminated string"),
    ('{"name": "t"} ok <b>', "not JSON: Expecting value"),
    ('{"name": "t", "arguments": {"a": "b\nc</tool_call>"}}</tool_call>', "not JSON: Invalid control char"),
    ('{"name": "t", "arguments": [1]}</tool_call>', "the arguments of call 1 ('t') are not usable: "),
    ('{"name": "t", "arguments": {"n": NaN}}</tool_call>', "not JSON: NaN is no JSON"),
    ('{"name": "t"} {"name": "t"}</tool_call>', "one element holds one call, not 2"),
    ('{"name": "t", "name": "u"}</tool_call>', "not JSON: 'name' is given twice, with different values"),
    ('{"name": "t", "arguments": {"a": 1, "a": 2}}</tool_call>', "not JSON: 'a' is given twice, with different"),
    (
        '{"name": "t", "arguments": "{\\"a\\": 1, \\"a\\": 2}"}</tool_call>',
        "the arguments of call 1 ('t') are not usable: ",
    ),
    ('{"name": "t", "args": {"a": 1}}</tool_call>', "'args' is not understood: a call has a name and arguments"),
    ('{"name": "t", "arguments": {}, "parameters": {"a": 1}}</tool_call>', "'parameters' is not understood: "),
]


def test_json_of_which_not_all_is_understood_is_refused() -> None:
    with Failures() as failures:
        for text, beginning in UNCERTAIN_JSON:
            with failures.row(text):
                reading = read_tool_call(f"<tool_call>{text}")
                assert reading.calls == []
                assert told(reading, beginning), reading.warnings
                [refused] = reading.refused
                assert (refused.tool_id, refused.arguments) == ("t", {})
                assert str(refused.refused).endswith("each key once, texts escaped")


def test_a_tool_call_that_is_none_is_text() -> None:
    with Failures() as failures:
        for text, *beginnings in NO_TOOL_CALLS:
            with failures.row(text):
                reading = read_tool_call(text)
                assert (reading.text, reading.calls) == (text, [])
                assert told(reading, *beginnings), reading.warnings
                assert all(warning.endswith("; nothing is called") for warning in reading.warnings)


AS_JSON: Any = [
    # what stands behind the opening tag, the arguments, the text that is left
    ('{"name": "t", "arguments": {"a": 1}}</tool_call>', {"a": 1}, ""),
    ('\n{"arguments": "{\\"a\\": [1]}", "name": "t"}\n</Tool-Call >, ok', {"a": [1]}, ", ok"),
    (
        '{"name": "t", "arguments": {"a": "</tool_call> \\" <tool_call>"}}</tool_call>',
        {"a": '</tool_call> " <tool_call>'},
        "",
    ),
    ('{"name": "t"}', {}, ""),
    ('{"name": "t", "parameters": {"a": 1}}</tool_call>', {"a": 1}, ""),
    ('{"name": "t"}<b>', {}, "<b>"),
]


PREFIXED: Any = [
    # what stands in the text, the arguments of its calls, the text that is left, the warnings
    ('Well.\nTOOL_CALL: {"name": "t", "arguments": {"a": "}<"}}\nDone.', [{"a": "}<"}], "Well.\n\nDone."),
    ('tool call: {"name": "t"}', [], 'tool call: {"name": "t"}'),
    ('Tool-Call :\n{"name": "t", "parameters": {"a": {"b": [1]}}} {', [{"a": {"b": [1]}}], " {"),
    ('```json\nTOOL_CALL: {"name": "t"}\n```', [{}], ""),
    ('TOOL_CALL: {"name": "t"} TOOLCALL:{"name": "t", "arguments": {"n": 2}}', [{}, {"n": 2}], " "),
    *((text, [], text) for text in ("TOOL_CALL: none", "A TOOL_CALL:", "TOOL_CALL", "too", "TOOL_CALL: <b>")),
    ('<think>TOOL_CALL: {"name": "t"}</think>', [], '<think>TOOL_CALL: {"name": "t"}</think>'),
    ("TOOL_CALL: {x}", [], "TOOL_CALL: {x}", "not JSON: Expecting property name"),
]
PREFIX_REFUSED = [
    *('TOOL_CALL: {"name": "t", "arguments": {"a": "', 'TOOL_CALL: {"name": "t", "name": "u"}'),
    *('TOOL_CALL: {"name": "t", args: 1}', 'TOOL_CALL: {"name": "t", "args": {}}'),
]


def test_json_behind_the_prefix_is_a_call() -> None:
    with Failures() as failures:
        for written, arguments, left, *warnings in PREFIXED:
            with failures.row(written):
                reading = read_tool_call(written)
                assert reading.called == [("t", one) for one in arguments]
                assert (reading.text, reading.refused, told(reading, *warnings)) == (left, [], True)
        for written in PREFIX_REFUSED:
            with failures.row(written):
                reading = read_tool_call(written)
                assert (reading.calls, [call.tool_id for call in reading.refused]) == ([], ["t"])


def test_json_in_the_element_is_a_call() -> None:
    with Failures() as failures:
        for text, arguments, left in AS_JSON:
            with failures.row(text):
                reading = read_tool_call(f"<tool_call>{text}")
                assert (reading.called, reading.text) == ([("t", arguments)], left)
                missing = ["it has no closing tag </tool_call>; it ends behind its JSON"]
                assert reading.warnings == ([] if "</" in text[-20:].lower() else missing)
