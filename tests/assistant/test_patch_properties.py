"""Whatever a patch says: it applies and leaves a valid workflow, or it leaves the workflow byte for byte."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import IN_ONE_TEST, repetitions
from helpers.workflow_documents import edge
from hypothesis import given, settings
from hypothesis import strategies as st

from tavern_assistant.api.assistant import ASSISTANT, PatchResult
from tavern_host import Host
from tavern_host.contracts.settings import SETTINGS
from tavern_host.testing.http import HttpClient, served
from tavern_workflows.api.workflows import WORKFLOW_MANAGER, WorkflowProblem
from tests.assistant.conftest import SHOP

ZONE = {
    **{"id": "zone", "type": "core:LoopZone", "position": {"x": 300, "y": 400}, "width": 600, "height": 300},
    "configValues": {"carried": [{"key": "n", "dataFlowType": "STRING", "initial": ""}], "count": 2},
}
UP = {"id": "up", "type": "core:UpperCase", "parentNode": "zone", "position": {"x": 140, "y": 90}}
DIGIT = {"id": "0", "type": "core:Text", "position": {"x": 0, "y": 200}, "inputValues": {"text": "a"}}
WORKFLOW: dict[str, Any] = {
    **SHOP,
    "nodes": [SHOP["nodes"][0], DIGIT, ZONE, UP, *SHOP["nodes"][1:]],
    "edges": [*SHOP["edges"], edge("e4", "zone.in__n", "up.text"), edge("e5", "up.text", "zone.next__n")],
    "comments": [{"id": "note", "text": "hello", "position": {"x": 0, "y": -200}}],
    "somethingElse": {"a/b": [1, True, None], "~": {"deep": []}},
}

NAMES = ["ask", "0", "zone", "up", "join", "out", "a", "b", "id:0", "99", "-", "", "\U0001f600", "__proto__"]
names = st.sampled_from(NAMES)
handles = st.sampled_from(["text", "text_inputs", "text_inputs__0", "merged_text", "name", "in__n", "next__n", "none"])
types = st.sampled_from(
    [f"core:{name}" for name in ("Text", "UpperCase", "TextMerge", "LoopZone", "Nothing")] + ["Text"]
)
values = st.recursive(
    st.sampled_from([None, True, 0, 1, -1, 2.5, "", "text", "é", "\0", "localId"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
values_of_slots = st.dictionaries(handles, values, max_size=2)
about = {**dict.fromkeys(("localId", "parentLocalId", "parentNode", "id"), names), "position": values}
nodes = st.fixed_dictionaries(
    {"type": types}, optional={**about, "inputValues": values_of_slots, "data": values_of_slots}
)
ends = dict.fromkeys(("source", "sourceLocalId", "target", "targetLocalId", "localId"), names)
edges = st.fixed_dictionaries({"sourceHandle": handles, "targetHandle": handles}, optional=ends)


def pointers(value: Any, path: str = "") -> list[str]:
    """Return a pointer to each place of a document, with an id where there is one."""
    if not isinstance(value, dict | list):
        return [path]
    found = [path, f"{path}/-"] if isinstance(value, list) else [path]
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        name = f"id:{inner['id']}" if isinstance(key, int) and isinstance(inner, dict) and "id" in inner else str(key)
        found += pointers(inner, f"{path}/{name.replace('~', '~0').replace('/', '~1')}")
    return found


ODD = ["/", "/nodes/0", "/nodes/a", "/nodes/3", "/nodes/99", "/nodes/-1", "/nodes/a/inputValues/text", "/nodes/-/type"]
ODD += ["/somethingElse/~2", "/interfaceInputs/more", "/edges/0", "/viewport", "/a/b/c", "/nodes/join/policy"]
places = st.sampled_from([*pointers(WORKFLOW), *ODD])


def operation(op: Any, **members: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"op": st.sampled_from(op) if isinstance(op, list) else st.just(op), **members})


operations = st.one_of(
    operation("add", path=st.just("/nodes/-"), value=nodes),
    operation("add", path=st.just("/edges/-"), value=edges),
    operation("remove", path=places),
    operation(["add", "replace", "test"], path=places, value=values | nodes | edges | st.lists(nodes, max_size=2)),
    operation(["move", "copy"], path=places, **{"from": places}),
    values,
)


def added(path: str, **value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


FROM_B = {"sourceLocalId": "b", "sourceHandle": "text"}
GOOD: list[Any] = [
    added("/nodes/-", localId="a", type="core:UpperCase"),
    added("/nodes/-", localId="b", type="core:Text", data={"text": "x"}),
    added("/nodes/1", type="core:Text", parentNode="zone"),
    added("/edges/-", **FROM_B, targetLocalId="a", targetHandle="text"),
    added("/edges/-", **FROM_B, target="join", targetHandle="text_inputs"),
    added("/edges/0", source="0", sourceHandle="text", targetLocalId="a", targetHandle="text"),
    added("/comments/-", text="new"),
    *({"op": "remove", "path": f"/{path}"} for path in ("nodes/id:0", "nodes/zone", "edges/e1", "comments/note")),
    *({"op": "remove", "path": f"/{path}"} for path in ("interfaceInputs/name", "previewTarget")),
    {"op": "move", "from": "/interfaceInputs/name", "path": "/interfaceInputs/who"},
    {"op": "move", "from": "/nodes/join", "path": "/nodes/0"},
    *({"op": "copy", "from": f"/nodes/{one}", "path": "/nodes/-"} for one in ("id:0", "b")),
    {"op": "replace", "path": "/nodes/b/inputValues/text", "value": ""},
    {"op": "replace", "path": "/nodes/join/position", "value": {"x": 1, "y": 2}},
    {"op": "replace", "path": "/nodes/2", "value": {"type": "core:LoopZone", "configValues": {"count": 3}}},
    {"op": "test", "path": "/edges/e3/source", "value": "join"},
]
patches = st.lists(operations, max_size=5) | st.lists(st.sampled_from(GOOD), min_size=1, max_size=6)
NODE = {"type": "node", "nodeType": "core:Text"}
TOOL = {"id": "say", "description": "Say it.", "implementation": NODE, "tags": ["a"]}
NEEDED = {"version": "1", "schema_version": "1.0", "core_deliberation_workflow_id": "w"}
PROFILE = {"id": "smith", "name": "Smith", **NEEDED, "tool_ids_inventory": ["a"], "limits": {"steps": 3}, "~": {"/": 1}}
OF_TOOLS = ("description", "tags", "tags/0", "tags/-", "displayName", "implementation", "version", "id")
OF_AGENTS = ("name", "tool_ids_inventory/-", "tool_ids_inventory/0", "limits", "limits/steps", "~0/~1", "id")
KEPT: dict[str, tuple[str, list[str]]] = {
    "workflow": ("shop", []),
    "tool": ("say", [f"/{place}" for place in OF_TOOLS]),
    "agent": ("smith", [f"/{place}" for place in OF_AGENTS]),
    "settings": ("tavern-agents", ["/recordRuns", "/recordDeliberations", "/nothing", ""]),
}
"""By kind of document the one that is patched, and places in it that patches change."""
PatchOf = Callable[[dict[str, Any], list[Any]], tuple[PatchResult, list[WorkflowProblem]]]
ApplyAndUndo = Callable[[str, list[Any]], tuple[Any, Any, Any]]
HostAndRun = tuple[HttpClient, Callable[..., Any]]


def plain(kind: str) -> st.SearchStrategy[list[Any]]:
    """Patches of what is no workflow."""
    where, said = st.sampled_from(KEPT[kind][1]), values | st.sampled_from([True, False, "1.0.1", ["x"], {"steps": 2}])
    moved = operation(["move", "copy"], path=where, **{"from": where})
    written = operation(["add", "replace"], path=where, value=said)
    return st.lists(written | moved | operation("remove", path=where), max_size=3)


@pytest.fixture(scope="module")
def host_and_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostAndRun]:
    """A served host with a document of each kind in its project, and what runs calls to it."""
    root: Path = tmp_path_factory.mktemp("project")
    for name, document in (
        ("workflows/shop.json", WORKFLOW), ("tools/say.tool.json", TOOL), ("agents/smith.json", PROFILE)
    ):  # fmt: skip
        (root / name).parent.mkdir()
        (root / name).write_text(json.dumps(document))
    with asyncio.Runner() as runner:
        host = Host(project=root, third_party=False)
        runner.run(host.__aenter__())
        serving = served(host)
        yield runner.run(serving.__aenter__()), runner.run
        runner.run(serving.__aexit__(None, None, None))
        runner.run(host.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def propose(host_and_run: HostAndRun) -> PatchOf:
    """What proposes a patch of a document, and says what the check finds in what comes of it."""
    client, run = host_and_run
    host = client.host

    async def both(document: dict[str, Any], patch: list[Any]) -> tuple[PatchResult, list[WorkflowProblem]]:
        result = await host.services.get(ASSISTANT).propose_patch(patch, document=document)
        found = await host.services.get(WORKFLOW_MANAGER).check(result.document or {})
        return result, [problem for problem in found if problem.severity == "error"]

    return lambda document, patch: run(both(document, patch))


@pytest.fixture(scope="module")
def apply_and_undo(host_and_run: HostAndRun) -> ApplyAndUndo:
    """What applies a patch to the document of a kind and takes it back; gives what is kept before and after, too."""
    client, run = host_and_run

    async def present(kind: str, id: str) -> Any:
        asked = {"kind": kind, "id": id, "operations": []}
        found = await (await client.post("/api/patches/check", json=asked)).json()
        return found["document"], found["revision"], await client.host.services.get(SETTINGS).values("tavern-agents")

    async def both(kind: str, patch: list[Any]) -> tuple[Any, Any, Any]:
        named = {"kind": kind, "id": KEPT[kind][0]}
        path = "/api/settings-patches" if kind == "settings" else "/api/patches"
        before = await present(**named)
        result = await (await client.post(path, json={**named, "operations": patch})).json()
        if result.get("applied") and result["revision"] != result["former"]:
            ends = {"revision": result["revision"], "to": result["former"]}
            assert (await client.post(f"{path}/undo", json={**named, **ends})).status == 200
        return result, before, await present(**named)

    return lambda kind, patch: run(both(kind, patch))


@settings(max_examples=repetitions(100, 5000), deadline=None, suppress_health_check=IN_ONE_TEST)
@given(patch=patches)
def test_patch_applies_validly_or_changes_nothing(propose: PatchOf, patch: list[Any]) -> None:
    document, before, patch_before = copy.deepcopy(WORKFLOW), json.dumps(WORKFLOW), json.dumps(patch)
    result, errors = propose(document, patch)
    assert json.dumps(document) == before and json.dumps(patch) == patch_before
    if not result.applied:
        assert result.problems and result.document is None and not result.changes
        assert all(0 <= (problem.index or 0) < len(patch) and problem.message for problem in result.problems)
        return
    assert errors == [] and result.problems == [] and result.document is not None
    for kind in ("nodes", "edges", "comments"):
        ids = [item["id"] for item in result.document.get(kind, [])]
        assert len(ids) == len(set(ids))
    known = {node["id"] for node in WORKFLOW["nodes"]}
    for item in (*result.document.get("nodes", []), *result.document.get("edges", [])):
        assert not {"localId", "sourceLocalId", "targetLocalId", "parentLocalId", "data"} & item.keys()
    for node in result.document.get("nodes", []):
        assert node["id"] in known or {"x", "y"} == node["position"].keys()
        assert node.get("parentNode") is None or node["parentNode"] in {one["id"] for one in result.document["nodes"]}
    new = {node["id"] for node in result.document.get("nodes", [])} - known
    assert {
        change.id for change in result.changes if change.kind == "added" and change.what in ("node", "group")
    } == new


@pytest.mark.parametrize("kind", KEPT)
@settings(max_examples=repetitions(12, 500), deadline=None, suppress_health_check=IN_ONE_TEST)
@given(data=st.data())
def test_a_patch_taken_back_leaves_what_was_there(apply_and_undo: ApplyAndUndo, kind: str, data: st.DataObject) -> None:
    result, before, after = apply_and_undo(kind, data.draw(patches if kind == "workflow" else plain(kind)))
    assert after == before
    assert result.get("applied") or result["problems"], result
