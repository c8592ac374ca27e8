"""Native function calls: the JSON of `tool_calls`, whole, as pieces of a stream, and broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tavern_host.contracts.protocols import ParseEvent, ParserOptions
from tavern_host.contracts.toolcalls import ToolCallRequest
from tavern_tam.native import NativeParser


def events_of(*texts: str, aliases: dict[str, str] | None = None) -> list[ParseEvent]:
    parser = NativeParser(ParserOptions(aliases=aliases or {}))
    return [event for text in texts for event in parser.feed(text)] + parser.finish()


def read(value: Any, **aliases: str) -> list[tuple[str, dict[str, Any]]]:
    events = events_of(value if isinstance(value, str) else json.dumps(value), aliases=aliases)
    assert [event.text for event in events if event.kind != "call"] == []
    return [(event.call.tool_id, event.call.arguments) for event in events if event.call is not None]


def warnings_of(value: Any) -> list[str]:
    events = events_of(value if isinstance(value, str) else json.dumps(value))
    assert {event.kind for event in events} <= {"warning"}
    return [event.text for event in events]


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def test_calls_come_in_their_order_each_in_a_block_of_its_own() -> None:
    calls = [call("a", '{"x": 1}'), call("b", '{"y": [true, null]}', id="call_2")]
    found = [event.call for event in events_of(json.dumps(calls))]
    assert found == [
        ToolCallRequest(tool_id="a", arguments={"x": 1}, block=0, request_id="call_1", protocol="native"),
        ToolCallRequest(tool_id="b", arguments={"y": [True, None]}, block=1, request_id="call_2", protocol="native"),
    ]


def test_aliases_are_turned_back() -> None:
    assert read([call("workflow_x", "{}"), call("other", "{}")], workflow_x="workflow:x") == [
        ("workflow:x", {}),
        ("other", {}),
    ]


@pytest.mark.parametrize("arguments", ["{}", "", " ", None, {}, "null"])
def test_no_arguments_may_be_written_in_many_ways(arguments: Any) -> None:
    assert read([call("a", arguments)]) == [("a", {})]


def test_arguments_may_be_an_object_and_calls_stand_alone() -> None:
    assert read([call("a", {"x": {"y": 1}})]) == [("a", {"x": {"y": 1}})]
    assert read({"name": "a", "arguments": {"x": 1}}) == [("a", {"x": 1})]
    assert read({"role": "assistant", "tool_calls": [call("a", "{}")]}) == [("a", {})]
    assert read([]) == read("null") == read("") == []


def test_pieces_of_a_stream_are_put_together_by_their_index() -> None:
    def piece(index: int, **function: Any) -> dict[str, Any]:
        return {"index": index, "function": function}

    first = {"index": 0, "id": "c0", "type": "function", "function": {"name": "a", "arguments": ""}}
    second = {"index": 1, "id": "c1", "type": "function", "function": {"name": "b", "arguments": '{"y"'}}
    pieces = [
        *(first, piece(0, arguments='{"x": ')),
        *(second, piece(0, arguments='"中"}'), piece(1, arguments=": 2}"), piece(1, arguments="")),
    ]
    expected = [("a", {"x": "中"}), ("b", {"y": 2})]
    assert read(pieces) == expected
    assert read("".join(json.dumps([one]) for one in pieces)) == expected
    assert read("\n".join(json.dumps({"tool_calls": [one]}) for one in pieces)) == expected


def test_one_index_with_two_ids_is_two_calls() -> None:
    def piece(call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
        return {"index": 0, "id": call_id, "function": {"name": name, "arguments": arguments}}

    pieces = [
        piece("c0", "a", '{"x":'),
        piece("c0", None, " 1"),
        piece("", None, "}"),
        piece("c1", "b", '{"y": 2'),
        piece(None, None, "}"),
    ]
    assert read(pieces) == [("a", {"x": 1}), ("b", {"y": 2})]


def test_a_name_that_every_piece_repeats_is_one_name() -> None:
    assert read([{"index": 0, "name": "a", "arguments": "{"}, {"index": 0, "name": "a", "arguments": "}"}]) == [
        ("a", {})
    ]


def test_json_may_come_in_any_pieces() -> None:
    text = json.dumps([call("a", '{"x": "y"}')])
    assert events_of(*text) == events_of(text)


@pytest.mark.parametrize(
    ("value", "warning"),
    [
        ("[{", "not JSON: Expecting property name"),
        ("nonsense", "not JSON: Expecting value"),
        ("[NaN]", "not JSON: NaN is no JSON"),
        ("[" * 100_000, "not JSON: it is nested too deeply"),
        ("3", "expected a list of calls, got '3'"),
        (["a"], "expected a call, got 'a'"),
        ([{}], "call 1 names no function; it is not made"),
        ([{"function": 3}], "call 1 names no function; it is not made"),
        (
            [call("a", "{", id=3)],
            "the arguments of call 1 ('a') are not usable: the text is not JSON: line 1, ",
        ),
        (
            [call("a", "[1]")],
            "the arguments of call 1 ('a') are not usable: expected an object, got '[1]'; it is not made",
        ),
        ([call("a", 3)], "the arguments of call 1 ('a') are not usable: expected an object, got '3'"),
        (
            [call("a", '{"x": 1e999}')],
            "the arguments of call 1 ('a') are not usable: the text: $.x: a number must",
        ),
        ([call("a", '{"x":' + "[" * 5000 + "]" * 5000 + "}")], "the arguments of call 1 ('a') are not usable: "),
        ([call("a", "{}", type="custom")], "call 1 ('a') is a 'custom' and not a function; it is not made"),
    ],
)
def test_what_is_no_call_is_a_warning(value: Any, warning: str) -> None:
    (text,) = warnings_of(value)
    assert text.startswith(warning)


def test_a_broken_call_does_not_keep_the_others_from_being_made() -> None:
    events = events_of(json.dumps([call("a", "{"), 1, call("b", "{}")]))
    assert [event.kind for event in events] == ["warning", "warning", "call"]
    assert (events[-1].call.tool_id, events[-1].call.block) == ("b", 0)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "type", "function", "name", "arguments", "index", "tool_calls", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_no_json_makes_it_raise(value: Any) -> None:
    for event in events_of(json.dumps(value)):
        assert event.kind in ("call", "warning")


@given(st.text(st.sampled_from('[]{}",:0 nametool_callsfunctionarguments\\u\ud800'), max_size=60))
def test_no_text_makes_it_raise(text: str) -> None:
    for event in events_of(*text):
        assert event.kind in ("call", "warning")
