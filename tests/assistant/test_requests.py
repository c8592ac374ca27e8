"""Requests to the creation assistant, row by row of `requests.yaml`, in one host: what its model answers, what comes of
it, and what a person did meanwhile."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from helpers.repetition import Failures, repetitions
from helpers.stub_llm import in_turn, said
from helpers.workflow_documents import function

from tavern_assistant.api.assistant import UPDATE_WORKFLOW
from tavern_assistant.deliberation.requests import AGENT
from tavern_host import EXECUTION_ENGINE, WORKFLOW_MANAGER, NotFound
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import HttpClient, served
from tavern_llm.api.llm import LlmRequest, LlmResponse
from tests.agents.agent_bench import AgentBench, agent_bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROWS: list[dict[str, Any]] = [
    row
    for row in yaml.safe_load((Path(__file__).parent / "requests.yaml").read_text(encoding="utf-8"))
    if repetitions(0, 1) or not row.get("repeats")
]
ROWS.append(
    {
        **{"request": "Say it at length.", "open": "greet", "outcome": "answered", "reply": "Short.", "asked": 2},
        "answers": [{"reply": text, "operations": []} for text in ("long " * 2**18, "Short.")],
        "mended": "give 131,072 at most",
    }
)

DOCUMENTS = {
    "empty": {"name": "Empty", "nodes": [], "edges": []},
    "greet": function(
        "Greet",
        {
            "hello": {"type": "core:TextMerge", "position": {"x": 40, "y": 700}, "inputValues": {"separator": " "}},
            "upper": {"type": "core:UpperCase", "position": {"x": 400, "y": 700}},
        },
        "in.name > hello.text_inputs__0",
        "hello.merged_text > upper.text",
        "upper.text > out.greeting",
        takes={"name": "STRING"},
        gives={"greeting": "STRING"},
    ),
    "failed": function(
        "Failed",
        {
            "slow": {"type": "core:Wait", "inputValues": {"seconds": 0.01}},
            "fail": {"type": "core:Fail", "inputValues": {"condition": True, "message": "the barrel is empty"}},
        },
        "in.name > slow.value",
        "slow.value > fail.value",
        "fail.value > out.greeting",
        takes={"name": "STRING"},
        gives={"greeting": "STRING"},
    ),
}


class Asked:
    """A site with the assistant, and what it was heard to publish."""

    def __init__(self, bench: AgentBench, site: HttpClient) -> None:
        self.bench = bench
        self.site = site
        self.manager = bench.host.services.get(WORKFLOW_MANAGER)

    async def now(self, id: str) -> dict[str, Any]:
        """Return a workflow as it is being made."""
        draft = await self.manager.draft(id)
        workflow = draft.workflow or (await self.manager.get(id)).workflow
        return workflow.model_dump(mode="json", by_alias=True, exclude_unset=True)

    async def ask(self, id: str, row: dict[str, Any]) -> dict[str, Any]:
        """Ask for what a row asks for; return the reply, the event, and what the model was asked with."""
        answers = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in row["answers"]]
        turn = in_turn(*map(said, answers))
        meanwhile = dict(row.get("meanwhile") or {})

        async def say(request: LlmRequest) -> LlmResponse:
            if meanwhile:
                await self._edit(id, meanwhile)
                meanwhile.clear()
            answer = turn(request)
            assert isinstance(answer, LlmResponse)
            return answer

        model = self.bench.model(say)
        model.pieces = 100
        events = self.bench.host.events.subscribe(UPDATE_WORKFLOW)
        body = {"workflowId": id, "message": row["request"], "mode": row.get("mode", "preview")}
        started = await self.site.post("/api/assistant/requests", json={**body, "conversationId": f"c-{id}"})
        assert started.status == 202, await started.text()
        reply = await self.bench.runtime.wait((await started.json())["id"])
        await events.close()
        updates = [event.payload async for event in events if isinstance(event, Event)]
        assert len(updates) <= 1
        return {"reply": reply, "update": next(iter(updates), None), "asked": model.asked}

    async def _edit(self, id: str, edit: dict[str, Any]) -> None:
        if "delete" in edit:
            await self.manager.delete(id)
            return
        document = await self.now(id)
        if "remove" in edit:
            document["nodes"] = [node for node in document["nodes"] if node["id"] != edit["remove"]]
            ends = ("source", "target")
            document["edges"] = [e for e in document["edges"] if edit["remove"] not in [e[end] for end in ends]]
        else:
            _, _, node, *keys, last = edit["path"].split("/")
            at = next(one for one in document["nodes"] if one["id"] == node)
            for key in keys:
                at = at.setdefault(key, {})
            at[last] = edit["value"]
        await self.manager.save_draft(id, Workflow.model_validate(document), reason="by hand")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Asked]:
    """Serve a project with a model that says what it is told to."""
    async with agent_bench(tmp_path_factory.mktemp("assistant")) as bench, served(bench.host) as site:
        yield Asked(bench, site)


async def test_requests_come_to_what_they_are_meant_to(asked: Asked) -> None:
    for number, row in enumerate(ROWS):  # all at once: workflows are tools, which are read again after each change
        await asked.manager.save(f"w{number}", Workflow.model_validate(DOCUMENTS[row["open"]]))
    with Failures() as failures:
        for number, row in enumerate(ROWS):
            with failures.row(row["request"]):
                await check(asked, f"w{number}", row)


async def test_a_workflow_deleted_meanwhile_stays_deleted(asked: Asked) -> None:
    removal = {"reply": "Removed.", "operations": [{"op": "remove", "path": "/nodes/upper"}]}
    with Failures() as failures:
        for mode in ("preview", "auto"):
            with failures.row(mode):
                await asked.manager.save(mode, Workflow.model_validate(DOCUMENTS["greet"]))
                row = {"request": "Less.", "mode": mode, "answers": [removal], "meanwhile": {"delete": True}}
                found = await asked.ask(mode, row)
                assert (len(found["asked"]), found["update"]) == (1, None), "no answer of a model mends that"
                assert f"there is no workflow {mode!r}" in found["reply"].text
                with pytest.raises(NotFound):
                    await asked.manager.get(mode)


async def check(asked: Asked, id: str, row: dict[str, Any]) -> None:
    if row["open"] == "failed":
        await asked.bench.host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow_id=id, inputs={"name": "Ann"}))
    before = await asked.now(id)
    found = await asked.ask(id, row)
    reply, update, outcome = found["reply"], found["update"], row["outcome"]
    assert reply.outcome == "reply", reply.error
    assert len(found["asked"]) == row.get("asked", 1)
    assert (reply.usage.prompt_tokens, reply.usage.steps) == (10 * len(found["asked"]), 1)
    assert row.get("reply", "") in reply.text
    assert row.get("mended", "") in found["asked"][-1].messages[-1].content
    assert row.get("told", "") in found["asked"][0].messages[-1].content
    after = await asked.now(id)
    if outcome in ("answered", "refused"):
        assert (update, after) == (None, before)
        return
    for node, values in row.get("kept", {}).items():
        assert values.items() <= of(after, node).items()
    if outcome == "conflict":
        assert update is None
        return
    made = update["workflow"]
    assert update["reason"] == row["request"]
    assert update["mode"] == row.get("mode", "preview")
    assert (made == after) is (outcome == "applied")
    (newest, *_) = await asked.manager.history(id)
    if outcome == "applied":
        assert (newest.by, newest.reason, newest.revision) == (f"agent:{AGENT}", row["request"], update["revision"])
    else:
        assert newest.by == "user:operator", "a proposal changes nothing"
    await check_document(asked, before, made, row)


async def check_document(asked: Asked, before: dict[str, Any], made: dict[str, Any], row: dict[str, Any]) -> None:
    assert [one for one in await asked.manager.check(made) if one.severity == "error"] == []
    assert "localId" not in json.dumps(made, ensure_ascii=False).replace("LocalId", "localId")
    old = {node["id"]: node for node in before["nodes"]}
    new = {node["id"]: node for node in made["nodes"]}
    added = [node for id, node in new.items() if id not in old]
    assert sorted(node["type"] for node in added) == sorted(row.get("types", []))
    assert sorted(old.keys() - new.keys()) == row.get("gone", [])
    placed = [id for id in old.keys() & new.keys() if "position" in old[id]]
    assert [new[id]["position"] for id in placed] == [old[id]["position"] for id in placed]
    places = [tuple(node["position"].values()) for node in added]
    assert len(set(places)) == len(places), "new nodes are laid out"
    names = {id: node["type"].split(":")[1] if id not in old else id for id, node in new.items()}
    edges = {
        f"{names[e['source']]}.{e['sourceHandle']} > {names[e['target']]}.{e['targetHandle']}" for e in made["edges"]
    }
    assert set(row.get("edges", [])) <= edges
    for node, values in row.get("values", {}).items():
        assert values.items() <= of(made, node)["inputValues"].items()


def of(document: dict[str, Any], id: str) -> dict[str, Any]:
    found: dict[str, Any] = next(node for node in document["nodes"] if node["id"] == id)
    return found
