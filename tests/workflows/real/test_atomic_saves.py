"""A save leaves the old content or the new one, whenever the process is killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from pathlib import Path
from typing import Any

from helpers.repetition import repetitions
from helpers.survival import Child, say

from tavern_host import WORKFLOW_MANAGER, Host
from tavern_host.storage.files import TEMPORARY


def workflow(version: str) -> dict[str, Any]:
    nodes = [{"id": f"n{i}", "type": "core:Text", "inputValues": {"text": version * 200}} for i in range(500)]
    return {"name": version, "nodes": nodes}


async def save(project: Path) -> None:
    """Save two versions of a workflow in turns."""
    async with Host(project) as host:
        manager = host.services.get(WORKFLOW_MANAGER)
        versions = [await manager.parse(workflow(version)) for version in "ab"]
        await manager.save("w", versions[1])
        say("saving")
        for version in itertools.cycle(versions):
            await manager.save("w", version)


async def test_a_killed_save_leaves_a_whole_workflow(tmp_path: Path) -> None:
    project = tmp_path / "project"
    found = set()

    for _ in range(repetitions(2, 12)):
        async with Child(save, project) as child:
            assert await child.said() == "saving"
            await asyncio.sleep(random.uniform(0, 0.2))
            await child.killed()
        document = json.loads((project / "workflows" / "w.json").read_bytes())
        assert len(document["nodes"]) == 500
        assert {node["inputValues"]["text"] for node in document["nodes"]} == {document["name"] * 200}
        found.add(document["name"])

    assert found <= {"a", "b"}
    left = [path for path in (project / "workflows").iterdir() if path.name != "w.json"]
    assert all(path.name.startswith(TEMPORARY) for path in left)
