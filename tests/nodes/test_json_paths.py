"""Nodes that find, set and delete parts of JSON by path."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_bench import Nodes, Row, check_outputs, check_refusals

from tavern_host import InvalidInput
from tavern_nodes.paths import Index, Key, Missing, put, read_path, select, without

DATA: dict[str, Any] = {
    "users": [{"name": "Ann", "tags": ["a", "b"]}, {"name": "Bo"}, {"tags": ["c"]}],
    "a b": {"it's": 1, "": 2, "x.y": 3},
    "0": "zero",
    "姓名": "安",
}

PATHS: list[tuple[str, Any]] = [
    ("", DATA), ("$", DATA), ("users[0].name", "Ann"), ("$.users[0]['name']", "Ann"), ("users.0.name", "Ann"),
    (".users[-1].tags", ["c"]), ("$['a b'][\"it's\"]", 1), (r"['a b']['it\'s']", 1), ("['a b']['']", 2),
    ("a b['x.y']", 3), ("0", "zero"), ("$['0']", "zero"), ("姓名", "安"), (" users [ 0 ] ", Missing),
    ("users[*].name", ["Ann", "Bo"]), ("$.users[*].tags[*]", ["a", "b", "c"]), ("users.*.name", ["Ann", "Bo"]),
    ("users[1:]", [DATA["users"][1], DATA["users"][2]]), ("users[:-1].name", ["Ann", "Bo"]),
    ("users[0:1][*]", ["Ann", ["a", "b"]]), ("users[*].nothing", []), ("['a b'].*", [1, 2, 3]),
]  # fmt: skip


async def test_a_path_leads_to_a_part_or_to_several(nodes: Nodes) -> None:
    rows: list[Row] = [("JsonSelector", {"data": '[{"a": 5}]', "path": "[0].a"}, {}, {"value": 5, "found": True})]
    for path, expected in PATHS:
        outputs = {"value": "-" if expected is Missing else expected, "found": expected not in (Missing, [])}
        rows.append(("JsonSelector", {"data": DATA, "path": path, "default": "-"}, {"missing": "default"}, outputs))
    await check_outputs(nodes, rows)


LOST: list[tuple[Any, str, str]] = [
    (DATA, "users[7]", "path 'users[7]': users has 3 items, so there is no item 7"),
    (DATA, "users.name", "path 'users.name': users is a list, which has positions and no key 'name'"),
    (DATA, "users[1].age.x", "path 'users[1].age.x': users[1] has no 'age'; it has 'name'"),
    (DATA, "0[0]", "path '0[0]': 0 is text, which has no item 0"),
    (DATA, "0[*]", "path '0[*]': 0 is text"),
    (None, "a", "path 'a': the data is nothing, which has no key 'a'"),
    ("no JSON", "a", "the data is not JSON: Expecting value at line 1, column 1"),
]


async def test_a_lost_path_says_how_far_it_leads(nodes: Nodes) -> None:
    await check_refusals(nodes, (("JsonSelector", {"data": d, "path": p}, {}, m) for d, p, m in LOST))


UNREADABLE = ["a..b", "a.", "a[", "a[]", "a['b]", "a[?(@.x)]", "[1:2:3]", "a]", "$..a", "a[b]", "[99999999999]", "a[-]"]


async def test_unreadable_paths_are_refused_despite_defaults(nodes: Nodes) -> None:
    for path in UNREADABLE:
        with pytest.raises(InvalidInput, match=r"^JsonSelector: the path .* cannot be read from .* on; write "):
            await nodes.run("JsonSelector", {"data": DATA, "path": path}, {"missing": "default"})


@pytest.mark.timeout(100)
async def test_no_path_takes_long(nodes: Nodes) -> None:
    for path in ("a" * 3_000, "[" * 2_000, ".a" * 500, "['" + "\\'" * 900, "[" + " " * 1_900, "['" + "a" * 1_900):
        with pytest.raises(InvalidInput):
            await nodes.run("JsonSelector", {"data": DATA, "path": path})


@pytest.mark.timeout(100)
async def test_parts_that_are_endless_when_they_are_listed_are_refused(nodes: Nodes) -> None:
    value: Any = "x"
    for _ in range(50):
        value = [value, value]
    with pytest.raises(InvalidInput, match="at most 1,000,000 are possible"):
        await nodes.run("JsonSelector", {"data": value, "path": "[*]" * 50})


SET: list[tuple[Any, str, Any]] = [
    (None, "a.b[0].c", {"a": {"b": [{"c": "new"}]}}),
    ({"a": [1, 2]}, "a[1]", {"a": [1, "new"]}),
    ({"a": [1, 2]}, "a.2", {"a": [1, 2, "new"]}),
    ({"a": [1, 2]}, "a[-2]", {"a": ["new", 2]}),
    ({"a": 1}, "['b.c']", {"a": 1, "b.c": "new"}),
    ([1], "", "new"),
]
UNSET: list[tuple[Any, str, str]] = [
    ({"a": 1}, "a.b", "a is a number, which has no key 'b'"),
    ([1], "[3]", "the data has 1 items, so 3 cannot be set"),
    ([1], "x", "the data is a list, which has no key 'x'"),
    ([1], "[*]", "a path with * or [a:b] leads to several parts; one is needed here"),
]


async def test_parts_are_set_in_a_copy(nodes: Nodes) -> None:
    before = copy.deepcopy(SET)
    await check_outputs(
        nodes, (("JsonSetPath", {"data": d, "path": p, "value": "new"}, {}, {"data": made}) for d, p, made in SET)
    )
    assert before == SET
    await check_refusals(
        nodes,
        (("JsonSetPath", {"data": d, "path": p, "value": 1}, {}, m.removeprefix("")) for d, p, m in UNSET),
    )


async def test_a_part_is_deleted_and_what_came_in_stays(nodes: Nodes) -> None:
    data = {"a": [{"b": 1, "c": 2}, 3]}
    rows: list[Row] = [
        ("JsonDelete", {"data": data, "path": "a[0].b"}, {},
            {"data": {"a": [{"c": 2}, 3]}, "removed": 1, "found": True}),
        ("JsonDelete", {"data": data, "path": "a[-1]"}, {},
            {"data": {"a": [{"b": 1, "c": 2}]}, "removed": 3, "found": True}),
        ("JsonDelete", {"data": data, "path": "b"}, {}, {"data": data, "removed": None, "found": False}),
    ]  # fmt: skip
    await check_outputs(nodes, rows)
    assert data == {"a": [{"b": 1, "c": 2}, 3]}
    lacking = {"data": {"a": 1}, "path": "b"}
    lost = "path 'b': the data has no 'b'; it has 'a'"
    await check_refusals(nodes, [("JsonDelete", lacking, {"missing": "error"}, lost)])


values = st.recursive(
    st.integers(0, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(values, st.data())
def test_every_part_is_found_set_and_deleted_by_its_path(value: Any, data: st.DataObject) -> None:
    steps: list[Index | Key] = []
    part = value
    while isinstance(part, list | dict) and part and (not steps or data.draw(st.booleans())):
        if isinstance(part, list):
            steps.append(Index(data.draw(st.integers(-len(part), len(part) - 1))))
            part = part[steps[-1].position]  # type: ignore[union-attr]
        else:
            steps.append(Key(data.draw(st.sampled_from(sorted(part)))))
            part = part[steps[-1].text]  # type: ignore[union-attr]
    quoted = [step.text.replace("\\", "\\\\").replace("'", "\\'") if isinstance(step, Key) else "" for step in steps]
    text = "$" + "".join(
        f"[{step.position}]" if isinstance(step, Index) else f"['{key}']"
        for step, key in zip(steps, quoted, strict=True)
    )
    path = read_path(text, "test")
    assert path == tuple(steps)
    assert select(value, path, "test") == part
    assert select(put(value, path, "new", "test"), path, "test") == "new"
    assert put(value, path, part, "test") == value
    if steps and isinstance(steps[-1], Key):
        with pytest.raises(Missing):
            select(without(value, path, "test"), path, "test")


async def test_objects_are_merged_later_ones_winning(nodes: Nodes) -> None:
    objects = [{"a": {"x": 1, "l": [1]}, "b": 1}, {"a": {"y": 2, "l": [2]}, "b": {"c": 1}}]
    run = nodes.run
    assert await run("JsonMerge", {"objects": objects}) == {"object": {"a": {"x": 1, "y": 2, "l": [2]}, "b": {"c": 1}}}
    assert (await run("JsonMerge", {"objects": objects}, {"lists": "concatenate"}))["object"]["a"]["l"] == [1, 2]
    assert await run("JsonMerge", {"objects": objects}, {"deep": False}) == {"object": objects[1]}
    assert objects[0] == {"a": {"x": 1, "l": [1]}, "b": 1}


async def test_an_object_is_taken_apart_and_put_together(nodes: Nodes) -> None:
    outputs = await nodes.run("JsonKeys", {"object": {"b": 1, "a": [2]}})
    assert outputs == {"keys": ["b", "a"], "values": [1, [2]], "count": 2}
    assert await nodes.run("CreateObject", {"keys": outputs["keys"], "values": outputs["values"]}) == {
        "object": {"b": 1, "a": [2]}
    }


async def test_unequal_keys_and_values_are_refused(nodes: Nodes) -> None:
    rows: list[Row] = [
        ("CreateObject", {"keys": ["a"], "values": []}, {}, "there are 1 keys and 0 values; each key needs one"),
        ("CreateObject", {"keys": [1], "values": [2]}, {}, "keys[0] must be text, not a number"),
        ("JsonMerge", {"objects": [{}, []]}, {}, "objects[1] must be an object, not a list"),
    ]
    await check_refusals(nodes, rows)
