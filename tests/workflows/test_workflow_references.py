"""What refers to a workflow, by its id or by its path: tools, runs, addresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.command_line import tavern
from helpers.repetition import Failures
from helpers.workflow_documents import function

from tavern_host import Host
from tavern_host.testing.http import served

TEXT = {"text": "STRING"}
EDGES = ("in.text > up.text", "up.text > out.text")
UPPER = {"id": "another", **function("Upper", {"up": "core:UpperCase"}, *EDGES, takes=TEXT, gives=TEXT)}


def group(reference: str) -> dict[str, Any]:
    """Return a node that stands for a workflow."""
    return {"id": "g", "type": "core:NodeGroup", "configValues": {"referencedWorkflowId": reference}}


def write(root: Path, file: str, content: Any) -> None:
    """Write a JSON file of the project."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


async def test_ids_and_paths_lead_to_a_workflow(tmp_path: Path) -> None:
    write(tmp_path, "workflows/sub/up ü.json", UPPER)
    for name, reference in {"by-id": "sub/up ü", "by-path": "workflows/sub/up ü.json", "gone": "up ü"}.items():
        tool = {"id": name, "implementation": {"type": "workflow", "workflowId": reference}}
        write(tmp_path, f"tools/{name}.tool.json", tool)
    rows = ["by-id", "by-path", "workflow:sub/up ü", "workflow:workflows/sub/up ü.json"]
    async with Host(project=tmp_path) as host, served(host) as site:
        with Failures() as failures:
            for tool_id in rows:
                with failures.row(tool_id):
                    body = {"toolId": tool_id, "arguments": {"text": "loud"}}
                    answer = await (await site.post("/api/tools/execute", json=body)).json()
                    assert [result.get("structured") for result in answer["results"]] == ["LOUD"], answer
        answer = await site.get("/api/tools/workflow:sub%2Fup%20%C3%BC")
        assert (answer.status, (await answer.json())["displayName"]) == (200, "Upper")
        for reference in ("sub/up ü", "workflows/sub/up ü.json"):
            asked = {"workflowId": reference, "inputs": {"text": "loud"}}
            assert (await site.post("/api/prompt", json=asked)).status == 200
        body = {"toolId": "gone", "arguments": {}}
        answer = await (await site.post("/api/tools/execute", json=body)).json()
        assert "needs workflow up ü" in answer["results"][0]["error"]["message"]


OLD = "sub/up ü"
PROFILE = {"id": "keeper", "name": "Keeper", "version": "1.0.0", "schema_version": "1.0"}
NAMED = {
    "workflows/by-id.json": {"nodes": [group(OLD)], "edges": []},
    "workflows/by-path.json": {"nodes": [group(f"workflows/{OLD}.json")], "edges": []},
    "tools/up.tool.json": {
        "id": "up",
        "implementation": {"type": "workflow", "workflowId": f"./workflows/{OLD}.json"},
        "dependencies": [f"workflow:{OLD}"],
    },
    "agents/keeper.json": {
        **PROFILE,
        "core_deliberation_workflow_id": f"workflows/{OLD}.json",
        "observation_workflow_id": OLD,
        "skill_workflow_ids_inventory": ["other", f"{OLD}.json"],
        "tool_ids_inventory": [f"workflow:{OLD}"],
    },
    "scenes/inn.json": {
        "id": "inn",
        "name": "The inn",
        "agent_instances": [{"instance_id": "ada", "profile_id": "keeper"}],
        "scene_lifecycle_workflows": {"on_scene_start": OLD, "on_scene_end": f"workflows/{OLD}.json"},
        "turn_order": {"workflow_id": OLD},
    },
}
USES = {
    "the workflow by-id: $.nodes[0].configValues.referencedWorkflowId",
    "the workflow by-path: $.nodes[0].configValues.referencedWorkflowId",
    "the tool up: $.implementation.workflowId",
    "the tool up: $.dependencies[0]",
    "the agent keeper: $.core_deliberation_workflow_id",
    "the agent keeper: $.observation_workflow_id",
    "the agent keeper: $.skill_workflow_ids_inventory[1]",
    "the agent keeper: $.tool_ids_inventory[0]",
    "the scene inn: $.scene_lifecycle_workflows.on_scene_start",
    "the scene inn: $.scene_lifecycle_workflows.on_scene_end",
    "the scene inn: $.turn_order.workflow_id",
}


def test_a_renaming_names_every_reference(tmp_path: Path) -> None:
    (tmp_path / "tavern.yaml").write_text("name: renaming\n")
    for file, content in {f"workflows/{OLD}.json": UPPER, **NAMED}.items():
        write(tmp_path, file, content)
    moved = tavern("--project", tmp_path, "workflow", "move", f"workflows/{OLD}.json", "workflows/loud.json")
    assert moved.code == 0, moved.err
    first, *told = moved.out.splitlines()
    assert first == f"workflows/{OLD}.json is loud now"
    assert {line.replace(f" still names {OLD}", "") for line in told} == USES
    again = tavern("--project", tmp_path, "workflow", "move", "loud", "quiet", "--json").json()
    assert (again["id"], again["uses"]) == ("quiet", [])


async def test_a_renaming_over_http_leaves_references_listed(tmp_path: Path) -> None:
    for file, content in {f"workflows/{OLD}.json": UPPER, **NAMED}.items():
        write(tmp_path, file, content)
    path = "/api/workflows/sub%2Fup%20%C3%BC"
    async with Host(project=tmp_path) as host, served(host) as site:
        tag = (await site.get(path)).headers["ETag"]
        answer = await site.request("PATCH", path, json={"id": "workflows/loud.json"}, headers={"If-Match": tag})
        assert (answer.status, (await answer.json())["id"]) == (200, "loud")
        for spelling in (path, "/api/workflows/workflows%2Fsub%2Fup%20%C3%BC.json"):
            uses = await (await site.get(f"{spelling}/uses")).json()
            assert {f"the {use['kind']} {use['id']}: {use['place']}" for use in uses} == USES
        assert await (await site.get("/api/workflows/none/uses")).json() == []
