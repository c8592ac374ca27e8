"""Nodes that look into the items of a list: change, keep, order, group, join, count."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host import InvalidInput

PEOPLE: list[Any] = [
    {"name": "Bo", "age": 9, "tags": ["x"]},
    {"name": "ann", "age": 30},
    {"name": "Cy", "age": "12"},
    {"name": "Di"},
]

Case = tuple[str, dict[str, Any], dict[str, Any], Any]
MAPPED: list[Case] = [
    ("template", {"argument": "{index}: {item.name}"}, {}, ["0: Bo", "1: ann", "2: Cy", "3: Di"]),
    ("path", {"argument": "name"}, {}, ["Bo", "ann", "Cy", "Di"]),
    ("path", {"argument": "age"}, {"on_error": "skip"}, [9, 30, "12"]),
    ("path", {"argument": "age"}, {"on_error": "null"}, [9, 30, "12", None]),
    ("length", {}, {}, [3, 2, 2, 1]),
]


@pytest.mark.parametrize(("operation", "inputs", "config", "expected"), MAPPED)
async def test_each_item_becomes_what_the_operation_makes_of_it(
    nodes: Any, operation: str, inputs: dict[str, Any], config: dict[str, Any], expected: Any
) -> None:
    outputs = await nodes.run("MapList", {"items": PEOPLE, **inputs}, {"operation": operation, **config})
    assert outputs == {"items": expected}


@pytest.mark.parametrize(
    ("operation", "items", "expected"),
    [
        ("template", ["a", 1], ["a", "1"]),
        ("text", [1.0, True, None, [1]], ["1", "true", "", "[1]"]),
        ("upper case", ["ab"], ["AB"]),
        ("lower case", ["AB"], ["ab"]),
        ("trim", [" a\n"], ["a"]),
        ("number", [" 1.5 ", 2, True], [1.5, 2.0, 1.0]),
        ("to JSON", ["a", {"b": None}], ['"a"', '{"b": null}']),
        ("parse JSON", ['{"b": [1]}'], [{"b": [1]}]),
        ("length", [], []),
    ],
)
async def test_operations(nodes: Any, operation: str, items: list[Any], expected: list[Any]) -> None:
    assert await nodes.run("MapList", {"items": items}, {"operation": operation}) == {"items": expected}


@pytest.mark.parametrize(
    ("operation", "items", "argument", "message"),
    [
        ("template", [{}], "{item.a}", "MapList: item 0: {item.a}: item has no 'a'; it has nothing"),
        ("template", [1], "{other}", "MapList: item 0: {other}: the data has no 'other'; it has 'item', 'index'"),
        ("path", [{"a": 1}, {}], "a", "MapList: item 1: the data has no 'a'; it has nothing"),
        ("number", [1, "x"], "", "MapList: item 1 cannot be read as a number"),
        ("number", ["1_0"], "", "MapList: item 0 cannot be read as a number"),
        ("number", [[]], "", "MapList: item 0 is a list, not a number"),
        ("length", [1], "", "MapList: item 0 is a number, which has no length"),
        ("parse JSON", ["{"], "", "MapList: item 0 is not JSON"),
        ("__import__", [1], "", "MapList: operation must be one of template, path"),
    ],
)
async def test_an_item_with_which_it_cannot_be_done_is_told(
    nodes: Any, operation: str, items: list[Any], argument: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run("MapList", {"items": items, "argument": argument}, {"operation": operation})
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("operator", "value", "path", "kept"),
    [
        ("=", "Bo", "name", ["Bo"]),
        ("=", "30", "age", ["ann"]),
        ("=", 12, "age", ["Cy"]),
        ("=", ["x"], "tags", ["Bo"]),
        ("≠", "Bo", "name", ["ann", "Cy", "Di"]),
        (">", 10, "age", ["ann", "Cy"]),
        ("≤", "12", "age", ["Bo", "Cy"]),
        ("contains", "x", "tags", ["Bo"]),
        ("contains", "n", "name", ["ann"]),
        ("does not contain", "n", "name", ["Bo", "Cy", "Di"]),
        ("starts with", "C", "name", ["Cy"]),
        ("ends with", "i", "name", ["Di"]),
        ("is empty", None, "age", ["Di"]),
        ("is not empty", None, "tags", ["Bo"]),
        ("contains", "age", "", ["Bo", "ann", "Cy"]),
        ("is true", None, "name", []),
    ],
)
async def test_items_are_kept_for_which_the_comparison_holds(
    nodes: Any, operator: str, value: Any, path: str, kept: list[str]
) -> None:
    inputs = {"items": PEOPLE, "value": value, "path": path}
    outputs = await nodes.run("FilterList", inputs, {"operator": operator})
    assert [item["name"] for item in outputs["items"]] == kept
    assert [item for item in PEOPLE if item["name"] not in kept] == outputs["rest"]


@pytest.mark.parametrize(
    ("item", "value", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        ("1", 1, True),
        ("01", 1, True),
        ("true", True, True),
        ("", None, False),
        ("nan", float(1), False),
        ({"a": 1.0}, {"a": 1}, True),
        ({"a": True}, {"a": 1}, False),
        ([1, "2"], [1, 2], False),
        ("x", [], False),
        (b"a", b"a", True),
        (b"a", "a", False),
    ],
)
async def test_equal_values(nodes: Any, item: Any, value: Any, same: bool) -> None:
    assert await nodes.run("ListContains", {"items": [item], "value": value}) == {"result": same}
    outputs = await nodes.run("FilterList", {"items": [item], "value": value})
    assert outputs == ({"items": [item], "rest": []} if same else {"items": [], "rest": [item]})


async def test_values_without_an_order_are_refused(nodes: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^FilterList: a list and a number have no order$"):
        await nodes.run("FilterList", {"items": [[1]], "value": 1}, {"operator": "<"})
    with pytest.raises(InvalidInput, match=r"^SortList: a list and text have no order$|^SortList: text and a list"):
        await nodes.run("SortList", {"items": ["a", [1]]})


async def test_the_first_item_that_fits_is_found(nodes: Any) -> None:
    outputs = await nodes.run("FindInList", {"items": PEOPLE, "path": "age", "value": 10}, {"operator": ">"})
    assert outputs == {"found": True, "item": PEOPLE[1], "index": 1}
    outputs = await nodes.run("FindInList", {"items": [], "value": 10})
    assert outputs == {"found": False, "item": None, "index": -1}


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"items": [1, "a", None, [2]]}, "1, a, , [2]"),
        ({"items": ["a", "b", "c"], "last_separator": " and "}, "a, b and c"),
        ({"items": ["a"], "last_separator": " and "}, "a"),
        ({"items": PEOPLE, "path": "name", "separator": r"\n"}, "Bo\nann\nCy\nDi"),
        ({"items": []}, ""),
    ],
)
async def test_a_list_is_joined(nodes: Any, inputs: dict[str, Any], expected: str) -> None:
    assert await nodes.run("JoinList", inputs) == {"text": expected}


@pytest.mark.parametrize(
    ("inputs", "config", "expected"),
    [
        ({"items": [3, 1.5, 2]}, {}, [1.5, 2, 3]),
        ({"items": ["b", "C", "a"]}, {}, ["C", "a", "b"]),
        ({"items": ["b", "C", "a"]}, {"ignore_case": True}, ["a", "b", "C"]),
        ({"items": [2, None, "10", 1], "descending": True}, {}, ["10", 2, 1, None]),
        ({"items": PEOPLE, "path": "age"}, {}, [PEOPLE[0], PEOPLE[2], PEOPLE[1], PEOPLE[3]]),
    ],
)
async def test_a_list_is_sorted(nodes: Any, inputs: dict[str, Any], config: dict[str, Any], expected: Any) -> None:
    assert await nodes.run("SortList", inputs, config) == {"items": expected}


async def test_equal_items_keep_their_order(nodes: Any) -> None:
    items = [{"k": 1, "n": 0}, {"k": 0, "n": 1}, {"k": 1, "n": 2}]
    assert await nodes.run("SortList", {"items": items, "path": "k", "descending": True}) == {
        "items": [items[0], items[2], items[1]]
    }


async def test_the_first_of_equal_items_is_kept(nodes: Any) -> None:
    items = [1, 1.0, True, "1", {"a": 1}, {"a": 1}, None, None]
    assert (await nodes.run("UniqueList", {"items": items}))["items"] == [1, True, "1", {"a": 1}, None]
    assert (await nodes.run("UniqueList", {"items": PEOPLE, "path": "tags"}))["items"] == PEOPLE[:2]


async def test_items_are_grouped_by_a_part(nodes: Any) -> None:
    items = [{"k": 1}, {"k": "a"}, {"k": 1.0}, {}]
    assert await nodes.run("GroupList", {"items": items, "path": "k"}) == {
        "groups": {"1": [{"k": 1}, {"k": 1.0}], "a": [{"k": "a"}], "": [{}]}
    }


async def test_numbers_are_added_up(nodes: Any) -> None:
    assert await nodes.run("ListStatistics", {"items": [4, -1, 3.0]}) == {
        "sum": 6.0,
        "mean": 2.0,
        "min": -1.0,
        "max": 4.0,
        "count": 3,
    }
    assert (await nodes.run("ListStatistics", {"items": []}))["sum"] == 0.0


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([1, "2"], "ListStatistics: item 1 must be a number, not text"),
        ([1e308, 1e308], "ListStatistics: the sum: inf is not a finite number"),
        ([10**400], "ListStatistics: item 0 cannot be read as a number"),
    ],
)
async def test_what_cannot_be_added_up_is_told(nodes: Any, items: list[Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run("ListStatistics", {"items": items})
    assert refused.value.message == message


async def test_long_lists_are_worked_on(nodes: Any) -> None:
    items = list(range(50_000))
    assert (await nodes.run("SortList", {"items": items, "descending": True}))["items"] == items[::-1]
    assert (await nodes.run("FilterList", {"items": items, "value": 25_000}, {"operator": "<"}))["items"] == items[
        :25_000
    ]


@pytest.mark.parametrize("type", ["MapList", "JoinList"])
async def test_lists_that_would_become_too_large_are_refused(nodes: Any, type: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{type}: the result would have 4,[0-9,]+ characters"):
        await nodes.run(type, {"items": ["x" * 100_000] * 50})


SMALL: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
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
]


@pytest.mark.parametrize(("type", "inputs", "config", "expected"), SMALL)
async def test_result(
    nodes: Any, type: str, inputs: dict[str, Any], config: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert await nodes.run(type, inputs, config) == expected


@pytest.mark.parametrize(
    ("type", "inputs", "config", "message"),
    [
        ("AppendToList", {"items": [1], "item": 0, "position": 3}, {}, "there is no position 3; the list has 1 items"),
        ("ChunkList", {"items": [1], "size": 0}, {}, "size must be at least 1, it is 0"),
        ("ZipLists", {"lists": [[1], []]}, {"length": "equal"}, "the lists have 0 to 1 items; all must have as many"),
        ("ZipLists", {"lists": [[1], "a"]}, {}, "lists[1] must be a list, not text"),
        ("ConcatenateLists", {"lists": ["a", [1]]}, {}, "lists[0] must be a list, not text"),
        ("RangeList", {"end": 3, "step": 0}, {}, "step must not be 0"),
        ("RangeList", {"end": 10**9}, {}, "the result would have 1,000,000,000 items; at most 1,000,000 are possible"),
    ],
)
async def test_what_cannot_be_is_told(
    nodes: Any, type: str, inputs: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run(type, inputs, config)
    assert refused.value.message == f"{type}: {message}"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("type", ["UniqueList", "FlattenList", "ListContains", "GroupList", "MapList", "JoinList"])
async def test_what_is_small_but_endless_when_written_is_refused(nodes: Any, type: str) -> None:
    value: Any = None
    for _ in range(60):
        value = [value, value]
    inputs = {"items": [value], "value": value, "depth": 60}
    with pytest.raises(InvalidInput, match=r"is too large: as JSON it has more than 4,000,000 characters$"):
        await nodes.run(type, {key: inputs[key] for key in inputs if key in _inputs_of(type)})


def _inputs_of(type: str) -> set[str]:
    from node_bench import DEFINITIONS

    return set(DEFINITIONS[type].inputs)
