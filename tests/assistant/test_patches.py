"""What patches of workflows do beyond JSON Patch, and what is said where they cannot be applied."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from helpers.repetition import Failures

from tavern_assistant.api.assistant import PatchResult
from tests.assistant.conftest import SHOP

pytestmark = pytest.mark.asyncio(loop_scope="module")


def add(value: Any, kind: str = "nodes", at: str = "-") -> dict[str, Any]:
    return {"op": "add", "path": f"/{kind}/{at}", "value": value}


def edge(source: str, output: str, target: str, handle: str, **more: Any) -> dict[str, Any]:
    """An edge; an end that begins with @ is a localId."""
    ends = {"source": source, "target": target}
    named = {f"{end}LocalId" if name[0] == "@" else end: name.lstrip("@") for end, name in ends.items()}
    return add({**named, "sourceHandle": output, "targetHandle": handle, **more}, "edges")


def remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


def node(result: PatchResult, name: str) -> Any:
    assert result.applied and result.document is not None, result.problems
    nodes: Any = result.document["nodes"]
    return next((one for one in nodes if one["id"] == name), None)


def ends(result: PatchResult) -> list[str]:
    assert result.applied and result.document is not None, result.problems
    edges: Any = result.document["edges"]
    return [f"{e['source']}.{e['sourceHandle']}>{e['target']}.{e['targetHandle']}" for e in edges]


async def test_nodes_are_added_and_connected_by_local_ids(patches: Any) -> None:
    result = await patches.patch(
        SHOP,
        add({"localId": "loud", "type": "core:UpperCase"}),
        remove("/edges/e3"),
        edge("join", "merged_text", "@loud", "text"),
        edge("@loud", "text", "out", "text"),
        {"op": "add", "path": "/nodes/loud/displayName", "value": "Louder"},
    )
    made = node(result, "upper-case")
    place = made["position"]
    assert made == {"id": "upper-case", "type": "core:UpperCase", "displayName": "Louder", "position": place}
    assert place["x"] >= 400 and "localId" not in str(result.document)
    assert [(c.kind, c.what, c.id, c.local_id) for c in result.changes] == [
        *(("added", "node", "upper-case", "loud"), ("removed", "edge", "e3", None)),
        *(("added", "edge", id, None) for id in ("join-upper-case", "upper-case-out")),
    ]
    for before in SHOP["nodes"]:
        assert node(result, before["id"])["position"] == before["position"], "what a person placed stays"
    last = str(len(SHOP["nodes"]) + 1)  # right behind the last one
    again = await patches.patch(result.document, add({"type": "core:UpperCase", "data": {"text": "x"}}, at=last))
    assert node(again, "upper-case-2")["inputValues"] == {"text": "x"}, "ids are free ones"


async def test_what_belongs_together_goes_together(patches: Any) -> None:
    result = await patches.patch(SHOP, remove("/nodes/say"))
    assert ends(result) == ["ask.name>join.text_inputs__0", "join.merged_text>out.text"], "the other one moves up"
    assert node(result, "join")["inputConnectionOrders"] == {"text_inputs": ["e2"]}
    result = await patches.patch(SHOP, remove("/nodes/join"))
    assert ends(result) == [] and "previewTarget" not in (result.document or {})
    result = await patches.patch(SHOP, remove("/interfaceInputs/name"))
    assert ends(result) == ["say.text>join.text_inputs__0", "join.merged_text>out.text"]
    moved = {"op": "move", "from": "/interfaceInputs/name", "path": "/interfaceInputs/who"}
    assert "ask.who>join.text_inputs__1" in ends(await patches.patch(SHOP, moved))
    zone = {"localId": "loop", "type": "core:LoopZone", "data": {"count": 2}}
    inner = {"localId": "in", "type": "core:Text", "parentLocalId": "loop", "data": {"text": "x"}}
    made = await patches.patch(SHOP, add(zone), add(inner))
    loop, text = node(made, "loop-zone"), node(made, "text")
    assert text["parentNode"] == "loop-zone" and loop["configValues"] == {"count": 2}
    assert 0 < text["position"]["x"] < loop["width"] and 0 < text["position"]["y"] < loop["height"]
    assert {c.what for c in made.changes} == {"group", "node"}
    gone = await patches.patch(made.document, remove("/nodes/loop-zone"))
    assert node(gone, "text") is None and node(gone, "say") is not None


async def test_places_in_inputs_for_several_are_given(patches: Any) -> None:
    result = await patches.patch(SHOP, edge("say", "text", "join", "text_inputs"))
    assert ends(result)[-1] == "say.text>join.text_inputs__2"
    result = await patches.patch(SHOP, edge("say", "text", "join", "text_inputs__0"))
    assert node(result, "join")["inputConnectionOrders"] == {"text_inputs": ["say-join", "e1", "e2"]}
    assert "ask.name>join.text_inputs__2" in ends(result)
    bare = copy.deepcopy(SHOP)
    del bare["nodes"][2]["inputConnectionOrders"]
    result = await patches.patch(bare, remove("/edges/e1"), edge("say", "text", "join", "text_inputs"))
    assert ends(result)[-1] == "say.text>join.text_inputs__0", "the first that is free"


async def test_whole_items_are_replaced_moved_and_copied(patches: Any) -> None:
    new = {"op": "replace", "path": "/nodes/say", "value": {"type": "core:UpperCase", "inputValues": {"text": "x"}}}
    assert node(await patches.patch(SHOP, new), "say") == {**new["value"], "id": "say", "position": {"x": 0, "y": 0}}
    copied = await patches.patch(SHOP, {"op": "copy", "from": "/nodes/say", "path": "/nodes/-"})
    assert node(copied, "text")["inputValues"] == {"text": "hello"}
    assert node(copied, "text")["position"] != {"x": 0, "y": 0}
    moved = await patches.patch(SHOP, {"op": "move", "from": "/nodes/out", "path": "/nodes/0"})
    assert [one["id"] for one in moved.document["nodes"]] == ["out", "say", "ask", "join"]
    assert moved.document["edges"] == SHOP["edges"]
    rest = await patches.patch(SHOP, {"op": "replace", "path": "/extra/kept/0", "value": {"a": 1}})
    assert rest.document == {**SHOP, "extra": {"kept": [{"a": 1}, None]}}
    noted = await patches.patch(SHOP, add({"text": "Look!"}, "comments"))
    assert noted.document["comments"] == [{"id": "note", "text": "Look!"}]


REFUSED: tuple[tuple[str, list[Any], list[tuple[int | None, str, str, str]]], ...] = (
    # name, patch, problems: operation, code, path, and what the hint or the message says
    ("type", [add({"type": "core:UperCase"})], [(0, "unknown_type", "/nodes/uper-case/type", "core:UpperCase")]),
    ("bare type", [add({"localId": "a", "type": "uppercase"})],
     [(0, "unknown_type", "/nodes/a/type", "core:UpperCase")]),
    ("no type", [add({"localId": "a"})], [(0, "missing_type", "/nodes/-", "namespace")]),
    ("id", [add({"id": "n", "type": "core:Text"})], [(0, "id_or_position_given", "/nodes/-", "localId")]),
    ("position", [add({"position": {"x": 1, "y": 1}, "type": "core:Text"})],
     [(0, "id_or_position_given", "/nodes/-", "")]),
    ("input", [add({"localId": "a", "type": "core:UpperCase", "data": {"txt": ""}})],
     [(0, "required_input", "/nodes/a/inputValues/text", ""),
      (0, "unknown_input", "/nodes/a/inputValues/txt", "text")]),
    ("value", [{"op": "replace", "path": "/nodes/say/inputValues/text", "value": []}],
     [(0, "wrong_value", "/nodes/say/inputValues/text", "type")]),
    ("required", [add({"localId": "a", "type": "core:UpperCase"})],
     [(0, "required_input", "/nodes/a/inputValues/text", "targetHandle 'text'")]),
    ("required by removal", [remove("/edges/e1"), remove("/edges/e2")],
     [(1, "required_input", "/nodes/join/inputValues/text_inputs", "text_inputs")]),
    ("handle", [edge("say", "txt", "join", "text_inputs")],
     [(0, "unknown_handle", "/edges/say-join/sourceHandle", "text")]),
    ("no handle", [add({"source": "say", "target": "out", "targetHandle": "text"}, "edges")],
     [(0, "missing_handle", "/edges/-", "text")]),
    ("taken", [edge("say", "text", "out", "text")],
     [(0, "input_taken", "/edges/say-out/targetHandle", "remove /edges/e3")]),
    ("ends", [add({"sourceHandle": "text", "target": "out", "targetHandle": "text"}, "edges")],
     [(0, "bad_end", "/edges/-", "sourceLocalId")]),
    ("too early", [edge("@late", "text", "join", "text_inputs"), add({"localId": "late", "type": "core:Text"})],
     [(0, "unknown_node", "/edges/-/sourceLocalId", "operation 1 adds it")]),
    ("near id", [remove("/nodes/jion")], [(0, "unknown_node", "/nodes/jion", "join")]),
    ("cycle", [add({"localId": "a", "type": "core:UpperCase"}), edge("join", "merged_text", "@a", "text"),
               edge("@a", "text", "join", "text_inputs")],
     [(2, "cycle", "/edges/upper-case-join", "LoopZone")]),
    ("incompatible", [add({"localId": "d", "type": "core:LoopZone", "data": {"carried": [], "count": 1}}),
                      edge("@d", "log", "out", "text"), remove("/edges/e3")],
     [(1, "incompatible", "/edges/loop-zone-out", "")]),
    ("test", [{"op": "test", "path": "/nodes/say/inputValues/text", "value": "bye"}],
     [(0, "test_failed", "/nodes/say/inputValues/text", '"hello"')]),
    ("replace what is not there", [{"op": "replace", "path": "/nodes/join/policy/retry", "value": 2}],
     [(0, "no_such_place", "/nodes/join/policy/retry", "type")]),
    ("add at an id", [add({"type": "core:Text"}, at="say")], [(0, "bad_path", "/nodes/say", "/nodes/-")]),
    ("twice", [add({"localId": "a", "type": "core:Text"}), add({"localId": "a", "type": "core:Text"})],
     [(1, "local_id_taken", "/nodes/-", "another")]),
    ("local id of a node", [add({"localId": "say", "type": "core:Text"})], [(0, "local_id_taken", "/nodes/-", "")]),
    ("whole", [{"op": "replace", "path": "", "value": {}}], [(0, "whole_document", "", "one by one")]),
    ("no object", [add("say")], [(0, "bad_value", "/nodes/-", "give one object with its `type`")]),
    ("no object in a place", [add(5, at="0")], [(0, "bad_value", "/nodes/0", "")]),
    ("no end", [add({"localId": "d", "type": "core:LoopZone", "data": {"carried": []}})],
     [(0, "invalid", "/nodes/d/configValues", "the loop has no end")]),
    ("operation", [{"op": "ad", "path": "/nodes/-"}], [(0, "unknown_operation", "/nodes/-", "add")]),
    ("not one", ["add"], [(0, "not_an_operation", "", "op")]),
    ("all at once", [add({"type": "core:Nothing"}), remove("/edges/e9"), {"op": "add", "path": "/x"}],
     [(0, "unknown_type", "/nodes/nothing/type", ""), (1, "unknown_edge", "/edges/e9", "e1"),
      (2, "missing_member", "/x", "value")]),
    ("one cause", [add({"localId": "a"}), edge("@a", "text", "join", "text_inputs"), remove("/nodes/a")],
     [(0, "missing_type", "/nodes/-", "")]),
)  # fmt: skip


async def test_problems_say_where_and_what_to_do(patches: Any) -> None:
    with Failures() as failures:
        for name, patch, expected in REFUSED:
            with failures.row(name):
                before = copy.deepcopy(SHOP)
                result = await patches.patch(SHOP, *patch)
                found = [(one.index, one.code, one.path) for one in result.problems]
                assert not result.applied and found == [row[:3] for row in expected]
                for problem, (*_, text) in zip(result.problems, expected, strict=True):
                    assert problem.message and text in f"{problem.hint} {problem.message}", problem
                assert result.document is None and before == SHOP


async def test_what_was_wrong_before_is_no_obstacle(patches: Any) -> None:
    todo = {"id": "todo", "type": "core:UpperCase", "position": {"x": 0, "y": 900}}
    broken = {**SHOP, "nodes": [*SHOP["nodes"], todo]}
    assert (await patches.patch(broken, {"op": "replace", "path": "/name", "value": "Inn"})).applied
    result = await patches.patch(broken, remove("/edges/e1"), remove("/edges/e2"))
    assert [problem.path for problem in result.problems] == ["/nodes/join/inputValues/text_inputs"]
    mended = await patches.patch(broken, {"op": "add", "path": "/nodes/todo/inputValues/text", "value": "done"})
    assert node(mended, "todo")["inputValues"] == {"text": "done"}


async def test_ids_of_digits_are_not_guessed(patches: Any) -> None:
    digits = {"nodes": [{"id": name, "type": "core:Text", "inputValues": {"text": name}} for name in ("1", "0", "7")]}
    assert [p.code for p in (await patches.patch(digits, remove("/nodes/1"))).problems] == ["ambiguous_path"]
    assert node(await patches.patch(digits, remove("/nodes/id:1")), "1") is None
    assert node(await patches.patch(digits, remove("/nodes/2")), "7") is None
    assert node(await patches.patch(digits, remove("/nodes/7")), "7") is None, "no index, so an id"
    assert node(await patches.patch(digits, remove("/nodes/id:0")), "0") is None
