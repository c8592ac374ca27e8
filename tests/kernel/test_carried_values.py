"""Values at the edge: what a wire carries comes through as it was, anything else is refused with its place."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers.repetition import Failures, repetitions
from hypothesis import given, settings
from hypothesis import strategies as st

from tavern_host.contracts.documents import read_json
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.wire import MAX_LEVELS, Model, WireError, wire_value

LARGEST = 2**63 - 1
EDGES: list[Any] = [None, True, 0, LARGEST, -LARGEST - 1, 1.5, -0.0, 5e-324, "", "ä", "\U0001f600", [], {}]
"""Values at the edges of what is carried in JSON."""
REFUSED: list[Any] = [LARGEST + 1, -LARGEST - 2, 10**400, math.inf, -math.inf, math.nan]
"""Values of JSON's types that no wire carries."""
OTHERS: list[Any] = [object(), {1}, 1j, datetime(2020, 1, 1), {1: "a"}, range(3), type]
"""Values of other types."""
TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-LARGEST - 1, LARGEST)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
PLACES = st.lists(TEXT | st.integers(0, 3), max_size=MAX_LEVELS - 1)


class Frozen(Model):
    """A frozen model, which a wire carries."""

    inner: Any


def within(value: Any, path: list[str | int]) -> Any:
    """Return a value that has `value` at a place, and other values before it."""
    for part in reversed(path):
        value = {"before": 1, part: value} if isinstance(part, str) else [0] * part + [value]
    return value


def check_refused(value: Any, path: list[str | int]) -> None:
    """Assert that a value is refused at a place, in Python and, if it is JSON, as text."""
    whole = within(value, path)
    with pytest.raises(WireError) as refused:
        wire_value(whole)
    assert list(refused.value.path) == path
    if isinstance(value, int | float):
        with pytest.raises(InvalidInput) as error:
            read_json(json.dumps(whole), "the body")
        assert error.value.message.startswith("the body") and "pydantic" not in error.value.message


def check_carried(value: Any) -> None:
    """Assert that a value comes through as it was, in Python and as text."""
    assert wire_value(value) is value
    text = json.dumps(value)
    assert json.dumps(read_json(text, "it")) == text == json.dumps(read_json(text.encode(), "it"))


def test_edges_are_carried_anywhere() -> None:
    for value in EDGES:
        check_carried(within(value, ["a", "b c", "ä", 0, 2]))


@settings(max_examples=repetitions(50, 2000), deadline=None)
@given(JSON)
def test_json_within_the_bounds_is_carried(value: Any) -> None:
    check_carried(value)


@settings(max_examples=repetitions(50, 2000), deadline=None)
@given(st.sampled_from([*REFUSED, *OTHERS]), PLACES)
def test_other_values_are_refused_at_any_place(value: Any, path: list[str | int]) -> None:
    check_refused(value, path)


@settings(max_examples=repetitions(50, 2000), deadline=None)
@given(st.text(st.characters(), max_size=20), st.sampled_from(["\ud800", "\udfff", "\udc80\ud800"]))
def test_lone_surrogates_of_code_are_replaced_and_those_from_outside_refused(text: str, half: str) -> None:
    whole = f"{text}{half}"
    mended = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in whole)
    assert wire_value({whole: [whole]}) == {mended: [mended]}
    for sent, place in (([1, {"a": whole}], r"\$\[1\].a"), ({"b": {whole: 1}}, r"\$.b\[")):
        with pytest.raises(InvalidInput, match=rf"^it: {place}.*: the text holds half of a surrogate pair"):
            read_json(json.dumps(sent), "it")


def test_values_without_a_json_form_are_carried_too() -> None:
    value = [b"\x00", datetime(2020, 1, 1, tzinfo=UTC), Frozen(inner=[1]), (1, 2)]
    assert wire_value(value) == [*value[:3], [1, 2]]
    with pytest.raises(WireError, match=r"^\[0\].inner\[0\]: a number must be finite"):
        wire_value([Frozen(inner=[math.nan])])


@pytest.mark.parametrize("levels", [MAX_LEVELS, MAX_LEVELS + 1, 256, 100_000])
def test_at_most_a_hundred_levels_are_read(levels: int) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        text = f"{opening * levels}{'1' if closing == '}' else ''}{closing * levels}"
        if levels == MAX_LEVELS:
            read_json(text, "the body")
            continue
        with pytest.raises(InvalidInput, match="^the body.*nested more than 100 levels deep$"):
            read_json(text, "the body")


def test_what_is_no_json_is_refused_by_line_and_column() -> None:
    rows = {
        "": "it is not JSON: line 1, column 1: Expecting value",
        '{"a":\n oops}': "it is not JSON: line 2, column 2: Expecting value",
        '["1", ' + "9" * 5000: "it is not JSON: line 1, column 7: an int must have at most 64 bits",
        '{"a": -' + "9" * 5000 + "}": "it is not JSON: line 1, column 7: an int must have at most 64 bits",
        '{"a b": [NaN]}': 'it: $["a b"][0]: a number must be finite, this one is nan',
        '{"a": 1e999}': "it: $.a: a number must be finite, this one is inf",
        '{"toolId": ' + "9" * 30 + "}": "it: $.toolId: an int must have at most 64 bits",
    }
    with Failures() as failures:
        for text, message in rows.items():
            with failures.row(text[:20]), pytest.raises(InvalidInput) as refused:
                read_json(text, "it")
            assert refused.value.message == message
    with pytest.raises(InvalidInput, match=r"^it is not UTF-8 text \(byte 1\)$"):
        read_json(b'"\xff"', "it")


def test_values_that_contain_themselves_are_refused_soon() -> None:
    endless: list[Any] = []
    endless += [endless, endless, endless]
    with pytest.raises(WireError, match="nested more than 100 levels"):
        wire_value(endless)
