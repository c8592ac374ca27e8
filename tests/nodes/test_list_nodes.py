"""List nodes: making lists, taking them apart, and looking into their items."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures
from node_bench import Nodes, Row, check_outputs, check_refusals

PEOPLE: list[Any] = [
    {"name": "Bo", "age": 9, "tags": ["x"]},
    {"name": "ann", "age": 30},
    {"name": "Cy", "age": "12"},
    {"name": "Di"},
]
NAMES = ["Bo", "ann", "Cy", "Di"]
GROUPED = [{"k": 1}, {"k": "a"}, {"k": 1.0}, {}]
STABLE = [{"k": 1, "n": 0}, {"k": 0, "n": 1}, {"k": 1, "n": 2}]
MAPPED: list[tuple[str, list[Any], list[Any]]] = [
    ("template", ["a", 1], ["a", "1"]), ("text", [1.0, True, None, [1]], ["1", "true", "", "[1]"]),
    ("upper case", ["ab"], ["AB"]), ("lower case", ["AB"], ["ab"]), ("trim", [" a\n"], ["a"]),
    ("number", [" 1.5 ", 2, True], [1.5, 2.0, 1.0]), ("to JSON", ["a", {"b": None}], ['"a"', '{"b": null}']),
    ("parse JSON", ['{"b": [1]}'], [{"b": [1]}]), ("length", PEOPLE, [3, 2, 2, 1]), ("length", [], []),
]  # fmt: skip
LONG = list(range(20_000))

CASES: list[Row] = [
    *(("MapList", {"items": items}, {"operation": operation}, {"items": expected})
        for operation, items, expected in MAPPED),
    ("MapList", {"items": PEOPLE, "argument": "{index}: {item.name}"}, {"operation": "template"},
        {"items": ["0: Bo", "1: ann", "2: Cy", "3: Di"]}),
    ("MapList", {"items": PEOPLE, "argument": "name"}, {"operation": "path"}, {"items": NAMES}),
    ("MapList", {"items": PEOPLE, "argument": "age"}, {"operation": "path", "on_error": "skip"},
        {"items": [9, 30, "12"]}),
    ("MapList", {"items": PEOPLE, "argument": "age"}, {"operation": "path", "on_error": "null"},
        {"items": [9, 30, "12", None]}),
    ("FindInList", {"items": PEOPLE, "path": "age", "value": 10}, {"operator": ">"},
        {"found": True, "item": PEOPLE[1], "index": 1}),
    ("FindInList", {"items": [], "value": 10}, {}, {"found": False, "item": None, "index": -1}),
    ("JoinList", {"items": [1, "a", None, [2]]}, {}, {"text": "1, a, , [2]"}),
    ("JoinList", {"items": ["a", "b", "c"], "last_separator": " and "}, {}, {"text": "a, b and c"}),
    ("JoinList", {"items": ["a"], "last_separator": " and "}, {}, {"text": "a"}),
    ("JoinList", {"items": PEOPLE, "path": "name", "separator": r"\n"}, {}, {"text": "Bo\nann\nCy\nDi"}),
    ("JoinList", {"items": []}, {}, {"text": ""}),
    ("SortList", {"items": [3, 1.5, 2]}, {}, {"items": [1.5, 2, 3]}),
    ("SortList", {"items": ["b", "C", "a"]}, {}, {"items": ["C", "a", "b"]}),
    ("SortList", {"items": ["b", "C", "a"]}, {"ignore_case": True}, {"items": ["a", "b", "C"]}),
    ("SortList", {"items": [2, None, "10", 1], "descending": True}, {}, {"items": ["10", 2, 1, None]}),
    ("SortList", {"items": PEOPLE, "path": "age"}, {}, {"items": [PEOPLE[0], PEOPLE[2], PEOPLE[1], PEOPLE[3]]}),
    ("SortList", {"items": STABLE, "path": "k", "descending": True}, {}, {"items": [STABLE[0], STABLE[2], STABLE[1]]}),
    ("SortList", {"items": LONG, "descending": True}, {}, {"items": LONG[::-1]}),
    ("UniqueList", {"items": [1, 1.0, True, "1", {"a": 1}, {"a": 1}, None, None]}, {},
        {"items": [1, True, "1", {"a": 1}, None]}),
    ("UniqueList", {"items": PEOPLE, "path": "tags"}, {}, {"items": PEOPLE[:2]}),
    ("GroupList", {"items": GROUPED, "path": "k"}, {},
        {"groups": {"1": [{"k": 1}, {"k": 1.0}], "a": [{"k": "a"}], "": [{}]}}),
    ("ListStatistics", {"items": [4, -1, 3.0]}, {}, {"sum": 6.0, "mean": 2.0, "min": -1.0, "max": 4.0, "count": 3}),
    ("ListStatistics", {"items": []}, {}, {"sum": 0.0, "mean": 0.0, "min": 0.0, "max": 0.0, "count": 0}),
    ("FirstItem", {"items": [1, 2]}, {}, {"item": 1}),
    ("FirstItem", {"items": [], "default": 0}, {}, {"item": 0}),
    ("LastItem", {"items": [1, 2]}, {}, {"item": 2}),
    ("LastItem", {"items": []}, {}, {"item": None}),
    ("AppendToList", {"items": [1], "item": [2]}, {}, {"items": [1, [2]]}),
    ("AppendToList", {"item": 1}, {}, {"items": [1]}),
    ("AppendToList", {"items": [1, 2], "item": 0, "position": 0}, {}, {"items": [0, 1, 2]}),
    ("ReverseList", {"items": [1, 2, 3]}, {}, {"items": [3, 2, 1]}),
    ("FlattenList", {"items": [1, [2, [3]]]}, {}, {"items": [1, 2, [3]]}),
    ("FlattenList", {"items": [1, [2, [3]]], "depth": 10**9}, {}, {"items": [1, 2, 3]}),
    ("ChunkList", {"items": [1, 2, 3], "size": 2}, {}, {"chunks": [[1, 2], [3]]}),
    ("ZipLists", {"lists": [[1, 2], ["a"]]}, {}, {"rows": [[1, "a"]]}),
    ("ZipLists", {"lists": [[1, 2], ["a"]]}, {"length": "longest"}, {"rows": [[1, "a"], [2, None]]}),
    ("ZipLists", {"lists": []}, {"length": "longest"}, {"rows": []}),
    ("RangeList", {"end": 3}, {}, {"items": [0, 1, 2]}),
    ("RangeList", {"start": 5, "end": 0, "step": -2}, {}, {"items": [5, 3, 1]}),
    ("RangeList", {"start": 5, "end": 0}, {}, {"items": []}),
    ("RangeList", {"start": -(2**63), "end": 2**63 - 1, "step": 2**62}, {}, {"items": [-(2**63), -(2**62), 0, 2**62]}),
    ("CreateList", {"items": [1, "a", [2]]}, {}, {"items": [1, "a", [2]]}),
    ("ConcatenateLists", {"lists": [[1], [], [2, 3]]}, {}, {"items": [1, 2, 3]}),
    ("ListItem", {"items": ["a", "b"]}, {}, {"item": "a"}),
    ("ListItem", {"items": ["a", "b"], "index": -1}, {}, {"item": "b"}),
    ("ListSlice", {"items": [1, 2, 3, 4], "start": 1, "end": 3}, {}, {"items": [2, 3]}),
    ("ListSlice", {"items": [1, 2, 3, 4], "start": -2}, {}, {"items": [3, 4]}),
    ("ListSlice", {"items": [1, 2], "start": 5, "end": 9}, {}, {"items": []}),
    ("ListLength", {"items": [1, None]}, {}, {"length": 2}),
]  # fmt: skip


def mapped(operation: str, items: list[Any], message: str, argument: str = "") -> Row:
    return "MapList", {"items": items, "argument": argument}, {"operation": operation}, message


REFUSED: list[Row] = [
    mapped("template", [{}], "item 0: {item.a}: item has no 'a'; it has nothing", "{item.a}"),
    mapped("template", [1], "item 0: {other}: the data has no 'other'; it has 'item', 'index'", "{other}"),
    mapped("path", [{"a": 1}, {}], "item 1: the data has no 'a'; it has nothing", "a"),
    mapped("number", [1, "x"], "item 1 cannot be read as a number"),
    mapped("number", ["1_0"], "item 0 cannot be read as a number"),
    mapped("number", [[]], "item 0 is a list, not a number"),
    mapped("length", [1], "item 0 is a number, which has no length"),
    mapped("parse JSON", ["{"], "item 0 is not JSON…"),
    mapped("__import__", [1], "operation must be one of template, path…"),
    ("FilterList", {"items": [[1]], "value": 1}, {"operator": "<"}, "a list and a number have no order"),
    ("SortList", {"items": ["a", [1]]}, {}, "a list and text have no order"),
    ("ListStatistics", {"items": [1, "2"]}, {}, "item 1 must be a number, not text"),
    ("ListStatistics", {"items": [1e308, 1e308]}, {}, "the sum: inf is not a finite number"),
    ("MapList", {"items": ["x" * 100_000] * 50}, {}, "the result would have 4,…"),
    ("JoinList", {"items": ["x" * 100_000] * 50}, {}, "the result would have 4,…"),
    *(("ListItem", {"items": items, "index": index}, {}, f"there is no item {index}; the list has {len(items)}")
        for items, index in (([], 0), ([1, 2], 2), ([1, 2], -3))),
    ("ConcatenateLists", {"lists": [[0] * 1_000_000] * 3}, {}, "the list is too large…"),
    ("AppendToList", {"items": [1], "item": 0, "position": 3}, {}, "there is no position 3; the list has 1 items"),
    ("ChunkList", {"items": [1], "size": 0}, {}, "size must be at least 1, it is 0"),
    ("ZipLists", {"lists": [[1], []]}, {"length": "equal"}, "the lists have 0 to 1 items; all must have as many"),
    ("ZipLists", {"lists": [[1], "a"]}, {}, "lists[1] must be a list, not text"),
    ("ConcatenateLists", {"lists": ["a", [1]]}, {}, "lists[0] must be a list, not text"),
    ("RangeList", {"end": 3, "step": 0}, {}, "step must not be 0"),
    ("RangeList", {"end": 10**9}, {}, "the result would have 1,000,000,000 items; at most 1,000,000 are possible"),
]  # fmt: skip


async def test_list_nodes_give_their_items(nodes: Nodes) -> None:
    await check_outputs(nodes, CASES)


async def test_refusals_of_list_nodes_say_why(nodes: Nodes) -> None:
    await check_refusals(nodes, REFUSED)


KEPT: list[tuple[str, Any, str, list[str]]] = [
    ("=", "Bo", "name", ["Bo"]), ("=", "30", "age", ["ann"]), ("=", 12, "age", ["Cy"]), ("=", ["x"], "tags", ["Bo"]),
    ("≠", "Bo", "name", ["ann", "Cy", "Di"]), (">", 10, "age", ["ann", "Cy"]), ("≤", "12", "age", ["Bo", "Cy"]),
    ("contains", "x", "tags", ["Bo"]), ("contains", "n", "name", ["ann"]),
    ("does not contain", "n", "name", ["Bo", "Cy", "Di"]), ("starts with", "C", "name", ["Cy"]),
    ("ends with", "i", "name", ["Di"]), ("is empty", None, "age", ["Di"]), ("is not empty", None, "tags", ["Bo"]),
    ("contains", "age", "", ["Bo", "ann", "Cy"]), ("is true", None, "name", []),
]  # fmt: skip


async def test_items_are_kept_that_the_comparison_fits(nodes: Nodes) -> None:
    with Failures() as failures:
        for operator, value, path, kept in KEPT:
            with failures.row((operator, value, path)):
                inputs = {"items": PEOPLE, "value": value, "path": path}
                outputs = await nodes.run("FilterList", inputs, {"operator": operator})
                assert [item["name"] for item in outputs["items"]] == kept
                assert [item for item in PEOPLE if item["name"] not in kept] == outputs["rest"]
    outputs = await nodes.run("FilterList", {"items": LONG, "value": 10_000}, {"operator": "<"})
    assert outputs["items"] == LONG[:10_000]


EQUAL: list[tuple[Any, Any, bool]] = [
    (1, 1.0, True), (1, True, False), ("1", 1, True), ("01", 1, True), ("true", True, True), ("", None, False),
    ("nan", float(1), False), ({"a": 1.0}, {"a": 1}, True), ({"a": True}, {"a": 1}, False), ([1, "2"], [1, 2], False),
    ("x", [], False), (b"a", b"a", True), (b"a", "a", False),
]  # fmt: skip


async def test_equal_values_are_found(nodes: Nodes) -> None:
    with Failures() as failures:
        for item, value, same in EQUAL:
            with failures.row((item, value)):
                assert await nodes.run("ListContains", {"items": [item], "value": value}) == {"result": same}
                outputs = await nodes.run("FilterList", {"items": [item], "value": value})
                assert outputs == ({"items": [item], "rest": []} if same else {"items": [], "rest": [item]})


async def test_a_passed_list_is_a_new_one(nodes: Nodes) -> None:
    items = [1]
    assert (await nodes.run("CreateList", {"items": items}))["items"] is not items
