"""The platform's nodes together, in workflows that a whole host runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from test_in_a_workflow import workflow

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.testing.http import served

MODELS = "extensions.tavern-llm.models"
CARD = {"spec": "chara_card_v2", "data": {"name": "Ann", "description": "{{char}} keeps an inn.", "first_mes": "Hi!"}}
REPLIES = """
- when: {contains: dragon}
  reply: The dragon *sleeps* below.
- reply: Welcome to the inn.
"""


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    files = tmp_path / "project" / "files"
    files.mkdir(parents=True)
    (files.parent / "replies.yaml").write_text(REPLIES, encoding="utf-8")
    (files / "ann.json").write_text(json.dumps(CARD), encoding="utf-8")
    (files / "world.yaml").write_text("- {keys: [Hi], content: A dragon lives below.}\n", encoding="utf-8")
    (files / "rules.json").write_text('[{"pattern": "\\\\*(\\\\w+)\\\\*", "replacement": "<$1>"}]', encoding="utf-8")
    settings = {MODELS: {"bar": {"adapter": "scripted", "file": "replies.yaml", "chunk_chars": 5}}}
    async with Host(project=tmp_path / "project", settings=settings) as host:
        yield host


async def run(host: Host, nodes: dict[str, dict[str, Any]], edges: list[str], **interface: Any) -> Run:
    engine = host.services.get(EXECUTION_ENGINE)
    return await engine.run(RunRequest(workflow=workflow(nodes, edges, **interface)))


TALE = {
    "card": {"type": "core:CharacterCardLoader", "configValues": {"cardResource": "ann.json"}},
    "world": {"type": "core:WorldBookLoader", "configValues": {"worldBookResource": "world.yaml"}},
    "context": {"type": "core:ContextBuilder"},
    "ask": {"type": "core:GenericLlmRequest", "inputValues": {"activated_model_id": "bar", "stream": True}},
    "rules": {"type": "core:RegexRuleLoader", "configValues": {"ruleResource": "rules.json"}},
    "change": {"type": "core:ApplyRegex"},
    "relay": {"type": "core:StreamSuffixRelay", "inputValues": {"suffix": "|"}},
    "out": {"type": "core:GroupOutput"},
}
TALE_EDGES = [
    "card.characterData > context.characterData",
    "world.worldBookData > context.worldBookData",
    "context.finalMessages > ask.messages",
    "ask.responseText > change.inputText",
    "rules.regexRules > change.regexRules",
    "ask.stream_output > relay.inputStream",
    "relay.outputStream > out.pieces",
    "change.outputText > out.text",
]
INTERFACE = {
    "interfaceOutputs": {
        "text": {"key": "text", "dataFlowType": "STRING"},
        "pieces": {"key": "pieces", "dataFlowType": "STRING"},
    }
}


async def test_a_card_a_world_and_a_model_make_a_tale(host: Host) -> None:
    done = await run(host, TALE, TALE_EDGES, **INTERFACE)
    assert done.error is None
    assert done.outputs == {
        "text": "The dragon <sleeps> below.",
        "pieces": "The d|ragon| *sle|eps* |below|.|",
    }


async def test_a_file_that_changed_is_loaded_again(host: Host, tmp_path: Path) -> None:
    first = await run(host, TALE, TALE_EDGES, **INTERFACE)
    (tmp_path / "project" / "files" / "world.yaml").write_text("[]", encoding="utf-8")
    second = await run(host, TALE, TALE_EDGES, **INTERFACE)
    assert (first.outputs["text"], second.outputs["text"]) == ("The dragon <sleeps> below.", "Welcome to the inn.")


async def test_a_key_that_somebody_wrote_into_a_workflow_is_in_no_event(host: Host) -> None:
    nodes = {
        "settings": {"type": "core:APISettings", "inputValues": {"use_env_vars": True, "api_key": "sk-secret"}},
        "ask": {"type": "core:OpenAI", "inputValues": {"model": "bar", "prompt": "hi"}},
        "wrong": {"type": "core:APISettings", "inputValues": {"use_env_vars": False, "api_key": "sk-secret"}},
    }
    events = host.events.subscribe("*")
    failed = await run(host, nodes, ["settings.api_settings > ask.api_settings"])
    del nodes["wrong"]
    done = await run(host, nodes, ["settings.api_settings > ask.api_settings"])
    await events.close()
    assert (failed.status, done.status) == (RunStatus.ERROR, RunStatus.COMPLETE)
    seen = [str(event) async for event in events]
    assert any("api_settings" in event for event in seen)
    assert not any("sk-secret" in event for event in seen)


async def test_a_key_that_somebody_wrote_into_a_workflow_is_not_shown_with_its_run(host: Host) -> None:
    nodes = {"settings": {"type": "core:APISettings", "inputValues": {"use_env_vars": True, "api_key": "sk-secret"}}}
    done = await run(host, nodes, [])
    assert done.nodes["settings"].output == {"api_settings": {"use_env_vars": True}}
    async with served(host) as site:
        for path in (f"/api/runs/{done.id}", f"/api/prompt/{done.id}", "/api/runs", "/api/executions"):
            answer = await site.get(path)
            assert (answer.status, "sk-secret" in await answer.text()) == (200, False)


async def test_what_is_kept_of_a_run_is_its_owners_alone(host: Host) -> None:
    nodes = {"settings": {"type": "core:APISettings", "inputValues": {"use_env_vars": True, "api_key": "sk-secret"}}}
    await run(host, nodes, [])
    kept = [path for path in host.project.private.rglob("*") if path.is_file() and b"sk-secret" in path.read_bytes()]
    assert [path.stat().st_mode & 0o777 for path in kept] == [0o600]  # the document, so that the run can go on
