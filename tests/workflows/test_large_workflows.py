"""Workflows of very many nodes: what is done in threads for them comes to the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from helpers.waiting import until
from workflows_bench import asked

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
        ask = partial(asked, site)
        status, made, tag = await ask("POST", "/api/workflows", {**LARGE, "id": "large"})
        assert (status, made) == (201, {**LARGE, "id": "large"})
        assert (await ask("GET", "/api/workflows/large"))[:2] == (200, made)
        status, patched, tag = await ask("PATCH", "/api/workflows/large", {"name": "renamed"}, If_Match=tag)
        assert (status, patched) == (200, {**made, "name": "renamed"})
        status, put, tag = await ask("PUT", "/api/workflows/large", LARGE, If_Match=tag)
        assert (status, put) == (200, made)
        draft = {**LARGE, "name": "draft"}
        status, kept, _ = await ask("PUT", "/api/workflows/large/draft", {"workflow": draft}, If_Match=tag)
        assert (status, kept["workflow"]) == (200, {**draft, "id": "large"})
        assert (await ask("GET", "/api/workflows/large/history/1"))[1] == made
        assert (await ask("POST", "/api/workflows/check", LARGE))[1] == {"ok": True, "problems": []}

        run = (await ask("POST", "/api/prompt", LARGE))[1]["promptId"]

        async def completed() -> dict[str, Any] | None:
            shown: dict[str, Any] = (await ask("GET", f"/api/runs/{run}"))[1]
            return shown if shown["status"] == "complete" else None

        shown = await until(completed)
        assert {node: state["output"] for node, state in shown["nodes"].items()} == {
            f"n{i}": {"merged_text": f"ü{i}"} for i in range(NODES)
        }
        assert (await ask("GET", f"/api/runs/{run}/workflow"))[1] == LARGE
        prompt = (await ask("GET", f"/api/prompt/{run}"))[1]
        assert len(prompt["nodeStatus"]) == NODES
