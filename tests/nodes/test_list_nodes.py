"""List nodes: making lists and taking them apart."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host import InvalidInput

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("CreateList", {"items": [1, "a", [2]]}, {"items": [1, "a", [2]]}),
    ("ConcatenateLists", {"lists": [[1], [], [2, 3]]}, {"items": [1, 2, 3]}),
    ("ListItem", {"items": ["a", "b"]}, {"item": "a"}),
    ("ListItem", {"items": ["a", "b"], "index": -1}, {"item": "b"}),
    ("ListSlice", {"items": [1, 2, 3, 4], "start": 1, "end": 3}, {"items": [2, 3]}),
    ("ListSlice", {"items": [1, 2, 3, 4], "start": -2}, {"items": [3, 4]}),
    ("ListSlice", {"items": [1, 2], "start": 5, "end": 9}, {"items": []}),
    ("ListLength", {"items": []}, {"length": 0}),
    ("ListLength", {"items": [1, None]}, {"length": 2}),
]


@pytest.mark.parametrize(("type", "inputs", "expected"), CASES)
async def test_result(nodes: Any, type: str, inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    assert await nodes.run(type, inputs) == expected


@pytest.mark.parametrize(("items", "index"), [([], 0), ([1, 2], 2), ([1, 2], -3)])
async def test_an_item_that_is_not_there_is_refused(nodes: Any, items: list[Any], index: int) -> None:
    with pytest.raises(InvalidInput) as refused:
        await nodes.run("ListItem", {"items": items, "index": index})
    assert refused.value.message == f"ListItem: there is no item {index}; the list has {len(items)}"


async def test_lists_that_would_be_too_long_together_are_refused(nodes: Any) -> None:
    part = [0] * 1_000_000
    with pytest.raises(InvalidInput, match=r"^ConcatenateLists: the list is too large"):
        await nodes.run("ConcatenateLists", {"lists": [part] * 3})


async def test_a_list_that_is_passed_on_is_not_the_list_that_came_in(nodes: Any) -> None:
    items = [1]
    outputs = await nodes.run("CreateList", {"items": items})
    assert outputs["items"] is not items
