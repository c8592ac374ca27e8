"""Patches that were made to break something: names, sizes, depths, copies of copies, and people at the same time."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_assistant.patches import operations
from tavern_host.contracts.calls import operator_call

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = ["a/b", "~", "~1", "a~0b", "-", "0", "id:x", "__proto__", "constructor", "汉字", "\U0001f600", "a b", "../.."]
NAMES += ["\\", '"']
ODD: dict[str, Any] = {
    "nodes": [{"id": name, "type": "core:Text", "inputValues": {"text": name}} for name in NAMES],
    "edges": [],
    "interfaceInputs": {"__proto__": {"dataFlowType": "STRING"}},
    "grow": {"a": ["x" * 100]},
    "flag": True,
}


def escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


REFUSED: tuple[tuple[str, list[Any], str], ...] = (
    ("the workflow's id", [{"op": "add", "path": "/id", "value": "x"}], "fixed"),
    ("a node's id", [{"op": "replace", "path": "/nodes/汉字/id", "value": "x"}], "fixed"),
    ("a node's id by index", [{"op": "replace", "path": "/nodes/3/id", "value": "x"}], "fixed"),
    ("an id with the node",
     [{"op": "replace", "path": "/nodes/汉字", "value": {"id": "x", "type": "core:Text"}}], "fixed"),
    ("a localId that stays", [{"op": "add", "path": "/nodes/汉字/localId", "value": "x"}], "fixed"),
    ("a localId in a list",
     [{"op": "replace", "path": "/nodes", "value": [{"id": "x", "localId": "y"}]}], "whole_document"),
    ("a node into itself",
     [{"op": "move", "from": "/nodes/汉字", "path": "/nodes/汉字/inputValues/text"}], "move_into_itself"),
    ("the same by index", [{"op": "move", "from": "/nodes/9", "path": "/nodes/汉字/inputValues/text"}], "fixed"),
    ("the root into itself", [{"op": "move", "from": "", "path": "/nodes"}], "move_into_itself"),
    ("nodes as edges", [{"op": "move", "from": "/nodes/汉字", "path": "/edges/-"}], "bad_source"),
    ("all nodes elsewhere", [{"op": "move", "from": "/nodes", "path": "/x"}], "whole_document"),
    ("the end of a list", [{"op": "remove", "path": "/edges/-"}], "unknown_edge"),
    ("inside of the end", [{"op": "add", "path": "/edges/-/source", "value": "x"}], "unknown_edge"),
    ("a negative index", [{"op": "remove", "path": "/nodes/-1"}], "unknown_node"),
    ("a large index", [{"op": "remove", "path": f"/nodes/{10**30}"}], "unknown_node"),
    ("a wrong escape", [{"op": "remove", "path": "/nodes/~2"}], "bad_path"),
    ("no slash", [{"op": "remove", "path": "nodes/0"}], "bad_path"),
    ("a path of 200 kilobytes", [{"op": "remove", "path": "/a" * 100_000}], "bad_path"),
    ("a path of null", [{"op": "remove", "path": None}], "bad_path"),
    ("many levels", [{"op": "add", "path": "/deep", "value": deep(300)}], "not_json"),
    ("levels in steps", [{"op": "add", "path": "/d", "value": deep(60)},
                         {"op": "add", "path": f"/d{'/0' * 60}", "value": deep(60)}], "invalid"),
    ("levels by moves", [{"op": "add", "path": "/d0", "value": deep(90)},
                         *(one for n in range(1, 9) for one in (
                             {"op": "add", "path": f"/d{n}", "value": deep(90)},
                             {"op": "move", "from": f"/d{n - 1}", "path": f"/d{n}{'/0' * 89}"}))], "too_large"),
    ("levels by copies", [{"op": "add", "path": "/d", "value": {}},
                          *({"op": "copy", "from": "/d", "path": f"/d{'/d' * n}"} for n in range(1, 90))], "too_large"),
    ("true as 1", [{"op": "test", "path": "/flag", "value": 1}], "test_failed"),
    ("a localId in a comment",
     [{"op": "add", "path": "/comments/-", "value": {"localId": "c", "parentLocalId": "z"}}], "bad_member"),
    ("NaN", [{"op": "add", "path": "/n", "value": float("nan")}], "not_json"),
    ("an endless number", [{"op": "add", "path": "/n", "value": 2**64}], "not_json"),
    ("no text", [{"op": "add", "path": "/n", "value": {1: 2}}], "not_json"),
    ("a type that is none", [{"op": "add", "path": "/nodes/-", "value": {"type": "__proto__"}}], "unknown_type"),
    ("unhashable ends", [{"op": "add", "path": "/edges/-", "value": {
        "source": ["汉字"], "sourceHandle": "text", "target": {}, "targetHandle": "text"}}], "bad_value"),
    ("an unhashable parent", [{"op": "add", "path": "/nodes/汉字/parentNode", "value": {}},
                              {"op": "remove", "path": "/nodes/~01"}], "invalid"),
    ("a parent that is nobody", [{"op": "add", "path": "/nodes/汉字/parentNode", "value": "who"}], "unknown_node"),
    ("lists as texts", [{"op": "replace", "path": "/edges", "value": "all"}], "whole_document"),
    ("lists of texts", [{"op": "replace", "path": "/nodes", "value": ["汉字"]}], "whole_document"),
    ("copies of copies", [{"op": "copy", "from": "/grow", "path": f"/grow/{n}"} for n in range(200)], "too_large"),
    ("copies of nodes in nodes", [{"op": "copy", "from": "/nodes/汉字/inputValues",
                                   "path": f"/nodes/汉字/inputValues/{n}"} for n in range(200)], "too_large"),
    ("ten thousand operations", [{"op": "remove", "path": "/x"}] * 10_000, "too_many"),
    ("a thousand failures", [{"op": "test", "path": "", "value": 1}] * 1000, "test_failed"),
)  # fmt: skip


async def test_attacks_are_refused_and_change_nothing(patches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_COPIED", 20_000)  # what copies of copies reach sooner
    with Failures() as failures:
        for name, patch, code in REFUSED:
            with failures.row(name):
                document = copy.deepcopy(ODD)
                result = await patches.patch(document, *patch)
                assert not result.applied and code in [problem.code for problem in result.problems], result.problems[:3]
                assert document == ODD and len(result.problems) <= 100
                assert len(json.dumps(result.to_json())) < 100_000, "what is said stays short"


async def test_names_are_data_and_nothing_else(patches: Any) -> None:
    with Failures() as failures:
        for at, name in enumerate(NAMES):
            with failures.row(name):
                by_id = f"id:{escaped(name)}" if name in ("-", "0") else escaped(name)
                change = {"op": "replace", "path": f"/nodes/{by_id}/inputValues/text", "value": "new"}
                result = await patches.patch(ODD, change)
                assert result.applied, result.problems
                assert [one["inputValues"]["text"] == "new" for one in result.document["nodes"]].index(True) == at
                assert [one.id for one in result.changes] == [name]
                gone = await patches.patch(ODD, {"op": "remove", "path": f"/nodes/{by_id}"})
                assert name not in [one["id"] for one in gone.document["nodes"]]
                new = {"op": "add", "path": "/nodes/-", "value": {"localId": f"{name}!", "type": "core:Text"}}
                named = {"op": "add", "path": f"/nodes/{escaped(name)}!/displayName", "value": name}
                added = await patches.patch(ODD, new, named)
                assert added.applied and added.changes[0].local_id == f"{name}!"
                assert added.document["nodes"][-1]["displayName"] == name
                key = {"op": "add", "path": f"/interfaceInputs/{escaped(name)}", "value": {"dataFlowType": "STRING"}}
                assert name in (await patches.patch(ODD, key)).document["interfaceInputs"]
    result = await patches.patch(ODD, {"op": "add", "path": "/-", "value": "\ud800"})
    assert result.document["-"] == "�", "half of a character is none"


async def test_broken_documents_are_left(patches: Any) -> None:
    add = {"op": "add", "path": "/nodes/-", "value": {"type": "core:Text"}}
    for nodes, code in (({}, "broken_document"), (None, "broken_document"), ("x", "broken_document")):
        result = await patches.patch({"nodes": nodes}, add)
        assert [problem.code for problem in result.problems] == [code]
    for document in ({"nodes": [None, 5, {"type": "core:Text"}, {"id": 5}]}, {"nodes": [], "edges": [None]}):
        result = await patches.patch(document, add)
        assert [problem.code for problem in result.problems] == ["broken_document"]
    assert (await patches.patch({}, add)).document["nodes"][0]["id"] == "text"
    twins = {"nodes": [{"id": "a", "type": "core:Text"}, {"id": "a", "type": "core:Text"}]}
    gone = await patches.patch(twins, {"op": "remove", "path": "/nodes/a"})
    assert gone.document == {"nodes": []}


async def test_stored_workflows_only_are_changed(patches: Any) -> None:
    name = patches.workflow({"nodes": [], "edges": []})
    add = {"op": "add", "path": "/nodes/-", "value": {"type": "core:Text"}}
    first = await patches.assistant.apply_patch([add], name, call=operator_call())
    number = (await patches.manager.history(name, limit=1))[0].number
    for reference in (f"{name}@draft", f"{name}@r{number}"):
        assert (await patches.assistant.propose_patch([add], id=reference, call=operator_call())).applied
        status, _ = await patches.ask("/api/patches", id=reference, operations=[add])
        assert status == 404
    for reference in ("../../tavern", "", "a\0b", "x" * 5000):
        status, _ = await patches.ask("/api/patches", id=reference, operations=[add])
        assert status in (400, 404)
    assert (await patches.present(name))[1] == first.revision
    status, body = await patches.ask("/api/patches", id=f"workflows/{name}.json", operations=[add])
    assert status == 200 and body["former"] == first.revision, "a path names it as well"


async def test_large_patches_of_large_workflows_are_applied(patches: Any) -> None:
    nodes = [{"id": f"n{at}", "type": "core:Text", "position": {"x": at, "y": 0}} for at in range(500)]
    patch: list[Any] = [{"op": "remove", "path": f"/nodes/n{at}"} for at in range(150)]
    new = [{"localId": f"l{at}", "type": "core:Text"} for at in range(100)]
    patch += [{"op": "add", "path": "/nodes/0", "value": value} for value in new]
    patch += [{"op": "move", "from": f"/nodes/{value['localId']}", "path": "/nodes/-"} for value in new]
    result = await patches.patch({"nodes": nodes, "edges": []}, *patch)
    assert result.applied and len(result.document["nodes"]) == 450
    assert result.document["nodes"][-1]["id"] == "text-100"
