"""A running host with short ways to write workflow files and to check documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tavern_host import WORKFLOW_MANAGER, Host
from tavern_host.testing.http import HttpClient
from tavern_workflows.api.workflows import WorkflowManager

SAMPLES = Path(__file__).parent / "plugins" / "acme_samples"


def group(identifier: str, workflow_id: str) -> dict[str, Any]:
    """Return a group that stands for a stored workflow."""
    return {"id": identifier, "type": "core:NodeGroup", "configValues": {"referencedWorkflowId": workflow_id}}


class Bench:
    """A running host, its workflow manager and the folder of its workflows."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.folder = host.project.folder("workflows")
        self.manager: WorkflowManager = host.services.get(WORKFLOW_MANAGER)

    def write(self, file: str, document: Any = None, /, **more: Any) -> Path:
        """Write a file into the folder: text as it is, anything else as JSON."""
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        data = document if isinstance(document, str | bytes) else json.dumps(document or {"nodes": [], **more})
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    async def ids(self) -> list[str]:
        return [summary.id for summary in await self.manager.list_workflows()]

    async def problems(self, document: Any) -> dict[str, str]:
        """Return the problems that `check` finds, by path; warnings begin with `warning: `."""
        found = await self.manager.check(document)
        return {p.path: p.message if p.severity == "error" else f"{p.severity}: {p.message}" for p in found}


async def asked(site: HttpClient, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, str]:
    """Return the status, the JSON of the answer and its ETag; headers are named with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items() if value}
    answer = await site.request(method, path, json=body, headers=named)
    text = await answer.text()
    return answer.status, (await answer.json()) if text else None, answer.headers.get("ETag", "")
