"""Native function calls: the JSON of `tool_calls`, whole, as pieces of a stream, and broken."""

from __future__ import annotations

import json
from typing import Any

from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st

from tavern_tam.native import NativeParser
from tavern_tools.api.protocols import ParseEvent, ParserOptions
from tavern_tools.api.toolcalls import ToolCallRequest


def events_of(*texts: str, aliases: dict[str, str] | None = None) -> list[ParseEvent]:
    parser = NativeParser(ParserOptions(aliases=aliases or {}))
    events = [event for text in texts for event in parser.feed(text)] + parser.finish()
    assert {event.kind for event in events} <= {"call", "warning"}
    return events


def read(value: Any, **aliases: str) -> list[tuple[str, dict[str, Any]]]:
    events = events_of(value if isinstance(value, str) else json.dumps(value), aliases=aliases)
    assert [event.text for event in events if event.kind != "call"] == []
    return [(event.call.tool_id, event.call.arguments) for event in events if event.call is not None]


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def piece(index: int, call_id: str | None = None, **function: Any) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": function}


def test_calls_come_in_order_in_their_own_blocks() -> None:
    text = json.dumps([call("a", '{"x": 1}'), call("b", '{"y": [true, null]}', id="call_2")])
    assert [event.call for event in events_of(text)] == [
        ToolCallRequest(tool_id="a", arguments={"x": 1}, block=0, request_id="call_1", protocol="native"),
        ToolCallRequest(tool_id="b", arguments={"y": [True, None]}, block=1, request_id="call_2", protocol="native"),
    ]
    assert events_of(*text) == events_of(text)
    aliased = read([call("workflow_x", "{}"), call("other", "{}")], workflow_x="workflow:x")
    assert aliased == [("workflow:x", {}), ("other", {})]


PIECES = [
    *(piece(0, "c0", name="a", arguments=""), piece(0, arguments='{"x": ')),
    *(piece(1, "c1", name="b", arguments='{"y"'), piece(0, arguments='"中"}')),
    *(piece(1, arguments=": 2}"), piece(1, arguments="")),
]
TWO_IDS = [
    *(piece(0, "c0", name="a", arguments='{"x":'), piece(0, "c0", name=None, arguments=" 1")),
    *(piece(0, "", name=None, arguments="}"), piece(0, "c1", name="b", arguments='{"y": 2')),
    piece(0, None, name=None, arguments="}"),
]
UNINDEXED = [
    *({"id": "c0", "function": {"name": "a"}}, piece(0, arguments='{"x":'), piece(0, arguments="1}")),
    *({"id": "c1", "function": {"name": "b"}}, piece(0, arguments='{"y":'), piece(1, arguments="2}")),
]
FORMS: Any = [
    # what is fed, the calls
    *(([call("a", none)], [("a", {})]) for none in ("{}", "", " ", None, {}, "null")),
    ([call("a", {"x": {"y": 1}})], [("a", {"x": {"y": 1}})]),
    ({"name": "a", "arguments": {"x": 1}}, [("a", {"x": 1})]),
    ({"role": "assistant", "tool_calls": [call("a", "{}")]}, [("a", {})]),
    *((empty, []) for empty in ([], "null", "")),
    (PIECES, [("a", {"x": "中"}), ("b", {"y": 2})]),
    ("".join(json.dumps([one]) for one in PIECES), [("a", {"x": "中"}), ("b", {"y": 2})]),
    ("\n".join(json.dumps({"tool_calls": [one]}) for one in PIECES), [("a", {"x": "中"}), ("b", {"y": 2})]),
    (TWO_IDS, [("a", {"x": 1}), ("b", {"y": 2})]),
    (UNINDEXED, [("a", {"x": 1}), ("b", {"y": 2})]),
    ([piece(0, "c0", name="a"), piece(7, arguments='{"x": 1}')], [("a", {"x": 1})]),
    ([call("a", '{"x": 1}', id="c0"), {"index": 0, "function": {}}], [("a", {"x": 1})]),
    ([{"index": 0, "name": "a", "arguments": text} for text in "{}"], [("a", {})]),
]
UNUSABLE = "the arguments of call 1 ('a') are not usable: "
BROKEN: Any = [
    # what is fed, how the only warning begins
    *(
        ("[{", "not JSON: Expecting property name"),
        ("nonsense", "not JSON: Expecting value"),
        ("[NaN]", "not JSON: NaN is"),
    ),
    *(("[" * 100_000, "not JSON: it is nested too deeply"), ("3", "expected a list of calls, got '3'")),
    *((["a"], "expected a call, got 'a'"), ([{}], "call 1 names no function; it is not made")),
    *(
        ([{"function": 3}], "call 1 names no function; it is not made"),
        ([call("a", "{", id=3)], f"{UNUSABLE}the text is not"),
    ),
    *(
        ([call("a", "[1]")], f"{UNUSABLE}expected an object, got '[1]'; it is not made"),
        ([call("a", 3)], f"{UNUSABLE}expected"),
    ),
    ([call("a", '{"x": 1, "x": 2}')], f"{UNUSABLE}'x' is given twice, with different values"),
    ('[{"name": "a", "name": "b"}]', "not JSON: 'name' is given twice, with different values"),
    ([call("a", '{"x": 1e999}')], f"{UNUSABLE}the text: $.x: a number must"),
    ([call("a", '{"x":' + "[" * 5000 + "]" * 5000 + "}")], UNUSABLE),
    ([call("a", "{}", type="custom")], "call 1 ('a') is a 'custom' and not a function; it is not made"),
]


def test_calls_and_their_pieces_are_read_in_every_form() -> None:
    with Failures() as failures:
        for value, expected in FORMS:
            with failures.row(value):
                assert read(value) == expected


def test_what_is_no_call_is_a_warning() -> None:
    with Failures() as failures:
        for value, warning in BROKEN:
            with failures.row(warning):
                (event,) = events_of(value if isinstance(value, str) else json.dumps(value))
                assert (event.kind, event.text[: len(warning)]) == ("warning", warning)
    events = events_of(json.dumps([call("a", "{"), 1, call("b", "{}")]))
    assert [event.kind for event in events] == ["warning", "warning", "call"]
    assert (events[-1].call.tool_id, events[-1].call.block) == ("b", 0)


_KEYS = st.sampled_from(["id", "type", "function", "name", "arguments", "index", "tool_calls", "x"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(_JSON, st.text(st.sampled_from('[]{}",:0 nametool_callsfunctionarguments\\u\ud800'), max_size=60))
def test_nothing_makes_reading_raise(value: Any, text: str) -> None:
    events_of(json.dumps(value))
    events_of(*text)
