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
from hypothesis import given, settings
from hypothesis import strategies as st

from tavern_host import Host
from tavern_host.contracts.assistant import ASSISTANT, PatchResult
from tavern_host.contracts.settings import SETTINGS
from tavern_host.contracts.workflows import WORKFLOW_MANAGER, WorkflowProblem
from tavern_host.testing.http import HttpClient, served

WORKFLOW: dict[str, Any] = {
    "name": "Shop",
    "nodes": [
        {"id": "in", "type": "core:GroupInput", "position": {"x": 0, "y": 0}},
        {"id": "0", "type": "core:Text", "position": {"x": 0, "y": 200}, "inputValues": {"text": "a"}},
        {"id": "zone", "type": "core:LoopZone", "position": {"x": 300, "y": 400}, "width": 600, "height": 300,
         "configValues": {"carried": [{"key": "n", "dataFlowType": "STRING", "initial": ""}], "count": 2}},
        {"id": "up", "type": "core:UpperCase", "parentNode": "zone", "position": {"x": 140, "y": 90}},
        {"id": "join", "type": "core:TextMerge", "position": {"x": 300, "y": 0},
         "inputConnectionOrders": {"text_inputs": ["e1", "e2"]}},
        {"id": "out", "type": "core:GroupOutput", "position": {"x": 700, "y": 0}},
    ],
    "edges": [
        {"id": "e1", "source": "in", "sourceHandle": "name", "target": "join", "targetHandle": "text_inputs__0"},
        {"id": "e2", "source": "0", "sourceHandle": "text", "target": "join", "targetHandle": "text_inputs__1"},
        {"id": "e3", "source": "join", "sourceHandle": "merged_text", "target": "out", "targetHandle": "text"},
        {"id": "e4", "source": "zone", "sourceHandle": "in__n", "target": "up", "targetHandle": "text"},
        {"id": "e5", "source": "up", "sourceHandle": "text", "target": "zone", "targetHandle": "next__n"},
    ],
    "interfaceInputs": {"name": {"dataFlowType": "STRING"}},
    "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
    "comments": [{"id": "note", "text": "hello", "position": {"x": 0, "y": -200}}],
    "previewTarget": {"nodeId": "join", "slotKey": "merged_text"},
    "somethingElse": {"a/b": [1, True, None], "~": {"deep": []}},
}  # fmt: skip

