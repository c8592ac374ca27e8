"""JSON nodes: reading, writing, taking parts; bad text is told with line and column."""

from __future__ import annotations

from typing import Any

import pytest
from node_bench import Nodes, Row, check_outputs, check_refusals

from tavern_host import InvalidInput
from tavern_nodes import values
from tavern_nodes.values import MAX_NESTING, MAX_TEXT

DATA = {"users": [{"name": "Ann"}, {"name": "Bo"}], "": 1, "empty": {}}
DEEPEST = "[" * MAX_NESTING + "]" * MAX_NESTING
BEFORE = {"a": 1}
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)

CASES: list[Row] = [
    ("ParseJson", {"text": '{"a": [1, 2.5, true, null, "ü"]}'}, {}, {"value": {"a": [1, 2.5, True, None, "ü"]}}),
    ("ParseJson", {"text": " 5 "}, {}, {"value": 5}),
    ("ParseJson", {"text": "9223372036854775807"}, {}, {"value": 2**63 - 1}),
    ("ParseJson", {"text": "null"}, {}, {"value": None}),
    ("ToJson", {"value": {"a": ["ü"]}}, {}, {"text": '{"a": ["ü"]}'}),
    ("ToJson", {"value": {"a": ["ü"]}, "indent": 2}, {}, {"text": '{\n  "a": [\n    "ü"\n  ]\n}'}),
    *(("JsonGet", {"data": DATA, "path": path}, {}, {"value": value, "found": True})
        for path, value in (("users.0.name", "Ann"), ("users.-1.name", "Bo"), ("", DATA), ("empty", {}))),
    ("JsonGet", {"data": DATA, "path": "x", "default": 7}, {"missing": "default"}, {"value": 7, "found": False}),
    ("JsonSet", {"object": BEFORE, "key": "b", "value": 2}, {}, {"object": {"a": 1, "b": 2}}),
    ("JsonSet", {"key": "b", "value": 2}, {}, {"object": {"b": 2}}),
]  # fmt: skip
LONG_INTEGER = "9" * 5000
PARSED = [
    ("", "Expecting value at line 1, column 1: the text ends"),
    ('{"a": 1,\n b}', "Expecting property name enclosed in double quotes at line 2, column 2: 'b}'"),
    ("NaN", "NaN is not JSON"),
    ("[1e999]", "1e999 is too large for a number"),
    ("9223372036854775808", "9223372036854775808 does not fit into 64 bits"),
    (LONG_INTEGER, f"{LONG_INTEGER[:59]}… does not fit into 64 bits; put it in quotes"),
    ("[" * 101 + "]" * 101, "the text is nested more than 100 deep"),
    ("[" * 200_000, "the text is nested more than 100 deep"),
    (" " * (MAX_TEXT + 1), "the text has 4,000,001 characters; at most 4,000,000 are read"),
]
PATHS = [
    ("users.0.age", "users.0 has no 'age'; it has 'name'"),
    ("nobody", "the data has no 'nobody'; it has 'users', '', 'empty'"),
    ("empty.a", "empty has no 'a'; it has nothing"),
    ("users.2", "users has 2 items, so there is no item 2"),
    ("users.first", "users is a list, so a number must follow, not 'first'"),
    ("users.0.name.x", "users.0.name is text, which has no parts"),
]
REFUSED: list[Row] = [
    *(("ParseJson", {"text": text}, {}, message) for text, message in PARSED),
    *(("JsonGet", {"data": DATA, "path": path}, {}, f"path '{path}': {message}") for path, message in PATHS),
    ("ToJson", {"value": float("nan")}, {}, "the value cannot be written as JSON: Out of range float values…"),
    ("ToJson", {"value": 1, "indent": 99}, {}, "indent must be from 0 to 8, not 99"),
]


async def test_json_nodes_read_and_write(nodes: Nodes) -> None:
    await check_outputs(nodes, CASES)
    assert BEFORE == {"a": 1}


async def test_refusals_of_json_nodes_say_where(nodes: Nodes) -> None:
    await check_refusals(nodes, REFUSED)


async def test_json_of_the_deepest_nesting_is_read_and_written(nodes: Nodes) -> None:
    value = (await nodes.run("ParseJson", {"text": DEEPEST}))["value"]
    assert await nodes.run("ToJson", {"value": value}) == {"text": DEEPEST}


@pytest.mark.in_process_only("these are no values that could be sent")
async def test_what_is_not_json_is_not_written(nodes: Nodes) -> None:
    await check_refusals(
        nodes,
        [
            ("ToJson", {"value": b"x"}, {}, "the value cannot be written as JSON: Object of type bytes…"),
            ("ToJson", {"value": ENDLESS}, {}, "the value is nested more than 100 deep"),
        ],
    )


def doubled(times: int) -> Any:
    """Return a list that is small in memory and has 2 ** times values when it is written."""
    value: Any = None
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.timeout(100)
async def test_small_values_that_are_written_endlessly_are_refused(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "MAX_TEXT", 40_000)
    large = doubled(60)
    rows: list[tuple[str, dict[str, Any]]] = [
        ("ToJson", {"value": large}),
        ("ToJson", {"value": ["x" * 1_000] * 100}),
        ("ToJson", {"value": doubled(10), "indent": 8}),
        ("CreateList", {"items": [large]}),
        ("ConcatenateLists", {"lists": [large, []]}),
        ("JsonSet", {"key": "k", "value": large}),
        ("JoinText", {"parts": [large]}),
        ("TextMerge", {"text_inputs": [large]}),
        ("FormatText", {"template": "{a}", "values": {"a": large}}),
        ("Compare", {"a": large, "b": large}),
        *((type, {"items": [large]}) for type in ("UniqueList", "GroupList", "MapList", "JoinList")),
        ("FlattenList", {"items": [large], "depth": 60}),
        ("ListContains", {"items": [large], "value": large}),
    ]
    for type, inputs in rows:
        with pytest.raises(InvalidInput, match=r"is too large: as JSON it has more than 40,000 characters$"):
            await nodes.run(type, inputs)
