"""A served host with workflows for the tests of a module, and a project whose model changes a workflow."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.tavern_project import MODELS
from helpers.workflow_documents import edge

from tavern_assistant.api.assistant import ASSISTANT, Assistant, PatchResult
from tavern_host import Host
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import HttpClient, served
from tavern_workflows.api.workflows import WORKFLOW_MANAGER, WorkflowManager

SHOP: dict[str, Any] = {
    "name": "Shop",
    "nodes": [
        {"id": "say", "type": "core:Text", "position": {"x": 0, "y": 0}, "inputValues": {"text": "hello"}},
        {"id": "ask", "type": "core:GroupInput", "position": {"x": 0, "y": 300}},
        {"id": "join", "type": "core:TextMerge", "position": {"x": 400, "y": 0},
         "inputConnectionOrders": {"text_inputs": ["e1", "e2"]}},
        {"id": "out", "type": "core:GroupOutput", "position": {"x": 800, "y": 0}},
    ],
    "edges": [
        edge("e1", "say.text", "join.text_inputs__0"),
        edge("e2", "ask.name", "join.text_inputs__1"),
        edge("e3", "join.merged_text", "out.text"),
    ],
    "interfaceInputs": {"name": {"dataFlowType": "STRING"}},
    "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
    "previewTarget": {"nodeId": "join", "slotKey": "merged_text"},
    "extra": {"kept": [1, None]},
}  # fmt: skip
"""The workflow that patches change."""

GREET: dict[str, Any] = {
    "name": "Greet",
    "nodes": [{"id": "up", "type": "core:UpperCase", "inputValues": {"text": "ale"}, "position": {"x": 0, "y": 0}}],
    "edges": [],
}
COUNT = {
    "reply": "I count with [it](node:n) behind [up](node:up).",
    "operations": [
        {"op": "add", "path": "/nodes/-", "value": {"localId": "n", "type": "core:TextLength", "displayName": "Count"}},
        {
            "op": "add",
            "path": "/edges/-",
            "value": {"source": "up", "sourceHandle": "text", "targetLocalId": "n", "targetHandle": "text"},
        },
        {"op": "replace", "path": "/nodes/up/inputValues/text", "value": "beer"},
    ],
}


@dataclass
class PatchBench:
    """The host, its project's folder, and patches in it."""

    site: HttpClient
    root: Path
    count: int = 0

    @property
    def host(self) -> Host:
        return self.site.host

    @property
    def manager(self) -> WorkflowManager:
        return self.host.services.get(WORKFLOW_MANAGER)

    @property
    def assistant(self) -> Assistant:
        return self.host.services.get(ASSISTANT)

    def write(self, name: str, content: Any) -> Path:
        """Write a file of the project: text as it is, anything else as JSON."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def workflow(self, document: dict[str, Any]) -> str:
        """Write a new workflow and return its id."""
        self.count += 1
        self.write(f"workflows/shop-{self.count}.json", document)
        return f"shop-{self.count}"

    async def present(self, workflow: str) -> tuple[dict[str, Any], str]:
        """Return a workflow as it is being made, and its revision."""
        draft = await self.manager.draft(workflow)
        if draft.workflow is None:
            stored = await self.manager.get(workflow)
            return stored.workflow.model_dump(mode="json", exclude_unset=True), stored.revision
        return draft.workflow.model_dump(mode="json", exclude_unset=True), draft.revision

    async def edit(self, workflow: str, document: dict[str, Any]) -> str:
        """Save a draft as a person would, and return its revision."""
        parsed = Workflow.model_validate(document)
        return (await self.manager.save_draft(workflow, parsed, call=operator_call())).revision

    async def patch(self, document: dict[str, Any], *operations: Any) -> PatchResult:
        """Return the result of a patch to a document."""
        return await self.assistant.propose_patch(list(operations), document=document)

    async def ask(self, path: str, **body: Any) -> tuple[int, Any]:
        """Return the status and the JSON of the answer to a POST."""
        answer = await self.site.request("POST", path, json=body)
        return answer.status, await answer.json()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patches(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PatchBench]:
    root = tmp_path_factory.mktemp("project")
    (root / "tavern.yaml").write_text("name: test\n")
    async with Host(root, third_party=False) as host, served(host) as client:
        yield PatchBench(client, root)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a workflow, and a model that counts, explains, or makes no sense."""
    root = tmp_path / "project"
    (root / "workflows").mkdir(parents=True)
    (root / "workflows" / "greet.json").write_text(json.dumps(GREET))
    replies = [
        {"when": {"last_contains": "count"}, "reply": json.dumps(COUNT)},
        {"when": {"last_contains": "explain"}, "reply": json.dumps({"reply": "It shouts.", "operations": []})},
        {"reply": "No idea."},
    ]
    (root / "replies.json").write_text(json.dumps(replies))
    settings = {MODELS: {"m": {"adapter": "scripted", "file": "replies.json"}}}
    (root / "tavern.yaml").write_text(json.dumps({"settings": settings}))
    return root