NAMES = [
    "in",
    "0",
    "zone",
    "up",
    "join",
    "out",
    "a",
    "b",
    "id:0",
    "99",
    "-",
    "",
    "\U0001f600",
    "__proto__",
    "constructor",
]
names = st.sampled_from(NAMES)
handles = st.sampled_from(
    ["text", "text_inputs", "text_inputs__0", "merged_text", "name", "in__n", "next__n", "nothing"]
)
types = st.sampled_from(
    ["core:Text", "core:UpperCase", "core:TextMerge", "core:LoopZone", "core:GroupOutput", "core:Nothing", "Text", ""]
)
values = st.recursive(
    st.sampled_from([None, True, 0, 1, -1, 2.5, "", "text", "é", "\0", "localId"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
maybe = st.fixed_dictionaries(
    {},
    optional={
        "localId": names, "parentLocalId": names, "parentNode": names, "id": names, "position": values,
        "inputValues": st.dictionaries(handles, values, max_size=2),
        "data": st.dictionaries(handles, values, max_size=2),
    },
)  # fmt: skip
nodes = st.builds(lambda kind, rest: {"type": kind, **rest}, types, maybe)
edges = st.fixed_dictionaries(
    {"sourceHandle": handles, "targetHandle": handles},
    optional={"source": names, "sourceLocalId": names, "target": names, "targetLocalId": names, "localId": names},
)
places = st.sampled_from(
    [
        "", "/", "/nodes", "/edges", "/comments", "/nodes/-", "/edges/-", "/comments/-", "/nodes/0", "/nodes/id:0",
        "/nodes/join", "/nodes/up", "/nodes/zone", "/nodes/a", "/nodes/3", "/nodes/6", "/nodes/99", "/nodes/-1",
        "/nodes/0/inputValues/text", "/nodes/join/inputValues/separator", "/nodes/up/parentNode", "/nodes/up/id",
        "/nodes/a/inputValues/text", "/nodes/zone/configValues/count", "/nodes/join/position", "/nodes/join/type",
        "/nodes/join/inputConnectionOrders/text_inputs", "/edges/e1", "/edges/e3", "/edges/e4/target", "/edges/0",
        "/edges/e5/sourceHandle", "/interfaceInputs", "/interfaceInputs/name", "/interfaceInputs/more", "/id", "/name",
        "/interfaceOutputs/text", "/previewTarget", "/previewTarget/nodeId", "/somethingElse/a~1b/0", "/comments/note",
        "/somethingElse/~0/deep/-", "/somethingElse/~2", "/comments/note/text", "/nodes/-/type", "/viewport", "/a/b/c",
    ]
)  # fmt: skip
operations = st.one_of(
    st.builds(lambda value: {"op": "add", "path": "/nodes/-", "value": value}, nodes),
    st.builds(lambda value: {"op": "add", "path": "/edges/-", "value": value}, edges),
    st.builds(lambda path: {"op": "remove", "path": path}, places),
    st.builds(
        lambda op, path, value: {"op": op, "path": path, "value": value},
        st.sampled_from(["add", "replace", "test"]), places,
        st.one_of(values, nodes, edges, st.lists(nodes, max_size=2)),
    ),
    st.builds(
        lambda op, path, source: {"op": op, "path": path, "from": source},
        st.sampled_from(["move", "copy"]), places, places,
    ),
    values,
)  # fmt: skip
GOOD: list[Any] = [
    {"op": "add", "path": "/nodes/-", "value": {"localId": "a", "type": "core:UpperCase"}},
    {"op": "add", "path": "/nodes/-", "value": {"localId": "b", "type": "core:Text", "data": {"text": "x"}}},
    {"op": "add", "path": "/nodes/1", "value": {"type": "core:Text", "parentNode": "zone"}},
    {"op": "add", "path": "/edges/-",
     "value": {"sourceLocalId": "b", "sourceHandle": "text", "targetLocalId": "a", "targetHandle": "text"}},
    {"op": "add", "path": "/edges/-",
     "value": {"sourceLocalId": "b", "sourceHandle": "text", "target": "join", "targetHandle": "text_inputs"}},
    {"op": "add", "path": "/edges/0",
     "value": {"source": "0", "sourceHandle": "text", "targetLocalId": "a", "targetHandle": "text"}},
    {"op": "remove", "path": "/nodes/id:0"}, {"op": "remove", "path": "/nodes/zone"},
    {"op": "remove", "path": "/edges/e1"}, {"op": "remove", "path": "/interfaceInputs/name"},
    {"op": "move", "from": "/interfaceInputs/name", "path": "/interfaceInputs/who"},
    {"op": "move", "from": "/nodes/join", "path": "/nodes/0"},
    {"op": "copy", "from": "/nodes/id:0", "path": "/nodes/-"},
    {"op": "copy", "from": "/nodes/b", "path": "/nodes/2"},
    {"op": "replace", "path": "/nodes/b/inputValues/text", "value": ""},
    {"op": "add", "path": "/nodes/join/inputValues/separator", "value": ", "},
    {"op": "replace", "path": "/nodes/join/position", "value": {"x": 1, "y": 2}},
    {"op": "remove", "path": "/comments/note"},
    {"op": "add", "path": "/comments/-", "value": {"text": "new"}}, {"op": "add", "path": "/description", "value": "d"},
    {"op": "replace", "path": "/nodes/2", "value": {"type": "core:LoopZone", "configValues": {"count": 3}}},
    {"op": "test", "path": "/edges/e3/source", "value": "join"}, {"op": "remove", "path": "/previewTarget"},
]  # fmt: skip
patches = st.lists(operations, max_size=5) | st.lists(st.sampled_from(GOOD), min_size=1, max_size=6)
NODE = {"type": "node", "nodeType": "core:Text"}
TOOL = {"id": "say", "description": "Say it.", "implementation": NODE, "tags": ["a"]}
NEEDED = {"version": "1", "schema_version": "1.0", "core_deliberation_workflow_id": "w"}
PROFILE = {"id": "smith", "name": "Smith", **NEEDED, "tool_ids_inventory": ["a"], "limits": {"steps": 3}, "~": {"/": 1}}
KEPT: dict[str, tuple[str, list[str]]] = {
    "workflow": ("shop", []),
    "tool": (
        "say",
        ["/description", "/tags", "/tags/0", "/tags/-", "/displayName", "/implementation", "/version", "/id"],
    ),
    "agent": (
        "smith",
        ["/name", "/tool_ids_inventory/-", "/tool_ids_inventory/0", "/limits", "/limits/steps", "/~0/~1", "/id"],
    ),
    "settings": ("tavern-agents", ["/recordRuns", "/recordDeliberations", "/nothing", ""]),
}
"""By kind of document the one that is patched, and places in it that patches change."""
PatchOf = Callable[[dict[str, Any], list[Any]], tuple[PatchResult, list[WorkflowProblem]]]
ApplyAndUndo = Callable[[str, list[Any]], tuple[Any, Any, Any]]
HostAndRun = tuple[HttpClient, Callable[..., Any]]


def plain(kind: str) -> st.SearchStrategy[list[Any]]:
    """Patches of what is no workflow."""
    where, said = st.sampled_from(KEPT[kind][1]), values | st.sampled_from([True, False, "1.0.1", ["x"], {"steps": 2}])
    written = {"op": st.sampled_from(["add", "replace"]), "path": where, "value": said}
    moved = {"op": st.sampled_from(["move", "copy"]), "path": where, "from": where}
    removed = {"op": st.just("remove"), "path": where}
    return st.lists(st.one_of(*map(st.fixed_dictionaries, (written, moved, removed))), max_size=3)


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
    document, before, given_patch = copy.deepcopy(WORKFLOW), json.dumps(WORKFLOW), json.dumps(patch)
    result, errors = propose(document, patch)
    assert json.dumps(document) == before and json.dumps(patch) == given_patch
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
