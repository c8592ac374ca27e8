"""What refers to a workflow, by its id or by its path: tools, runs, addresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.repetition import Failures
from helpers.workflow_documents import function

from tavern_host import Host
from tavern_host.testing.http import served

TEXT = {"text": "STRING"}
EDGES = ("in.text > up.text", "up.text > out.text")
UPPER = {"id": "another", **function("Upper", {"up": "core:UpperCase"}, *EDGES, takes=TEXT, gives=TEXT)}


def write(root: Path, file: str, content: Any) -> None:
    """Write a JSON file of the project."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


async def test_ids_and_paths_lead_to_a_workflow(tmp_path: Path) -> None:
    write(tmp_path, "workflows/sub/up ü.json", UPPER)
    for name, reference in {"by-id": "sub/up ü", "by-path": "workflows/sub/up ü.json", "gone": "up ü"}.items():
        write(
            tmp_path,
            f"tools/{name}.tool.json",
            {"id": name, "implementation": {"type": "workflow", "workflowId": reference}},
        )
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
