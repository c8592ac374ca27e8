"""Workflows of very many nodes: what is done in threads for them comes to the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tavern_host import Host
from tavern_host.testing.http import served

NODES = 600
LARGE: dict[str, Any] = {
    "name": "large",
    "nodes": [
        {"id": f"n{i}", "type": "core:TextMerge", "inputValues": {"text_inputs": [f"ü{i}"]}} for i in range(NODES)
    ],
    "edges": [],
}


async def test_large_documents_come_back_as_they_were(tmp_path: Path) -> None:
    async with Host(project=tmp_path) as host, served(host) as site:

        async def asked(method: str, path: str, body: Any = None, tag: str = "") -> tuple[int, Any, str]:
            answer = await site.request(method, path, json=body, headers={"If-Match": tag} if tag else {})
            assert answer.headers["Content-Type"].startswith("application/json")
            return answer.status, await answer.json(), answer.headers.get("ETag", "")

        status, made, tag = await asked("POST", "/api/workflows", {**LARGE, "id": "large"})
        assert (status, made) == (201, {**LARGE, "id": "large"})
        assert (await asked("GET", "/api/workflows/large"))[:2] == (200, made)
        status, patched, tag = await asked("PATCH", "/api/workflows/large", {"name": "renamed"}, tag)
        assert (status, patched) == (200, {**made, "name": "renamed"})
        status, put, tag = await asked("PUT", "/api/workflows/large", LARGE, tag)
        assert (status, put) == (200, made)
        draft = {**LARGE, "name": "draft"}
        status, kept, _ = await asked("PUT", "/api/workflows/large/draft", {"workflow": draft}, tag)
        assert (status, kept["workflow"]) == (200, {**draft, "id": "large"})
        assert (await asked("GET", "/api/workflows/large/history/1"))[1] == made
        assert (await asked("POST", "/api/workflows/check", LARGE))[1] == {"ok": True, "problems": []}

        run = (await asked("POST", "/api/prompt", LARGE))[1]["promptId"]
        while (shown := (await asked("GET", f"/api/runs/{run}"))[1])["status"] != "complete":
            await asyncio.sleep(0.05)
        assert {node: state["output"] for node, state in shown["nodes"].items()} == {
            f"n{i}": {"merged_text": f"ü{i}"} for i in range(NODES)
        }
        assert (await asked("GET", f"/api/runs/{run}/workflow"))[1] == LARGE
        prompt = (await asked("GET", f"/api/prompt/{run}"))[1]
        assert len(prompt["nodeStatus"]) == NODES
