"""The basic nodes and the platform's, in workflows that a whole host runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.workflow_documents import slots, workflow_document

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import served

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
    models = {"bar": {"adapter": "scripted", "file": "replies.yaml", "chunk_chars": 5}}
    async with Host(project=tmp_path / "project", settings={"extensions.tavern-llm.models": models}) as host:
        yield host


async def run(host: Host, nodes: dict[str, dict[str, Any]], edges: str = "", **interface: Any) -> Run:
    """Run a workflow of nodes by id and edges written `source.slot > target.slot, …`."""
    document = workflow_document(nodes, *filter(None, edges.split(", ")), name="test", **interface)
    return await host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow=Workflow.model_validate(document)))


def node(type: str, config: dict[str, Any] | None = None, /, **inputs: Any) -> dict[str, Any]:
    return {"type": f"core:{type}", "inputValues": inputs, "configValues": config or {}}


async def test_branches_and_streams_meet_again(host: Host) -> None:
    nodes = {
        "switch": node("Switch", condition=True, value="Hey"),
        "upper": node("UpperCase"),
        "pad": node("PadText", length=5),
        "merge": node("Merge"),
        "gate": node("Gate", is_open=False, value=1),
        "never": node("Fail", message="never"),
        "case": node("SwitchCase", {"cases": ["a", 2]}, key=3),
        "first": node("ToJson"),
        "rest": node("ToJson"),
        "text": node("TextToStream", text="one two 三四"),
        "whole": node("StreamToString", separator="|"),
        "few": node("StreamToList", limit=2),
        "bypassed": {**node("Switch", condition=True, value="v"), "bypassed": True},
        "no": node("ToJson"),
    }
    result = await run(
        host,
        nodes,
        "switch.when_true > upper.text, switch.when_false > pad.text, upper.text > merge.values, "
        "pad.text > merge.values, gate.value > never.value, case.case_1 > first.value, case.default > rest.value, "
        "text.stream > whole.stream, text.stream > few.stream, bypassed.when_false > no.value",
    )
    assert result.error is None
    assert {
        key: next(iter((result.nodes[key].output or {}).values())) for key in ("merge", "rest", "whole", "few")
    } == {"merge": "HEY", "rest": "3", "whole": "one |two |三|四", "few": ["one ", "two "]}
    assert result.nodes["no"].output == {"text": '"v"'}
    assert {id for id, state in result.nodes.items() if state.status == "skipped"} == {"pad", "never", "first"}


async def test_a_changed_file_is_read_again(host: Host) -> None:
    file = host.project.folder("files") / "a.txt"
    nodes = {"path": node("Text", text="a.txt"), "read": node("ReadFile", path="a.txt"), "upper": node("UpperCase")}
    for edges in ("read.content > upper.text", "read.content > upper.text, path.text > read.path"):
        found = []
        for text in ("one", "one", "two"):
            if not file.exists() or file.read_text() != text:
                file.write_text(text)
            found.append((await run(host, nodes, edges)).nodes["upper"].output)
        assert found == [{"text": "ONE"}, {"text": "ONE"}, {"text": "TWO"}]


TALE = {
    "card": node("CharacterCardLoader", {"cardResource": "ann.json"}),
    "world": node("WorldBookLoader", {"worldBookResource": "world.yaml"}),
    "context": node("ContextBuilder"),
    "ask": node("GenericLlmRequest", activated_model_id="bar", stream=True),
    "rules": node("RegexRuleLoader", {"ruleResource": "rules.json"}),
    "change": node("ApplyRegex"),
    "relay": node("StreamSuffixRelay", suffix="|"),
    "out": node("GroupOutput"),
}
TALE_EDGES = (
    "card.characterData > context.characterData, world.worldBookData > context.worldBookData, "
    "context.finalMessages > ask.messages, ask.responseText > change.inputText, rules.regexRules > change.regexRules, "
    "ask.stream_output > relay.inputStream, relay.outputStream > out.pieces, change.outputText > out.text"
)


async def test_a_card_a_world_and_a_model_make_a_tale(host: Host) -> None:
    interface = {"interfaceOutputs": slots({"text": "STRING", "pieces": "STRING"})}
    done = await run(host, TALE, TALE_EDGES, **interface)
    assert done.error is None
    tale = {"text": "The dragon <sleeps> below.", "pieces": "The d|ragon| *sle|eps* |below|.|"}
    assert done.outputs == tale
    (host.project.folder("files") / "world.yaml").write_text("[]", encoding="utf-8")
    assert (await run(host, TALE, TALE_EDGES, **interface)).outputs["text"] == "Welcome to the inn."


KEY = "sk-secret"


async def test_a_key_in_a_workflow_is_shown_nowhere(host: Host) -> None:
    nodes = {
        "settings": node("APISettings", use_env_vars=True, api_key=KEY),
        "ask": node("OpenAI", model="bar", prompt="hi"),
        "wrong": node("APISettings", use_env_vars=False, api_key=KEY),
    }
    events = host.events.subscribe("*")
    failed = await run(host, nodes, "settings.api_settings > ask.api_settings")
    del nodes["wrong"]
    done = await run(host, nodes, "settings.api_settings > ask.api_settings")
    await events.close()
    assert (failed.status, done.status) == (RunStatus.ERROR, RunStatus.COMPLETE)
    assert done.nodes["settings"].output == {"api_settings": {"use_env_vars": True}}
    seen = [str(event) async for event in events]
    assert any("api_settings" in event for event in seen)
    assert not any(KEY in event for event in seen)
    async with served(host) as site:
        for path in (f"/api/runs/{done.id}", f"/api/prompt/{done.id}", "/api/runs", "/api/executions"):
            answer = await site.get(path)
            assert answer.status == 200
            assert KEY not in await answer.text()


async def test_what_is_kept_of_a_run_is_its_owners_alone(host: Host) -> None:
    await run(host, {"settings": node("APISettings", use_env_vars=True, api_key=KEY)})
    kept = [path for path in host.project.private.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert [path.stat().st_mode & 0o777 for path in kept] == [0o600]  # the document, so that the run can go on
