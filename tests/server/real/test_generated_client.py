"""A client that somebody else's generator makes of the OpenAPI document does what it is for."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tavern_host import Host
from tavern_host.testing.http import TOKEN, served

DOCUMENT = {
    "id": "made/by-a-client",
    "name": "By a client",
    "nodes": [
        {"id": "w", "type": "core:Wait", "inputValues": {"value": "done", "seconds": 0}},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [{"id": "e", "source": "w", "sourceHandle": "value", "target": "out", "targetHandle": "text"}],
    "interfaceOutputs": {"text": {"key": "text", "displayName": "Text", "dataFlowType": "STRING"}},
}


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # of the generated code
async def test_a_generated_client_saves_runs_and_follows_a_workflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Host(tmp_path / "project", third_party=False) as host, served(host) as site:
        document = tmp_path / "openapi.json"
        document.write_bytes(await (await site.get("/api/openapi.json")).read())
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"),
            *("--path", str(document), "--output-path", str(tmp_path / "made" / "generated_client")),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        assert b"Endpoint will not be generated" not in said, said.decode()
        monkeypatch.syspath_prepend(tmp_path / "made")
        outputs = await asyncio.to_thread(_used, f"http://127.0.0.1:{site.port}")
    assert outputs == {"text": "done"}


def _used(address: str) -> Any:
    """Save the workflow, run it, wait for its end, and return its outputs."""
    client = importlib.import_module("generated_client").AuthenticatedClient(base_url=address, token=TOKEN)
    models = importlib.import_module("generated_client.models")

    def call(tag: str, operation: str, *arguments: Any, **named: Any) -> Any:
        module = importlib.import_module(f"generated_client.api.{tag}.{operation}")
        answer = module.sync_detailed(*arguments, client=client, **named)
        assert answer.status_code < 400, answer.content
        return json.loads(answer.content)

    with client:
        saved = call("tavern_workflows", "post_workflows", body=models.Workflow.from_dict(DOCUMENT))
        body = models.PromptRequest.from_dict({"workflowId": saved["id"]})
        run = call("tavern_engine", "post_prompt", body=body)["promptId"]
        while (state := call("tavern_engine", "get_prompt_prompt_id", run))["status"] in ("queued", "running"):
            time.sleep(0.05)
    assert state["status"] == "complete", state
    return state["outputs"]
