"""JSON that is nearly right: what is mended, what is not, and that the caller hears of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st

from tavern_host.contracts.documents import LARGE_TEXT
from tavern_tam.native import NativeParser
from tavern_tools.api.nearly_json import BREAK, COMMA, FENCE, PYTHON, mended
from tavern_tools.api.protocols import ParserOptions
from tavern_tools.catalog.parameters import Parameters

MENDED: list[tuple[str, Any, list[str]]] = [
    ('{"a": 1,}', {"a": 1}, [COMMA]),
    ('{"a": [1, 2, ], }', {"a": [1, 2]}, [COMMA]),
    ('```json\n{"a": 1}\n```', {"a": 1}, [FENCE]),
    ('\n```\n{"a": "```"}\n```\n', {"a": "```"}, [FENCE]),
    ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}, [BREAK]),
    ("{'a': True, 'b': None, \"c\": false}", {"a": True, "b": None, "c": False}, [PYTHON]),
    ("{'a': 'it\\'s \"so\"', 'b': '\\u4e2d\\n'}", {"a": 'it\'s "so"', "b": "中\n"}, [PYTHON]),
    ("```python\n{'a': \"x\ny\",}\n```", {"a": "x\ny"}, [FENCE, PYTHON, BREAK, COMMA]),
    ('{"a": "True, None, \', ]"}', {"a": "True, None, ', ]"}, []),
]
NOT_CERTAIN = [
    *('{"a": 1', '{"a": "x', '{"a": "x}', '{"a": [1, 2}', '```json\n{"a": 1}', '{"a": "b\\'),
    *('{"a": "he said "no"", "b": 2}', "{'a': 'it's'}", "{'a': 'x' 'y'}", "{'a': b'x'}", "{'a': '\\x41'}"),
    *('{"a": 1} {"b": 2}', '{"a": 1} and so on', 'Here: {"a": 1}', '{"a": 1,, "b": 2}', "{,}x", "{a: 1}"),
    *('{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}', '{"a": 012}', '{"a": 1 // one\n}', '{"a": "x\0"}', ""),
    *('{"a": tru}', "{'a': (1, 2)}", "{1: 2}", "[" * 100_000, "{'a': " + "'" * LARGE_TEXT),
]


def test_what_is_certain_is_mended_and_told() -> None:
    with Failures() as failures:
        for text, value, notes in MENDED:
            with failures.row(text):
                found = mended(text)
                assert found is not None
                assert (json.loads(found[0]), found[1]) == (value, notes)


def test_what_is_not_certain_is_left_alone() -> None:
    with Failures() as failures:
        for text in NOT_CERTAIN:
            with failures.row(text[:60]):
                assert mended(text) is None


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(_VALUES)
def test_json_means_what_it_meant(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert mended(text) == (json.dumps(value, ensure_ascii=False), [])


@given(_VALUES, st.integers(0, 200))
def test_a_text_that_was_cut_is_never_completed(value: Any, place: int) -> None:
    for text in (json.dumps({"a": value}), repr({"a": value})):
        if place < len(text):
            assert mended(text[:place]) is None


def test_native_calls_are_made_with_what_was_mended() -> None:
    call = {"function": {"name": "t", "arguments": "{'a': [1,]}"}}
    parser = NativeParser(ParserOptions())
    parser.feed(json.dumps([call]))
    (event,) = parser.finish()
    assert event.call is not None
    assert (event.call.arguments, event.call.repairs) == ({"a": [1]}, [PYTHON, COMMA])


def test_calls_that_a_model_wrote_as_json_are_mended() -> None:
    parser = NativeParser(ParserOptions(), strict=True)
    parser.feed('{"name": "t", "arguments": {"a": 1,},}')
    (event,) = parser.finish()
    assert event.call is not None and (event.call.arguments, event.call.repairs) == ({"a": 1}, [COMMA])
    server = NativeParser(ParserOptions())  # JSON of a server is right, or not understood
    server.feed('[{"name": "t", "arguments": {"a": 1,}}]')
    assert [event.kind for event in server.finish()] == ["warning"]


@pytest.mark.parametrize(("kind", "text", "value"), [("object", "{'a': 1}", {"a": 1}), ("array", "[1, 2,]", [1, 2])])
def test_lists_and_objects_in_texts_are_mended(kind: str, text: str, value: Any) -> None:
    schema = {"type": "object", "properties": {"p": {"type": kind}}}
    bound = Parameters(schema).bind({"p": text}, text=True)
    assert (bound.arguments, bound.problems) == ({"p": value}, [])
    assert "was left out" in bound.coercions[0] or PYTHON in bound.coercions[0]
    stays = Parameters({"type": "object", "properties": {"p": {"type": "string"}}}).bind({"p": text}, text=True)
    assert stays.arguments == {"p": text}
